"""The burst partition's own QOS, whose limits hold for moved jobs beside those of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import structs

from advisor.model.burst_qos import BurstQos
from advisor.model.job import ANYBODY
from advisor.model.scheduler import Scheduler
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Poll
from advisor.service.running.loops import LoopRunner, Step


class BurstQosFeature(Feature):
    """Publishes its limits, and the jobs that it counts.

    It reads in a thread of its own: slurmdbd may take long.
    """

    name = "burst qos"
    period_seconds = 60.0

    def __init__(
        self, settings: Settings, slurm: Scheduler, limits: Callable[[str], BurstQos], clock: Clock
    ) -> None:
        self._burst = settings.cluster.burst_partition
        self._slurm = slurm
        self._ask = limits
        self.runners = (LoopRunner(self, clock),)
        self._qos = ""
        self._limits: BurstQos | None = None
        self._snapshot: ClusterSnapshot | None = None

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("read the QOS of the burst partition", self.read),)

    def polled(self, poll: Poll) -> None:
        """See :class:`Feature`."""
        self._snapshot = poll.snapshot

    def read(self) -> None:
        """Ask whether limits are enforced, and which there are."""
        enforced = self._slurm.config().get("AccountingStorageEnforce", "")
        there = (one.qos for one in self._slurm.partitions() if one.name == self._burst)
        qos = next(there, "") if "limits" in enforced or "safe" in enforced else ""
        self._qos, self._limits = qos, self._ask(qos) if qos else None

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`Feature`."""
        if self._limits is None or self._snapshot is None:
            return site
        counted = Counter[str]()
        for queued in self._snapshot.jobs:
            if self._burst in queued.partitions or queued.job.qos == self._qos:
                counted.update(dict.fromkeys((ANYBODY, *queued.job.payers), queued.job.array_tasks))
        return structs.replace(site, burst_qos=self._limits.with_jobs(counted))
