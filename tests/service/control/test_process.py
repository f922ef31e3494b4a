"""The life of `advisor control` between signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.files import fence
from advisor.model.errors import BadInput
from advisor.model.settings import PathSettings, Settings
from advisor.model.settings_price import BudgetSettings
from advisor.service.admin.doctor import Level, _controllers
from advisor.service.admin.status_report import status_report
from advisor.service.admin.status_words import status_rows
from advisor.service.control import process as control_process
from advisor.service.control.connections import Connections
from advisor.service.control.lease import Lease
from advisor.service.control.wiring import Control as RealControl
from advisor.service.exchange.lease_file import LEASE, read_holder
from advisor.service.running.clock import Clock
from advisor.service.running.notify import Notifier
from tests.service.stability.test_match_loop import held_world

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


def settings_in(folder: Path) -> Settings:
    return Settings(paths=PathSettings(state=folder / "state", run=folder / "run"))


def run(monkeypatch: pytest.MonkeyPatch, *controls: Control) -> int:
    """How many of the controls were made."""
    left = list(controls)
    monkeypatch.setattr(control_process, "make_control", lambda *_, **__: left.pop(0))
    with tempfile.TemporaryDirectory() as folder:
        control_process.run(settings_in(Path(folder)), reload_settings=lambda: settings_in(Path(folder)))
    return len(controls) - len(left)


def test_a_reload_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Control(signal.SIGHUP, ends=True), Control(signal.SIGTERM, ends=True)
    assert run(monkeypatch, first, second) == 2


def test_settings_that_change_while_the_loops_end_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as an Undo right after the Apply: the loops may take 40 s to end."""

    class EndsSlowly(Control):
        def stop(self) -> bool:
            in_file.append(500.0)
            os.kill(os.getpid(), signal.SIGHUP)
            return True

    class Waits(Control):
        def start(self) -> None:
            pass

        def feed_watchdog(self) -> None:
            fed.append(None)
            if len(fed) > 1:
                os.kill(os.getpid(), signal.SIGTERM)

    in_file, made, fed = [5000.0], list[float](), list[None]()
    first, last = settings_in(tmp_path), Control(signal.SIGTERM, ends=True)
    left = [EndsSlowly(signal.SIGHUP, ends=True), Waits(signal.SIGTERM, ends=True), last]

    def make(settings: Settings, **_: object) -> Control:
        made.append(settings.budget.usd)
        return left.pop(0)

    def reload_settings() -> Settings:
        return first.model_copy(update={"budget": BudgetSettings(usd=in_file[-1])})

    monkeypatch.setattr(control_process, "make_control", make)
    control_process.run(first, reload_settings=reload_settings)
    assert made == [0.0, 5000.0, 500.0]


def test_systemd_hears_of_the_end_and_not_of_a_reload(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After STOPPING=1 it kills what has not ended within TimeoutStopSec."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        world, _ = held_world(tmp_path)
        notifier = Notifier.from_environment(os.environ)
        parts = Connections(slurm=world.slurm, nodes_asked=world.slurm)
        reloaded = RealControl(world.settings, parts, notifier=notifier, clock=world.clock.clock)
        assert reloaded.stop()
        with pytest.raises(BlockingIOError):
            manager.recv(4096)
        run(monkeypatch, Control(signal.SIGHUP, ends=True), Control(signal.SIGTERM, ends=True))
        assert manager.recv(4096) == b"STOPPING=1"
        with pytest.raises(BlockingIOError):
            manager.recv(4096)


def test_a_reload_while_a_loop_is_at_work_leaves_it_to_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second launch loop on the same journal would launch twice (F10)."""
    with pytest.raises(SystemExit) as left:
        run(monkeypatch, Control(signal.SIGHUP, ends=False), Control(signal.SIGTERM, ends=True))
    assert left.value.code == 75


def test_the_end_is_no_failure_though_a_loop_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, Control(signal.SIGTERM, ends=False)) == 1


_ACTS = """
import sys
from pathlib import Path
from advisor.model.settings import PathSettings, Settings
from advisor.service.control.process import _alone
with _alone(Settings(paths=PathSettings(state=Path(sys.argv[1])))):
    print("acts", flush=True)
    sys.stdin.read()
"""


def test_a_second_control_with_the_same_state_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also with another ``paths.run``, where no socket is in its way."""
    settings = settings_in(tmp_path)
    monkeypatch.setattr(control_process, "make_control", lambda *_, **__: Control(signal.SIGTERM, ends=True))
    with subprocess.Popen(
        [sys.executable, "-c", _ACTS, settings.paths.state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "acts\n"
        with pytest.raises(BadInput, match="another `advisor control` acts with this folder"):
            control_process.run(settings, reload_settings=lambda: settings)
        first.kill()
    control_process.run(settings, reload_settings=lambda: settings)  # the lock ends with its process


def test_d4_another_history_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, Control(None, ends=True), Control(signal.SIGTERM, ends=True)) == 2


@pytest.fixture
def shared(tmp_path: Path) -> Settings:
    return Settings(paths=PathSettings(state=tmp_path, run=tmp_path / "run", shared=True))


def shown(settings: Settings) -> str:
    return dict(status_rows(status_report(settings, 0.0, {"running": False}))).get("controllers", "")


def test_one_of_two_takes_the_lease_with_the_settings_of_then_and_releases_it(
    monkeypatch: pytest.MonkeyPatch, shared: Settings
) -> None:
    (shared.paths.state / LEASE).touch()
    seen: list[tuple[Settings, int]] = []

    def make(settings: Settings, **_: object) -> Control:
        seen.append((settings, fence.number()))
        assert "acts (takeover 1)" in shown(shared)
        return Control(signal.SIGTERM, ends=True)

    monkeypatch.setattr(control_process, "make_control", make)
    newer = shared.model_copy()
    control_process.run(shared, reload_settings=lambda: newer)
    assert seen == [(newer, 1)]
    assert seen[0][0] is newer
    assert fence.in_force() is None
    other = Lease(shared.paths.state, Clock(), host="other")
    assert other.try_take() is not None, "at once"
    assert read_holder(shared.paths.state).host == "other"
    assert shown(shared) == "other acts (takeover 2)"


@pytest.mark.parametrize("is_mounted", [True, False])
def test_the_other_one_stands_by_and_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch, shared: Settings, *, is_mounted: bool
) -> None:
    if is_mounted:
        (shared.paths.state / LEASE).touch()
        assert Lease(shared.paths.state, Clock(), host="other").try_take() is not None
    looks = 0
    real = Lease.try_take

    def try_take(lease: Lease) -> object:
        nonlocal looks
        looks += 1
        if looks == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(lease)

    monkeypatch.setattr(Lease, "try_take", try_take)
    monkeypatch.setattr(control_process, "_STAND_BY_SECONDS", 0.01)
    monkeypatch.setattr(control_process, "make_control", lambda *_, **__: pytest.fail("it acts"))
    control_process.run(shared, reload_settings=lambda: shared)
    assert looks == 3
    (first, *_) = _controllers(shared)
    assert first.level is (Level.OK if is_mounted else Level.ERROR)
    assert shown(shared) == ("other acts (takeover 1)" if is_mounted else "none acts")
