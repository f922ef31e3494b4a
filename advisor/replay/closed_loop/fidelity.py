"""How near the simulated site comes to the real one: a log all on-premise, against what it says happened.

`advisor rehearse`, `whatif`, `recommend` and `plan` say it beside their figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.model.table import UNKNOWN_CODE
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.world import LoopResult

MAX_RATIO: Final = 1.25
"""The simulation deviates where its mean wait and the log's have a larger ratio than this."""
MIN_CORRELATION: Final = 0.98
"""It deviates where the starts come in another order than this rank correlation allows."""
MIN_WAIT_CORRELATION: Final = 0.5
"""It deviates where other jobs wait than in the log."""

_FEW: Final = 0.01  # shares below it explain nothing
_WAITED: Final = 60.0  # seconds; a job that waited longer did not start at once
_LOOK_AHEAD: Final = 50  # jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """A window all on-premise, simulated and as it was.

    Attributes:
        jobs: Jobs whose wait the log knows.
        mean_wait_ratio: Simulated over logged; None where nothing waited in the log.
        start_rank_correlation, wait_rank_correlation: Spearman's, of starts and of waits; None where one is
            constant. Over weeks the starts come in nearly the same order whatever the scheduler does.
        explained_share: Share of the variance of the logged waits that the simulated ones explain; below 0
            where their mean says more than the simulation; None where all are equal.
        deviates: Whether what-ifs of this log are to be read with caution.
        reasons: What in the log the simulation does not know, as sentences; only where it deviates.
    """

    jobs: int
    mean_wait_seconds: float
    logged_mean_wait_seconds: float
    mean_wait_ratio: float | None
    start_rank_correlation: float | None
    wait_rank_correlation: float | None
    explained_share: float | None
    median_absolute_deviation_seconds: float
    deviates: bool
    reasons: tuple[str, ...]


def fidelity_of(jobs: LoopJobs, on_premise: LoopResult) -> Fidelity:
    """Compare the simulated waits of a window with the logged ones."""
    logged = jobs.table.wait[jobs.first : jobs.first + len(jobs)]
    known = np.isfinite(logged) & (logged >= 0.0)
    simulated = (on_premise.end - jobs.submit - jobs.run)[known]
    logged, submit = logged[known], jobs.submit[known]
    if not len(logged):
        return Fidelity(
            jobs=0,
            mean_wait_seconds=math.nan,
            logged_mean_wait_seconds=math.nan,
            mean_wait_ratio=None,
            start_rank_correlation=None,
            wait_rank_correlation=None,
            explained_share=None,
            median_absolute_deviation_seconds=math.nan,
            deviates=True,
            reasons=("The log has no waits to compare with.",),
        )
    ratio = float(simulated.mean() / logged.mean()) if logged.mean() > 0.0 else None
    starts = _rank_correlation(submit + simulated, submit + logged)
    waits = _rank_correlation(simulated, logged)
    is_near = ratio is None or 1.0 / MAX_RATIO <= ratio <= MAX_RATIO
    deviates = (
        not is_near
        or (starts is not None and starts < MIN_CORRELATION)
        or (waits is not None and waits < MIN_WAIT_CORRELATION)
    )
    return Fidelity(
        jobs=len(logged),
        mean_wait_seconds=float(simulated.mean()),
        logged_mean_wait_seconds=float(logged.mean()),
        mean_wait_ratio=ratio,
        start_rank_correlation=starts,
        wait_rank_correlation=waits,
        explained_share=_explained_share(simulated, logged),
        median_absolute_deviation_seconds=float(np.median(np.abs(simulated - logged))),
        deviates=deviates,
        reasons=tuple(_reasons(jobs, on_premise)) if deviates else (),
    )


def _explained_share(simulated: Floats, logged: Floats) -> float | None:
    variance = float(np.var(logged))
    return 1.0 - float(np.mean((simulated - logged) ** 2)) / variance if variance > 0.0 else None


def _ranks(values: Floats) -> Floats:
    """Ranks; equal values share the mean of theirs. The import of scipy.stats takes a second."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - 0.5 * (counts - 1.0))[places])


def _rank_correlation(one: Floats, other: Floats) -> float | None:
    if len(one) < 2:
        return None
    ranks = _ranks(one), _ranks(other)
    spreads = [float(np.std(rank)) for rank in ranks]
    return float(np.corrcoef(*ranks)[0, 1]) if all(spreads) else None


