"""Loops: isolated steps, periods by the monotonic clock, no failure ends them."""

from __future__ import annotations

import errno
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from advisor.model.errors import RetryLater
from advisor.service.running.clock import Clock
from advisor.service.running.isolating import do_all
from advisor.service.running.loops import LoopRunner, Step, UrgentTask


class Hands:
    """Clocks that a test sets."""

    def __init__(self) -> None:
        self.wall = 1000.0
        self.monotonic = 50.0

    @property
    def clock(self) -> Clock:
        return Clock(wall=lambda: self.wall, monotonic=lambda: self.monotonic)


class Scripted:
    """A loop of given steps."""

    name = "scripted"
    period_seconds = 0.01

    def __init__(self, *steps: tuple[str, Callable[[], None]]) -> None:
        self._steps = steps

    def steps(self) -> Sequence[Step]:
        return tuple(Step(name, run) for name, run in self._steps)


def fails() -> None:
    raise RetryLater("not now", code="test.later")


def crashes() -> None:
    raise KeyError("rare path")


def test_a_failed_step_stops_no_other() -> None:
    done: list[str] = []
    loop = Scripted(("a", fails), ("b", crashes), ("c", lambda: done.append("c")))
    runner = LoopRunner(loop, Hands().clock)
    assert runner.run_once() is False
    assert done == ["c"]
    assert runner.health.failures == {("a", "test.later"): 1, ("b", "loop.crashed"): 1}
    assert runner.health.open_failures["a"].message == "not now"
    assert runner.health.last_good_round is None


@pytest.mark.parametrize("is_of_one_job", [False, True])
def test_a_full_disk_is_told_without_a_traceback(*, is_of_one_job: bool) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/var/lib/advisor/price.json")

    step = partial(do_all, full) if is_of_one_job else full
    runner = LoopRunner(Scripted(("a", step)), Hands().clock)
    with capture_logs() as lines:
        assert runner.run_once() is False
    assert [line["event"] for line in lines] == ["loop.step_failed"]
    assert runner.health.open_failures["a"].code == "loop.not_writable"
    assert "/var/lib/advisor/price.json" in runner.health.open_failures["a"].message


def test_a_step_that_works_again_is_no_longer_open() -> None:
    hands = Hands()
    behaviour = [fails, lambda: None]

    def step() -> None:
        behaviour.pop(0)()

    runner = LoopRunner(Scripted(("a", step)), hands.clock)
    assert not runner.run_once()
    hands.wall = 1005.0
    assert runner.run_once()
    assert runner.health.open_failures == {}
    assert runner.health.failures == {("a", "test.later"): 1}
    assert runner.health.last_good_round == 1005.0
    assert runner.health.rounds == 2


def test_f32_durations_do_not_follow_a_clock_that_is_set() -> None:
    hands = Hands()

    def step() -> None:
        hands.wall -= 3600.0
        hands.monotonic += 2.5

    runner = LoopRunner(Scripted(("a", step)), hands.clock)
    runner.run_once()
    assert runner.health.seconds == 2.5


def test_a_round_that_does_not_end_is_stuck() -> None:
    hands = Hands()
    seen: list[bool] = []

    def step() -> None:
        seen.append(runner.is_stuck)
        hands.monotonic += 3600.0
        seen.append(runner.is_stuck)

    runner = LoopRunner(Scripted(("a", step)), hands.clock)
    runner.run_once()
    assert seen == [False, True]
    assert not runner.is_stuck


def test_it_repeats_until_stopped_whatever_fails() -> None:
    enough = threading.Event()
    count = [0]

    def step() -> None:
        count[0] += 1
        if count[0] >= 5:
            enough.set()
        crashes()

    runner = LoopRunner(Scripted(("a", step)), Clock())
    runner.start()
    assert enough.wait(20)
    assert runner.stop()


def test_a_wake_begins_the_next_round_now() -> None:
    rounds = threading.Semaphore(0)
    loop = Scripted(("a", rounds.release))
    loop.period_seconds = 3600.0
    runner = LoopRunner(loop, Clock())
    runner.start()
    assert rounds.acquire(timeout=20)
    runner.wake()
    assert rounds.acquire(timeout=20)
    assert runner.stop()


def test_many_wakes_are_no_rounds_back_to_back() -> None:
    begun: list[float] = []
    enough = threading.Event()

    def step() -> None:
        begun.append(time.monotonic())
        if len(begun) >= 3:
            enough.set()
        runner.wake()

    loop = Scripted(("a", step))
    loop.period_seconds = 3600.0
    runner = LoopRunner(loop, Clock())
    runner.start()
    assert enough.wait(60)
    assert runner.stop()
    assert all(later - earlier >= 0.49 for earlier, later in pairwise(begun))


class Errands:
    """Something urgent that somebody asks for."""

    def __init__(self, run: Callable[[], None] = lambda: None) -> None:
        self.is_due = False
        self.done = threading.Semaphore(0)
        self._run = run

    @property
    def urgent_task(self) -> UrgentTask:
        return UrgentTask(Step("urgent_task", self.run), lambda: 0.0 if self.is_due else math.inf)

    def run(self) -> None:
        self.is_due = False
        self.done.release()
        self._run()


def test_an_errand_is_done_between_rounds_and_begins_none() -> None:
    rounds, urgent_tasks = threading.Semaphore(0), Errands(crashes)
    loop = Scripted(("a", rounds.release))
    loop.period_seconds = 3600.0
    runner = LoopRunner(loop, Clock(), urgent_task=urgent_tasks.urgent_task)
    runner.start()
    assert rounds.acquire(timeout=20)
    for _ in range(3):  # whatever becomes of it
        urgent_tasks.is_due = True
        runner.request_urgent_task()
        assert urgent_tasks.done.acquire(timeout=20)
    runner.request_urgent_task()  # for nothing
    runner.wake()
    assert rounds.acquire(timeout=20)
    assert runner.stop()
    assert (runner.health.rounds, runner.health.failures) == (2, {("urgent_task", "loop.crashed"): 3})
    assert not urgent_tasks.done.acquire(blocking=False)


def test_one_asked_for_during_a_round_is_done_after_it() -> None:
    urgent_tasks = Errands()

    def step() -> None:
        urgent_tasks.is_due = True
        runner.request_urgent_task()

    loop = Scripted(("a", step))
    loop.period_seconds = 3600.0
    runner = LoopRunner(loop, Clock(), urgent_task=urgent_tasks.urgent_task)
    runner.start()
    assert urgent_tasks.done.acquire(timeout=20)
    assert runner.stop()
    assert runner.health.rounds == 1


def test_errands_that_never_end_keep_no_round_from_its_turn() -> None:
    rounds = threading.Semaphore(0)
    loop = Scripted(("a", rounds.release))
    urgent_task = UrgentTask(Step("urgent_task", lambda: None), lambda: 0.0)
    runner = LoopRunner(loop, Clock(), urgent_task=urgent_task)
    runner.start()
    for _ in range(3):
        assert rounds.acquire(timeout=20)
    assert runner.stop()


def test_asked_to_stop_it_ends_after_its_round_without_being_waited_for() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        assert go_on.wait(20)

    runner = LoopRunner(Scripted(("a", step)), Clock())
    runner.start()
    assert begun.wait(20)
    runner.ask_to_stop()
    assert not runner.stop(0.01)
    go_on.set()
    assert runner.stop(20)
