"""Speculation with a wait model, learning as it goes: one world counts, another beside it teaches.

The *real* world follows the policy that is judged, at the price of waiting that a live site has
(`LearningOptions.second_of_waiting`). Beside it, on the same jobs, runs a *naive* world (the same
speculation, but jobs wait until they leave at b), which shows what each job would have waited had it stayed.

Nothing is known before its time. Forests of run times learn from jobs that ended in the real world. What
happened in another world before time T - b needs only run times of jobs that ended in it before T - b; such a
job was submitted at least its run time before that and starts in the real world at most b after its
submission, so it has ended in the real world by T. Hence everything taken from the other world is b old.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats, Ints
from advisor.papers.forests.distribution import ForestSettings
from advisor.papers.waiting.wait_model import RollingForest
from advisor.papers.waiting.world.costs import CostModel
from advisor.papers.waiting.world.world import (
    Dispatch,
    Length,
    Outcome,
    Simulation,
    Wait,
    Workload,
    WorldRules,
)

Progress = Callable[[str, int, int], None]

DAY = 86_400.0
WEEK_DAYS = 7
_LONGER_THAN_ANY = 4.0  # times b: what a job that left at b would still have waited, for all that is known


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningOptions:
    """How the policy learns; one set for every log.

    Attributes:
        learn_from: Share of the log's jobs after which forests grow. A site has always learned already; a
            replay saves the time before.
        keep_every, sample_room: One in so many repeated sights of a waiting job is kept, and the newest so
            many in all.
        second_of_waiting: What a second of a job's waiting is worth, as a share of the cost of renting the
            mean job for a second; 0: only the bound b, as published.
        forest: How each forest grows.
        thresholds: Waits whose prediction is scored, seconds.
    """

    learn_from: float = 0.35
    keep_every: int = 6
    sample_room: int = 40_000
    second_of_waiting: float = 0.065
    forest: ForestSettings = field(default_factory=lambda: ForestSettings(trees=5))
    thresholds: tuple[float, ...] = (10_800.0, 21_600.0, 43_200.0, 86_400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One log, machine and policy.

    Attributes:
        workload: Jobs, with the lives of spot nodes.
        cores: Fixed.
        short_seconds, longest_wait_seconds: t and b.
        skip_below: No trial for jobs less likely to be short.
        dispatch: Which waiting job is next.
    """

    workload: Workload
    cores: int
    short_seconds: float
    longest_wait_seconds: float
    skip_below: float
    dispatch: Dispatch

    def world(self, wait: Wait, *, keep_every: int = 0, learns: bool = False, room: int = 1) -> Simulation:
        """A world that speculates."""
        rules = WorldRules(
            length=Length.SPECULATION,
            wait=wait,
            dispatch=self.dispatch,
            trial_seconds=self.short_seconds,
            longest_wait_seconds=self.longest_wait_seconds,
            skip_below=self.skip_below,
            keep_every=keep_every,
            learns=learns,
        )
        return Simulation(workload=self.workload, cores=self.cores, rules=rules, sample_room=room)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitScores:
    """Predictions of waits longer than each threshold, each by forests grown before, and what happened.

    Attributes:
        rows: int64, shape (n,): Jobs, at the moment they joined the queue of the naive world.
        chance, happened: float64, bool, shape (n, thresholds): Predicted and true.
    """

    rows: Ints
    chance: Floats
    happened: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learned:
    """What came of it.

    Attributes:
        real: The world that counts, at its end.
        price: Core-seconds that a second of waiting was worth there, once forests had grown.
        scores: Of the wait model.
    """

    real: Simulation
    price: float
    scores: WaitScores


