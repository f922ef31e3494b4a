"""How long jobs and idle nodes are reckoned to cost money: expected, or at worst where a budget must hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.cloud.money import expected_seconds, worst_seconds
from advisor.service.running.clock import Clock
from advisor.slurm.protocol import SlurmBackend

AskStop = Callable[[int], float | None]
"""Job id to the stop of its slice as it is now, seconds in the cloud; None: it has none."""

_ASK_SECONDS: Final = 600.0
_UNKNOWN_IDLE_SECONDS: Final = 300.0
_MAX_IDLE_SECONDS: Final = 86_400.0
"""Slurm's SuspendTime while it is not known."""


class Reckoning:
    """What is promised to nodes: the forecasts of their jobs; with a budget, the worst case.

    Args:
        stop_of: The stops of slices in the cloud.
    """

    def __init__(
        self, settings: Settings, *, slurm: SlurmBackend, clock: Clock, stop_of: AskStop | None = None
    ) -> None:
        self._settings = settings
        self._slurm = slurm
        self._clock = clock
        self._stop_of = stop_of
        self._idle = _UNKNOWN_IDLE_SECONDS
        self._asked_at = float("-inf")

    def run_seconds(self, queued: QueuedJob | None) -> float:
        """How long a job is reckoned to run in the cloud."""
        if not self._settings.budget.usd:
            return expected_seconds(queued)
        stop = None if queued is None or self._stop_of is None else self._stop_of(queued.job.job_id)
        return worst_seconds(queued, stop)

    @property
    def idle_seconds(self) -> float:
        """How long a node costs money behind its last job: Slurm's SuspendTime, a day at most.

        0 without a budget.
        """
        if not self._settings.budget.usd:
            return 0.0
        now = self._clock.monotonic()
        if now - self._asked_at >= _ASK_SECONDS:
            self._asked_at = now
            self._idle = self._suspend_seconds()
        return self._idle

    def _suspend_seconds(self) -> float:
        try:
            found = self._slurm.partitions()
        except AdvisorError:
            return self._idle
        burst = self._settings.cluster.burst_partition
        seconds = (one.suspend_seconds for one in found if one.name == burst)
        found_seconds = next((one for one in seconds if one is not None), _UNKNOWN_IDLE_SECONDS)
        return min(found_seconds, _MAX_IDLE_SECONDS)
