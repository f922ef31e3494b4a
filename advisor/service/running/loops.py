"""Control loops: a round of steps, and the thread that repeats it.

Each step is isolated: a step that fails is counted and remembered, the next one runs, and the loop goes on. A
step changes nothing that it cannot read; the next round tries again.
"""

from __future__ import annotations

import math
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import structlog

from advisor.files import fence
from advisor.model.errors import AdvisorError
from advisor.service.running.clock import Clock
from advisor.service.running.isolating import not_writable

log = structlog.get_logger(__name__)

_MIN_REST_SECONDS: Final = 0.5
"""Shortest pause between two rounds, however often the loop is woken."""
_MAX_MESSAGE_CHARACTERS: Final = 2_000
"""Longest text of a failure: the status file repeats it."""
_STUCK_SECONDS: Final = 900.0
"""A round that takes longer is stuck: the first sacct of a big site takes minutes, no round takes this."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action of a loop's round."""

    name: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class UrgentTask:
    """A task that is also run between two rounds of a loop, in the loop's thread.

    Attributes:
        due_in: Seconds until there is something to do: 0 now, infinity when nothing is awaited.
    """

    step: Step
    due_in: Callable[[], float]


class Loop(Protocol):
    """Steps that are repeated."""

    @property
    def name(self) -> str:
        """Short name, for logs and metrics."""
        ...

    @property
    def period_seconds(self) -> float:
        """Time from the start of one round to the start of the next."""
        ...

    def steps(self) -> Sequence[Step]:
        """The steps of one round, in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailure:
    """The last failure of a step: when (epoch seconds), which code, what it said."""

    time: float
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopHealth:
    """Health of a loop.

    Attributes:
        open_failures: Steps that failed in their last round, with what they said.
        last_good_round: Epoch seconds of the last round in which nothing failed.
        seconds: Duration of the last round.
    """

    rounds: int = 0
    failures: dict[tuple[str, str], int] = field(default_factory=dict)
    open_failures: dict[str, StepFailure] = field(default_factory=dict)
    last_good_round: float | None = None
    seconds: float = 0.0

    def summary(self) -> Mapping[str, Any]:
        """The loop's health, for `advisor status`."""
        return {
            "rounds": self.rounds,
            "seconds": self.seconds,
            "last_good_round": self.last_good_round,
            "failures": sum(self.failures.values()),
            "open_failures": self.open_failures,
        }


