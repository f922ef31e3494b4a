"""The price loop's value of the waiting jobs that may move: forecast waits, run times and prices. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.decide.explanation.reasons import Reason
from advisor.decide.price.slices import CloudOffer, best_slice
from advisor.decide.submission.capacity import choose
from advisor.decide.submission.cloud_terms import most_usd_per_second, start_of, usd_per_second
from advisor.decide.submission.rules import may_be_brought_back, may_move
from advisor.model.advice import ENDING_SECONDS, Verdict
from advisor.model.job import Job, limit_seconds
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.model.snapshot import QueuedJob
from advisor.predict.run_times.grid import GRID
from advisor.service.waiting.candidates import may_be_asked

AskChances = Callable[[Job], Floats]
"""The probability of each bin of a job's run time on-premise, by `GRID`; nothing above its time limit."""
AskSlowdown = Callable[[QueuedJob], float]
"""How many times longer a job runs in the cloud than on-premise."""
AskLimit = Callable[[Job], float]
"""The time limit in the cloud of a job that waits on-premise, seconds."""

_FREE_USD_PER_SECOND: Final = 1e-12
"""Price of what is paid for already: any saving is worth it."""
_NOW_SECONDS: Final = 1.0
"""A job that is forecast to wait less starts at once."""
_SEEN_BY_THE_HOOK_ALONE: Final = frozenset(
    {
        Reason.EXPLICIT_PARTITION,
        Reason.MORE_MEMORY_THAN_BURST,
        Reason.WIDER_THAN_NODES,
        Reason.LARGER_THAN_BURST,
        Reason.FEATURE_NOT_IN_BURST,
        Reason.TMP_DISK,
        Reason.NODE_LAYOUT,
        Reason.BURST_BUFFER,
        Reason.HETEROGENEOUS,
    }
)
"""Rules that kept a job on-premise at its submission by what squeue does not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Valued:
    """A waiting job and its best slice.

    Attributes:
        wait: Seconds until it starts on-premise.
        value: Seconds of turnaround saved per US dollar.
        usd: Expected cost.
        worst_usd: Cost at worst: boot, run to the stop (a whole run: to its limit there), and ending,
            on-demand where spot has no room.
    """

    queued: QueuedJob
    wait: float
    value: float
    usd: float
    worst_usd: float


class Valuer:
    """Values waiting jobs, each time by the run times that are known by then.

    Args:
        limit_there: For the worst case of a whole run.
        has_slices: Whether jobs that may be requeued keep their place on-premise while they run in the
            cloud.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        chances: AskChances,
        slowdown: AskSlowdown,
        limit_there: AskLimit,
        has_slices: bool,
    ) -> None:
        self._settings = settings
        self._chances = chances
        self._slowdown = slowdown
        self._limit_there = limit_there
        self._has_slices = has_slices
        self._middles = np.sqrt(np.concatenate((GRID[:1] ** 2 / GRID[1], GRID[:-1])) * GRID)

    def value(
        self, jobs: Sequence[QueuedJob], waits: Mapping[int, float], cloud: CloudState, now: float
    ) -> list[Valued]:
        """Value the jobs that may move and would wait; those without a slice that saves time are left out.

        Args:
            waits: See `forecast_waits`.
            now: Epoch seconds.
        """
        movable = [
            q for q in jobs if waits.get(q.job.job_id, 0.0) > _NOW_SECONDS and self._may_move(q, cloud)
        ]
        valued = [self._value(q, waits[q.job.job_id], cloud.for_job(q.job), now) for q in movable]
        return [one for one in valued if one is not None]

    def _value(self, queued: QueuedJob, wait: float, cloud: CloudState, now: float) -> Valued | None:
        job, settings = queued.job, self._settings
        slowdown, chances, limit = self._slowdown(queued), self._chances(job), limit_seconds(job)
        likely = slowdown * float((chances * np.minimum(self._middles, limit)).sum())
        capacity, _ = choose(job, likely, cloud, settings, now)
        if capacity is None:
            return None
        usd = usd_per_second(job, capacity, cloud, settings)
        if not math.isfinite(usd):
            return None
        begun, is_whole = start_of(job, cloud, settings), not self.is_sliced(job)
        cost_per_second = max(usd, _FREE_USD_PER_SECOND)
        offer = CloudOffer(
            start_seconds=begun.seconds,
            slowdown=slowdown,
            cost_per_second=cost_per_second,
            # what data's transfer costs, as if it were paid by time as well
            paid_start_seconds=begun.seconds + begun.usd / cost_per_second,
            is_whole=is_whole,
            checkpoint_seconds=job.at_risk_seconds,
        )
        loss_weight = settings.price.loss_weight
        found = best_slice(
            chances, GRID, limit=limit, elapsed=0.0, wait=wait, offer=offer, loss_weight=loss_weight
        )
        if found.value <= 0.0:
            return None
        most = max(most_usd_per_second(usd, job, capacity, cloud, settings), _FREE_USD_PER_SECOND)
        longest = max(slowdown * found.stop, self._limit_there(job) if is_whole else 0.0)
        worst_usd = most * (begun.seconds + longest + ENDING_SECONDS) + begun.usd
        return Valued(queued=queued, wait=wait, value=found.value, usd=found.cost, worst_usd=worst_usd)

    def is_sliced(self, job: Job) -> bool:
        """Whether the job may be brought back, so that its run in the cloud is bought in slices."""
        return self._has_slices and may_be_brought_back(job, self._settings)

    def _may_move(self, queued: QueuedJob, cloud: CloudState) -> bool:
        recorded = may_be_asked(queued, self._settings)
        return (
            recorded is not None
            and recorded.reason not in _SEEN_BY_THE_HOOK_ALONE
            and may_move(queued.job, cloud.for_job(queued.job), self._settings).verdict is Verdict.YES
        )
