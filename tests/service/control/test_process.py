"""The life of `advisor control` between signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from advisor.model.settings import Settings
from advisor.service.control import process as control_process

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


class Control:
    """Sends this process a signal as soon as it has begun."""

    def __init__(self, number: signal.Signals | None, *, ends: bool) -> None:
        self.number, self.ends = number, ends

    @property
    def is_outdated(self) -> bool:
        return self.number is None

    def start(self) -> None:
        if self.number is not None:
            os.kill(os.getpid(), self.number)

    def feed_watchdog(self) -> None:
        pass

    def stop(self) -> bool:
        return self.ends


def run(monkeypatch: pytest.MonkeyPatch, *controls: Control) -> int:
    """How many of the controls were made."""
    left = list(controls)
    monkeypatch.setattr(control_process, "make_control", lambda *_, **__: left.pop(0))
    control_process.run(Settings(), reload_settings=Settings)
    return len(controls) - len(left)


def test_a_reload_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Control(signal.SIGHUP, ends=True), Control(signal.SIGTERM, ends=True)
    assert run(monkeypatch, first, second) == 2


def test_a_reload_while_a_loop_is_at_work_leaves_it_to_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second launch loop on the same journal would launch twice (F10)."""
    with pytest.raises(SystemExit) as left:
        run(monkeypatch, Control(signal.SIGHUP, ends=False), Control(signal.SIGTERM, ends=True))
    assert left.value.code == 75


def test_the_end_is_no_failure_though_a_loop_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, Control(signal.SIGTERM, ends=False)) == 1


def test_d4_another_history_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, Control(None, ends=True), Control(signal.SIGTERM, ends=True)) == 2
