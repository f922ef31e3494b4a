"""When announced jobs are polled for: at once, at growing intervals, and for a few seconds only."""

from __future__ import annotations

import math

import pytest

from advisor.service.exchange.announcing import Announced
from advisor.service.hedge.awaited import Awaited
from advisor.testing.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def looks(awaited: Awaited, clock: ManualClock, seconds: float, *, slurm_takes: float = 0.0) -> list[float]:
    """When looks were due within some seconds, each of which showed nothing."""
    begin, found = clock.steady, list[float]()
    while clock.steady < begin + seconds:
        if awaited.due():
            found.append(round(clock.steady - begin, 3))
            clock.pass_by(slurm_takes)
            awaited.polled(slurm_takes)
        clock.pass_by(0.01)
    return found


def test_an_announced_job_is_polled_for_at_once_until_it_is_found(clock: ManualClock) -> None:
    awaited = Awaited(clock.clock)
    assert awaited.due_in() == math.inf
    awaited.expect([Announced("a", 7), Announced("b", 8)])
    assert awaited.due_in() == 0.0
    assert {job.id for job in awaited.due()} == {"a", "b"}
    awaited.polled(0.0, settled={"a"})
    assert awaited.due() == ()  # not yet
    clock.pass_by(0.25)
    assert awaited.due() == (Announced("b", 8),)
    awaited.polled(0.0, settled={"b"})
    assert awaited.due_in() == math.inf


def test_a_job_that_is_not_found_is_polled_for_ever_less_often_and_given_up(clock: ManualClock) -> None:
    awaited = Awaited(clock.clock)
    awaited.expect([Announced("a", 7)])
    found = looks(awaited, clock, 10.0)
    assert found[0] == 0.0
    assert 3 <= len(found) <= 5
    assert found[-1] <= 3.0
    assert awaited.due_in() == math.inf


@pytest.mark.parametrize("are_found", [True, False])
def test_a_storm_costs_a_look_in_so_long(clock: ManualClock, *, are_found: bool) -> None:
    awaited, count = Awaited(clock.clock), 0
    for number in range(1000):  # within two seconds
        awaited.expect([Announced(f"{number}", 7)])
        if due := awaited.due():
            count += 1
            awaited.polled(0.01, settled={job.id for job in due} if are_found else ())
        clock.pass_by(0.002)
    assert 5 <= count <= 11


def test_a_slow_slurm_is_asked_less_often(clock: ManualClock) -> None:
    awaited = Awaited(clock.clock)
    awaited.expect([Announced("a", 7)])
    assert looks(awaited, clock, 1.0, slurm_takes=0.8) == [0.0]
    awaited.expect([Announced("b", 7)])
    assert awaited.due_in() > 1.0  # news do not make it any faster


def test_who_is_there_and_has_to_wait_his_turn_is_not_given_up(clock: ManualClock) -> None:
    awaited = Awaited(clock.clock)
    awaited.expect([Announced("a", 7), Announced("b", 7)])
    for _ in range(10):
        clock.pass_by(2.0)
        assert Announced("a", 7) in awaited.due()
        awaited.polled(0.0, seen={"a"})
    assert awaited.due_in() > 0.0
    clock.pass_by(1.0)
    assert awaited.due() == (Announced("a", 7),)  # the other never came


def test_what_is_awaited_is_bounded(clock: ManualClock) -> None:
    awaited = Awaited(clock.clock)
    for number in range(100):
        awaited.expect([Announced(f"{number}-{job}", 7) for job in range(500)])
    assert len(awaited.due()) == 5000
