"""Limits of the burst partition's own QOS and associations, and of the QOS of on-premise partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import structs

from advisor.model.burst_limits import BurstLimits, counted_as
from advisor.model.scheduler import Scheduler
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Poll, ReadFirst

AskLimits = Callable[[str, str, str, Mapping[str, str]], BurstLimits]
"""Gives the limits, by Slurm's name of the cluster, the partition, its QOS, and those of partitions here."""


class BurstLimitsFeature(ReadFirst):
    """Publishes these limits, and the jobs that they count."""

    name = "burst limits"

    def __init__(self, settings: Settings, slurm: Scheduler, limits: AskLimits, clock: Clock) -> None:
        self._burst = settings.cluster.burst_partition
        self._here = settings.cluster.on_premise_partitions
        unread = f"the limits of partition {self._burst} have not been read yet"
        super().__init__(clock, step="read the limits there", unread=unread, period_seconds=60.0)
        self._slurm = slurm
        self._ask = limits
        self._qos = ""
        self._limits: BurstLimits | None = None
        self._snapshot: ClusterSnapshot | None = None

    def polled(self, poll: Poll) -> None:
        """See :class:`~advisor.service.running.feature.Feature`."""
        self._snapshot = poll.snapshot

    def ask(self) -> None:
        """Ask whether limits are enforced, and which there are."""
        config = self._slurm.config()
        enforced = config.get("AccountingStorageEnforce", "")
        found = BurstLimits()
        if "limits" in enforced or "safe" in enforced:
            qos_of = {one.name: one.qos for one in self._slurm.partitions() if one.qos}
            self._qos = qos_of.get(self._burst, "")
            home = {name: qos_of[name] for name in self._here if name in qos_of}
            found = self._ask(config["ClusterName"], self._burst, self._qos, home)
        self._limits = None if found == BurstLimits() else found

    def publish_read(self, site: SiteState) -> SiteState:
        """See :class:`ReadFirst`."""
        if self._limits is None or self._snapshot is None:
            return site
        counted = Counter[str]()
        for queued in self._snapshot.jobs:
            if self._burst in queued.partitions or (self._qos and queued.job.qos == self._qos):
                counted.update(dict.fromkeys(counted_as(queued.job.payers), queued.job.array_tasks))
        return structs.replace(site, burst_limits=structs.replace(self._limits, jobs=dict(counted)))
