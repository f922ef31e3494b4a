"""Users whose associations do not let them into the burst partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from advisor.model.scheduler import Scheduler
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature
from advisor.service.running.loops import LoopRunner, Step

AskPartitions = Callable[[str], Mapping[tuple[str, str], frozenset[str]]]
"""Slurm's name of the cluster to the partitions for which a user has associations in an account; empty: one
for all partitions.
"""


class AssociationsFeature(Feature):
    """Publishes the users, by account, whose jobs slurmctld would refuse in the burst partition.

    It reads in a thread of its own: slurmdbd may take long. Until it has answered once, no job is sent there.
    """

    name = "associations"

    def __init__(self, settings: Settings, slurm: Scheduler, partitions: AskPartitions, clock: Clock) -> None:
        self._burst = settings.cluster.burst_partition
        self._slurm = slurm
        self._ask = partitions
        self.runners = (LoopRunner(self, clock),)
        self._kept_out: frozenset[tuple[str, str]] | None = None  # not read yet

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return 5.0 if self._kept_out is None else 300.0

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("read associations", self.read),)

    def read(self) -> None:
        """Ask whether associations are enforced, and which there are."""
        config = self._slurm.config()
        is_enforced = "associations" in config.get("AccountingStorageEnforce", "")
        found = self._ask(config["ClusterName"]) if is_enforced else {}
        self._kept_out = frozenset(key for key, names in found.items() if names and self._burst not in names)

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`Feature`."""
        if self._kept_out is None:
            return site.sending_none("the associations of users have not been read yet")
        return structs.replace(site, kept_out=self._kept_out)
