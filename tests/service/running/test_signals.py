"""Signals of a daemon: each ends the wait, and says what to do."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from advisor.service.running.signals import DaemonSignals

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture
def signals() -> Iterator[DaemonSignals]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield DaemonSignals()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "stops"), [(signal.SIGTERM, True), (signal.SIGINT, True), (signal.SIGHUP, False)]
)
def test_a_signal_ends_the_wait_once(signals: DaemonSignals, number: signal.Signals, *, stops: bool) -> None:
    signal.raise_signal(number)
    began = time.monotonic()
    signals.wait(60.0)
    assert time.monotonic() - began < 30.0
    assert (signals.stop.is_set(), signals.reload.is_set()) == (stops, not stops)
    assert not signals._wake.is_set()