class LoopRunner:
    """Runs one loop, once or again and again.

    Args:
        urgent_task: The task to run between rounds when it is due; `request_urgent_task` says that it may be.
    """

    def __init__(self, loop: Loop, clock: Clock, *, urgent_task: UrgentTask | None = None) -> None:
        self.loop = loop
        self._urgent_task = urgent_task
        self.health = LoopHealth()
        self._clock = clock
        self._round_began: float | None = None
        self._notified = threading.Event()
        self._is_woken = False
        self._logged_defects: set[tuple[str, str, str, int]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=loop.name, daemon=True)

    def run_once(self, *, leave_out: Collection[str] = ()) -> bool:
        """Run one round; return True if every step has succeeded. Never raises.

        ``leave_out`` names steps that a rehearsal does not need.
        """
        self._round_began = began = self._clock.monotonic()
        health = replace(self.health, rounds=self.health.rounds + 1, failures=dict(self.health.failures))
        still_open: dict[str, StepFailure] = {}
        for step in self.loop.steps():
            if step.name in leave_out:
                continue
            failure = self._run_step(step)
            if failure is None:
                continue
            still_open[step.name] = failure
            self._count(step, failure, health.failures, known=step.name in self.health.open_failures)
        for name in self.health.open_failures.keys() - still_open.keys():
            log.info("loop.step_works_again", loop=self.loop.name, step=name)
        self.health = replace(
            health,
            open_failures=still_open,
            last_good_round=health.last_good_round if still_open else self._clock.wall(),
            seconds=self._clock.monotonic() - began,
        )
        self._round_began = None
        return not still_open

    @property
    def is_woken(self) -> bool:
        """Whether the next round was asked for."""
        return self._is_woken

    def take_wake(self) -> None:
        """Forget that the next round was requested; the caller that runs the rounds calls it."""
        self._is_woken = False
        self._notified.clear()

    @property
    def urgent_task_due_in(self) -> float:
        """Seconds until the urgent task is due, 0 now; infinite without one."""
        return self._urgent_task.due_in() if self._urgent_task is not None else math.inf

    def start(self) -> None:
        """Run the rounds in a thread of its own."""
        self._thread.start()

    def wake(self) -> None:
        """Start the next round now, or half a second after the last one."""
        self._is_woken = True
        self._notified.set()

    def request_urgent_task(self) -> None:
        """Do the urgent task now, if it is due; no round begins sooner for it."""
        self._notified.set()

    def ask_to_stop(self) -> None:
        """End after the round under way; does not wait for it."""
        self._stop.set()
        self._notified.set()

    def stop(self, timeout: float = 10.0) -> bool:
        """End after the round under way; False when that takes too long."""
        self.ask_to_stop()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def is_stuck(self) -> bool:
        """True when a round has been under way for a quarter of an hour."""
        began = self._round_began
        return began is not None and self._clock.monotonic() - began > _STUCK_SECONDS

    def _repeat(self) -> None:
        while not self._stop.is_set():
            began = self._clock.monotonic()
            self.run_once()
            self._rest(began)

    def _rest(self, began: float) -> None:
        """Wait until the next round is due or was asked for; urgent tasks are done meanwhile."""
        ended, period = self._clock.monotonic(), self.loop.period_seconds
        # a pause after each round: one that takes longer than its period must not load Slurm all the time
        end = ended + max(period - (ended - began), min(period, 0.5 * self.health.seconds))
        # hundreds of jobs that start at once each wake the loop
        earliest = ended + min(max(_MIN_REST_SECONDS, 0.5 * self.health.seconds), period)
        while not self._stop.is_set():
            if self._is_woken:
                end = min(end, earliest)
            left = end - self._clock.monotonic()
            if left <= 0.0:
                break
            due = self.urgent_task_due_in
            if due <= 0.0:
                self.run_urgent_task()
            elif self._notified.wait(min(left, due)):
                self._notified.clear()
        self._is_woken = False

    def run_urgent_task(self) -> None:
        """Run the urgent task, if there is one; a failure is counted."""
        if self._urgent_task is None:
            return
        self._round_began = self._clock.monotonic()
        step = self._urgent_task.step
        failure = self._run_step(step)
        self._round_began = None
        if failure is not None:
            failures = dict(self.health.failures)
            self._count(step, failure, failures, known=(step.name, failure.code) in failures)
            self.health = replace(self.health, failures=failures)

    def _run_step(self, step: Step) -> StepFailure | None:
        try:
            fence.check()
            step.run()
        except AdvisorError as error:
            if isinstance(error.__cause__, Exception) and error.code == "loop.item_failed":
                self._log_defect(step, error.__cause__)
            return self._failure(error.code, str(error))
        except Exception as error:  # noqa: BLE001 -- one rare path must not end the loop (F28)
            if (told := not_writable(error)) is not None:
                return self._failure(told.code, str(told))
            self._log_defect(step, error)
            return self._failure("loop.crashed", f"{type(error).__name__}: {error}")
        return None

    def _failure(self, code: str, message: str) -> StepFailure:
        return StepFailure(time=self._clock.wall(), code=code, message=message[:_MAX_MESSAGE_CHARACTERS])

    def _log_defect(self, step: Step, error: Exception) -> None:
        """Log the traceback of an unexpected failure, once for each line of code that raises it."""
        frames = list(traceback.walk_tb(error.__traceback__))
        place = (frames[-1][0].f_code.co_filename, frames[-1][1]) if frames else ("", 0)
        if (step.name, type(error).__name__, *place) in self._logged_defects:
            return
        self._logged_defects.add((step.name, type(error).__name__, *place))
        log.error("loop.step_crashed", loop=self.loop.name, step=step.name, exc_info=error)

    def _count(
        self, step: Step, failure: StepFailure, failures: dict[tuple[str, str], int], *, known: bool
    ) -> None:
        """Count a failure, and log it unless one of its kind was logged lately."""
        key = (step.name, failure.code)
        failures[key] = seen = failures.get(key, 0) + 1
        if not known or seen & (seen - 1) == 0:  # the first, then the 2nd, 4th, 8th, ... of a kind
            log.warning(
                "loop.step_failed",
                loop=self.loop.name,
                step=step.name,
                code=failure.code,
                message=failure.message,
                times=seen,
            )