def _reasons(jobs: LoopJobs, on_premise: LoopResult) -> list[str]:
    """The facts in the log that the simulation does not know."""
    table = jobs.table
    rows = slice(jobs.first, jobs.first + len(jobs))
    logged, simulated = _Machine.logged(jobs), _Machine.simulated(jobs, on_premise)
    queues = np.unique(table.queue[rows])
    shares = {
        "of the jobs have no time limit in the log: the simulation gives them the longest one, or the "
        "longest run time, and backfills few of them.": float(np.isnan(table.requested_time[rows]).mean()),
        "of the jobs ran beyond their limit; the simulation ends them there.": float(
            (table.run[rows] > jobs.limit + 1.0).mean()
        ),
        "of the jobs waited in the log although what they need was free and no job waited before them: "
        "limits of users and queues, reservations, or nodes that were down.": logged.idle_share(),
        "of the jobs started in the log after a later job that was at least as large and as long: its "
        "scheduler orders jobs by more than their age.": _overtaken_share(jobs),
    }
    said = [f"{100 * share:.0f} % {words}" for words, share in shares.items() if share > _FEW]
    busy, here = logged.busy_while_waiting(), simulated.busy_while_waiting()
    is_shorter = simulated.mean_wait < logged.mean_wait
    if is_shorter and here - busy > _FEW:
        said.append(
            f"While jobs waited, {100 * busy:.0f} % of the processors were busy in the log and "
            f"{100 * here:.0f} % in the simulation: nodes were down or reserved, or its scheduler left them "
            "idle."
        )
    if not is_shorter and busy - here > _FEW:
        said.append(
            f"While jobs waited, {100 * busy:.0f} % of the processors were busy in the log and only "
            f"{100 * here:.0f} % in the simulation: the log's scheduler fills the machine better."
        )
    if jobs.on_premise is None and len(queues[queues != UNKNOWN_CODE]) > 1:
        said.append(
            f"The log has {len(queues)} queues; the simulation has one, which may use every processor."
        )
    carried = int(np.sum(table.end[: jobs.first] > jobs.submit[0]))
    if carried:
        said.append(
            f"{carried:,} earlier jobs waited or ran when the window began; the simulation begins empty."
        )
    return said or ["The log's scheduler is not EASY backfilling in the order of submission."]


@dataclass(frozen=True, slots=True, eq=False)
class _Machine:
    """When the jobs from row ``first`` on waited and ran.

    ``held`` is what each held of the ``sizes``, shape ``(n, 3)``; of several machines these are the sums.
    """

    submit: Floats
    start: Floats
    end: Floats
    held: Ints
    sizes: Ints
    first: int

    @classmethod
    def logged(cls, jobs: LoopJobs) -> Self:
        """As the log says."""
        table, last = jobs.table, jobs.first + len(jobs)
        start = table.submit[:last] + np.maximum(np.nan_to_num(table.wait[:last]), 0.0)
        return cls(
            table.submit[:last],
            start,
            start + table.run[:last],
            jobs.held,
            _sizes(jobs),
            jobs.first,
        )

    @classmethod
    def simulated(cls, jobs: LoopJobs, on_premise: LoopResult) -> Self:
        """As the simulation says."""
        start = on_premise.end - jobs.run
        return cls(jobs.submit, start, on_premise.end, jobs.held[jobs.first :], _sizes(jobs), 0)

    @property
    def mean_wait(self) -> float:
        """Seconds."""
        return float((self.start - self.submit)[self.first :].mean())

    def busy_while_waiting(self) -> float:
        """Mean share of the processors that were busy while jobs waited; NaN where none did."""
        times = np.concatenate([self.end, self.start, self.submit])
        nothing = np.zeros(len(self.submit), np.int64)
        processors = self.held[:, 0]
        busy = np.concatenate([-processors, processors, nothing])
        waiting = np.concatenate([nothing, nothing - 1, nothing + 1])
        order = np.argsort(times, kind="stable")
        spans = np.diff(times[order])
        of_interest = (np.cumsum(waiting[order])[:-1] > 0) & (times[order][:-1] >= self.submit[self.first])
        seconds = float(spans[of_interest].sum())
        used = float((spans * np.cumsum(busy[order])[:-1])[of_interest].sum())
        return used / (seconds * float(self.sizes[0])) if seconds else math.nan

    def idle_share(self) -> float:
        """Share of jobs that waited beside enough of all they need, and an empty queue."""
        times = np.concatenate([self.end, self.start])
        changes = np.concatenate([-self.held, self.held])
        order = np.argsort(times, kind="stable")
        busy = np.cumsum(changes[order], axis=0)
        rows = np.arange(self.first, len(self.submit))
        at = np.searchsorted(times[order], self.submit[rows], side="right") - 1
        free = self.sizes - np.where(at[:, None] >= 0, busy[np.maximum(at, 0)], 0)
        started = np.searchsorted(np.sort(self.start), self.submit[rows], side="right")
        waited = self.start[rows] - self.submit[rows] > _WAITED
        has_room = np.all(free >= self.held[rows], axis=1)
        return float((waited & has_room & (rows <= started)).mean())


def _sizes(jobs: LoopJobs) -> Ints:
    if jobs.on_premise is None:
        return np.array([jobs.machine, 0, 0])
    return np.asarray(jobs.on_premise.as_one().sizes[0])


def _overtaken_share(jobs: LoopJobs) -> float:
    """Share of jobs that started after one of the next jobs of at least their size and limit."""
    rows = slice(jobs.first, jobs.first + len(jobs))
    start = jobs.submit + np.maximum(np.nan_to_num(jobs.table.wait[rows]), 0.0)
    overtaken = np.zeros(len(jobs), np.bool_)
    for ahead in range(1, min(_LOOK_AHEAD, len(jobs) - 1) + 1):
        later, earlier = slice(ahead, None), slice(0, len(jobs) - ahead)
        overtaken[earlier] |= (
            (start[later] < start[earlier])
            & (jobs.processors[later] >= jobs.processors[earlier])
            & (jobs.limit[later] >= jobs.limit[earlier])
        )
    return float(overtaken.mean())
