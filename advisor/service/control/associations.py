"""Users whose associations do not let them into the burst partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import structs

from advisor.model.scheduler import Scheduler
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.service.running.clock import Clock
from advisor.service.running.feature import ReadFirst

AskPartitions = Callable[[str], Mapping[tuple[str, str], frozenset[str]]]
"""Slurm's name of the cluster to the partitions for which a user has associations in an account; empty: one
for all partitions.
"""


class AssociationsFeature(ReadFirst):
    """Publishes the users, by account, whose jobs slurmctld would refuse in the burst partition."""

    name = "associations"

    def __init__(self, settings: Settings, slurm: Scheduler, partitions: AskPartitions, clock: Clock) -> None:
        unread = "the associations of users have not been read yet"
        super().__init__(clock, step="read associations", unread=unread, period_seconds=300.0)
        self._burst = settings.cluster.burst_partition
        self._slurm = slurm
        self._ask = partitions
        self._kept_out: frozenset[tuple[str, str]] = frozenset()

    def ask(self) -> None:
        """Ask whether associations are enforced, and which there are."""
        config = self._slurm.config()
        is_enforced = "associations" in config.get("AccountingStorageEnforce", "")
        found = self._ask(config["ClusterName"]) if is_enforced else {}
        self._kept_out = frozenset(key for key, names in found.items() if names and self._burst not in names)

    def publish_read(self, site: SiteState) -> SiteState:
        """See :class:`ReadFirst`."""
        return structs.replace(site, kept_out=self._kept_out)
