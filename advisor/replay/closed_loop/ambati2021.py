"""Ambati et al. 2021 in a closed loop: short jobs never wait, all others wait at most b.

Whether a job leaves is decided by the submit server's code (`advisor.decide.submission.waiting.choice`), on
the same forecasts. A job that cannot start at once is tried out: it runs for t in the cloud, and returns to
its place in the queue if it has not ended by then (speculation, section 3.1); it is not asked about again.
Any other job leaves for the cloud when it would likely wait longer than b (section 3.2), or has. Every start
needs tokens; without them the job waits.
"""

from __future__ import annotations

import math
from typing import Final

from advisor.decide.submission.policy import AMBATI_SHORT_SECONDS, AMBATI_WAIT_SECONDS
from advisor.decide.submission.published_policies import AT_ONCE_SECONDS
from advisor.decide.submission.waiting import WaitingCase, choice
from advisor.decide.submission.waiting_policy import SPECULATES, WAITS
from advisor.model.advice import Capacity, Hedge, HedgeKind
from advisor.model.estimate import Estimates
from advisor.model.settings_decision import WaitingSettings
from advisor.replay.closed_loop.neighbours import GENERATIONS, Neighbours
from advisor.replay.closed_loop.world import Policy, World

PUBLISHED: Final = WaitingSettings(
    short_wait_seconds=AMBATI_WAIT_SECONDS, long_job_seconds=AMBATI_SHORT_SECONDS
)


class Ambati2021(Policy):
    """The paper's "long jobs wait" and "short waits wait": who waits little or runs long stays in the queue.

    Args:
        settings: b and t, and how often waiting jobs are asked about again.
        generations: Generations of the genetic algorithm that tunes the estimators; 0: they stay untuned.
    """

    name = "ambati2021"

    def __init__(self, settings: WaitingSettings = PUBLISHED, generations: int = GENERATIONS) -> None:
        self._settings = settings
        self._generations = generations
        self._tried: set[int] = set()
        self._neighbours: Neighbours
        self._next: float

    def begin(self, world: World) -> None:
        """Learn from the log's rows before the first job."""
        self._neighbours = Neighbours(world, self._generations)
        self._next = world.now

    def submitted(self, world: World, row: int) -> None:
        """Try the job out in the cloud, if it cannot start at once."""
        estimates = self._neighbours.submitted(row, world.now)
        if world.forecast(world.jobs.limit)[row] - world.now <= AT_ONCE_SECONDS or not self._leaves(
            world, row, estimates, self._trial(world, row)
        ):
            self._neighbours.joined(row, world.now)

    def round(self, world: World) -> None:
        """Send away the jobs that have waited b; ask about all each `ask_again_seconds` (0: neither)."""
        b, period = self._settings.short_wait_seconds, self._settings.ask_again_seconds
        if not period:
            return
        is_due = world.now >= self._next
        if is_due:
            self._next = world.now + period
        for row in world.pool.waiting.tolist():
            has_waited = b and world.now - world.jobs.submit[row] >= b
            if row in self._tried or not (is_due or has_waited):
                continue
            estimates = self._neighbours.asked_again(row, world.now)
            if self._leaves(world, row, estimates, self._trial(world, row)):
                self._neighbours.left(row, world.now)

    def slice_ended(self, world: World, row: int, elapsed: float) -> None:  # noqa: ARG002
        """The trial was too short: the job returns to its place."""
        self._neighbours.joined(row, world.now)

    def started(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._neighbours.started(row, world.now)

    def ended(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._neighbours.ended(row, world.now)

    def _trial(self, world: World, row: int) -> Hedge | None:
        t = self._settings.long_job_seconds
        if math.isinf(t) or not world.may_be_stopped(row):
            return None
        return Hedge(kind=HedgeKind.SPECULATION, stop_seconds=t)

    def _leaves(self, world: World, row: int, estimates: Estimates, trial: Hedge | None) -> bool:
        slowdown, limit = world.options.slowdown, float(world.jobs.limit[row])
        case = WaitingCase(
            job=self._neighbours.job(row),
            estimates=estimates,
            capacity=Capacity.ON_DEMAND,
            cost_usd=0.0,
            trial=trial,
            waited_seconds=world.now - float(world.jobs.submit[row]),
            performance_ratio=slowdown,
        )
        does, _ = choice(case, self._settings)
        if does == WAITS:
            return False
        stop = limit
        if does == SPECULATES and trial is not None:
            stop = min(trial.stop_seconds / slowdown, limit)
        if not world.start_in_cloud(row, stop, keeps_place=False):
            return False
        if stop < limit:
            self._tried.add(row)
        return True
