"""How long jobs and idle nodes are assumed to cost money: the forecast, or the worst case under a budget.

The promised money of each launch and of each running node follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from advisor.model.errors import AdvisorError
from advisor.model.scheduler import CloudScheduler
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.cloud.money import expected_seconds, worst_seconds
from advisor.service.running.clock import Clock
from advisor.slurm.steering import idle_seconds

AskStop = Callable[[int], float | None]
"""Function from a job id to the present stop of its hedge, seconds in the cloud; None: it has none."""

_ASK_SECONDS: Final = 600.0
_UNKNOWN_IDLE_SECONDS: Final = 300.0
"""Slurm's SuspendTime while it is not known."""
_MAX_IDLE_SECONDS: Final = 86_400.0


class Reckoning:
    """The time for which money is promised to nodes: jobs' forecasts; under a budget, the worst case."""

    def __init__(
        self, settings: Settings, *, slurm: CloudScheduler, clock: Clock, stop_of: AskStop | None = None
    ) -> None:
        self._settings = settings
        self._slurm = slurm
        self._clock = clock
        self._stop_of = stop_of
        self._idle = _UNKNOWN_IDLE_SECONDS
        self._asked_at = float("-inf")

    def run_seconds(self, queued: QueuedJob | None) -> float:
        """How long a job is assumed to run in the cloud, seconds."""
        if not self._settings.budget.limits_spending:
            return expected_seconds(queued)
        stop = None if queued is None or self._stop_of is None else self._stop_of(queued.job.job_id)
        return worst_seconds(queued, stop)

    @property
    def idle_seconds(self) -> float:
        """How long a node costs money after its last job, seconds: Slurm's SuspendTime, at most a day.

        0 without a budget.
        """
        if not self._settings.budget.limits_spending:
            return 0.0
        now = self._clock.monotonic()
        if now - self._asked_at >= _ASK_SECONDS:
            self._asked_at = now
            self._idle = self._suspend_seconds()
        return self._idle

    def _suspend_seconds(self) -> float:
        burst = self._settings.cluster.burst_partition
        try:
            partition = next((one for one in self._slurm.partitions() if one.name == burst), None)
            found = idle_seconds(partition, self._slurm.config())
        except AdvisorError:
            return self._idle
        return min(_UNKNOWN_IDLE_SECONDS if found is None else found, _MAX_IDLE_SECONDS)