class Lockstep:
    """Both worlds of one case, taken through the log day by day.

    Args:
        case: Log, machine, policy.
        options: How it learns.
    """

    def __init__(self, case: Case, options: LearningOptions) -> None:
        self._case = case
        self._options = options
        self._real = case.world(Wait.MODEL, learns=True)
        self._naive = case.world(Wait.PATIENCE, keep_every=options.keep_every, room=options.sample_room)
        self._waits = RollingForest(settings=options.forest)
        self._runs = RollingForest(settings=options.forest)
        self._price = 0.0
        self._scored: list[tuple[Ints, Floats]] = []
        self._scored_until = -np.inf

    def run(self, progress: Progress | None = None) -> Learned:
        """Go through the whole log."""
        submit = self._case.workload.submit
        learn_at = submit[int(self._options.learn_from * len(submit))]
        days = int(np.ceil((submit[-1] - submit[0]) / DAY)) + 1
        for day in range(1, days + 1):
            now = float(submit[0] + day * DAY)
            self._advance(now)
            if now >= learn_at and day % WEEK_DAYS == 0:
                self._learn(now, day)
            if progress is not None:
                progress("learning: days", day, days)
        self._score()
        self._advance(np.inf)
        return Learned(real=self._real, price=self._price, scores=self._scores())

    def _advance(self, until: float) -> None:
        """The real world first: it forecasts run times, and the other is told."""
        waits, runs = self._waits.trees, self._runs.trees
        self._real.advance(until, waits=waits, runs=runs, price=self._price)
        self._naive.take_forecasts(self._real)
        self._naive.advance(until)

    def _learn(self, now: float, seed: int) -> None:
        """Score the week's predictions, then grow a forest of each kind."""
        self._score()
        run = self._case.workload.run
        ended = np.flatnonzero(self._real.ended(now))
        ended = ended[np.argsort(self._real.jobs["end"][ended], kind="stable")]
        newest = ended[-self._options.forest.most_jobs :]
        self._runs.grow(self._real.run_samples[newest], run[newest], seed=seed)
        rows, times, features = self._naive.samples()
        start, stayed, settled = self._settled(rows, now - self._case.longest_wait_seconds)
        to_come = np.where(stayed, start - times, _LONGER_THAN_ANY * self._case.longest_wait_seconds)
        known = np.flatnonzero(settled)
        if self._waits.grow(features[known], to_come[known], seed=seed):
            mean_processors = float(self._case.workload.processors[ended].mean())
            self._price = self._options.second_of_waiting * mean_processors

    def _settled(self, rows: Ints, until: float) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
        """When jobs of the naive world started, whether on fixed cores, and whether before ``until``."""
        outcome = self._naive.outcome()
        start = outcome.start[rows]
        return start, outcome.on_fixed[rows], np.nan_to_num(start, nan=np.inf) <= until

    def _score(self) -> None:
        """Predict, for the jobs that joined the naive queue since the last time."""
        rows, times, features = self._naive.samples()
        joined = (times > self._scored_until) & (times == self._naive.jobs["queued"][rows])
        if len(times):
            self._scored_until = float(times[-1])
        if self._waits.trees is None or not joined.any():
            return
        # a job that joined in the second of a sweep was seen twice
        seen = np.flatnonzero(joined)
        seen = np.sort(seen[np.unique(rows[seen], return_index=True)[1]])
        waited = times[seen] - self._case.workload.submit[rows[seen]]
        chance = np.column_stack(
            [
                [
                    float(self._waits.chance_of_more(features[at : at + 1], max(threshold - age, 0.0))[0])
                    for at, age in zip(seen, waited, strict=True)
                ]
                for threshold in self._options.thresholds
            ]
        )
        self._scored.append((rows[seen], chance))

    def _scores(self) -> WaitScores:
        width = len(self._options.thresholds)
        rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in self._scored)])
        chance = np.concatenate([np.empty((0, width)), *(chance for _, chance in self._scored)])
        start, stayed, _ = self._settled(rows, np.inf)
        wait = np.where(stayed, start - self._case.workload.submit[rows], np.inf)
        happened = wait[:, None] > np.array(self._options.thresholds)
        return WaitScores(rows=rows, chance=chance, happened=happened)


def rented_cost(outcome: Outcome, workload: Workload, costs: CostModel) -> Floats:
    """What was rented for each job, in core-seconds of on-demand."""
    cost: Floats = (
        costs.on_demand * outcome.ondemand_seconds + costs.spot * outcome.spot_seconds
    ) * workload.processors
    return cost
