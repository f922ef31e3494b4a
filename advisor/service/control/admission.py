"""What slurmctld lets into the burst partition: by associations, limits, and the nodes of topology.conf."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from msgspec import structs

from advisor.model.burst_limits import BurstLimits, counted_as
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.control.connections import Connections
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Poll
from advisor.service.running.loops import LoopRunner, Step

_PERIOD_SECONDS: Final = 60.0
_UNREAD_SECONDS: Final = 5.0

_AskPartitions: TypeAlias = Callable[[str], Mapping[tuple[str, str], frozenset[str]]]
_AskLimits: TypeAlias = Callable[[str, str, str, Mapping[str, str]], BurstLimits]


class AdmissionFeature(Feature):
    """Publishes which jobs slurmctld would refuse or hold in the burst partition.

    No job is sent there before all of it is known. A thread of its own reads it, for slurmdbd may take long,
    and every five seconds until that has succeeded.
    """

    name = "admission"

    def __init__(self, settings: Settings, connections: Connections, clock: Clock) -> None:
        self.runners = (LoopRunner(self, clock),)
        self._burst = settings.cluster.burst_partition
        self._here = settings.cluster.on_premise_partitions
        self._slurm = connections.slurm
        self._kept_out: frozenset[tuple[str, str]] = frozenset()
        self._qos = ""
        self._limits = BurstLimits()
        self._in_topology: frozenset[str] = frozenset()
        self._snapshot: ClusterSnapshot | None = None
        self._steps: list[Step] = []
        self._unread: dict[str, str] = {}
        if (partitions := connections.partitions_of_users) is not None:
            unread = "the associations of users have not been read yet"
            self._add("read associations", partial(self._read_associations, partitions), unread)
        if (limits := connections.limits_in_partition) is not None:
            unread = f"the limits of partition {self._burst} have not been read yet"
            self._add("read the limits there", partial(self._read_limits, limits), unread)
        if (named := connections.nodes_in_topology) is not None:
            unread = "the topology has not been read yet"
            self._add("read the topology", partial(self._read_topology, named), unread)

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return _UNREAD_SECONDS if self._unread else _PERIOD_SECONDS

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return self._steps

    def polled(self, poll: Poll) -> None:
        """See :class:`~advisor.service.running.feature.Feature`."""
        self._snapshot = poll.snapshot

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`~advisor.service.running.feature.Feature`."""
        for why in tuple(self._unread.values()):
            site = site.sending_none(why)
        site = structs.replace(site, kept_out=self._kept_out)
        if self._snapshot is None:
            return site
        if self._in_topology and self._knows_no_node(self._snapshot):
            why = f"topology.conf names no node of partition {self._burst}, and slurmctld refuses its jobs"
            site = site.sending_none(why)
        return structs.replace(site, burst_limits=self._limits_now(self._snapshot))

    def _add(self, name: str, read: Callable[[], None], unread: str) -> None:
        """Add a step; ``unread`` says why no job is sent there before it has succeeded once."""

        def run() -> None:
            read()
            self._unread.pop(name, None)

        self._unread[name] = unread
        self._steps.append(Step(name, run))

    def _read_associations(self, ask: _AskPartitions) -> None:
        """Ask who is confined to other partitions: to none of these, a user may use all."""
        config = self._slurm.config()
        is_enforced = "associations" in config.get("AccountingStorageEnforce", "")
        found = ask(config["ClusterName"]) if is_enforced else {}
        self._kept_out = frozenset(key for key, names in found.items() if names and self._burst not in names)

    def _read_limits(self, ask: _AskLimits) -> None:
        """Ask for the limits of the partition's own QOS and associations, and of the QOS of those here."""
        config = self._slurm.config()
        enforced = config.get("AccountingStorageEnforce", "")
        found = BurstLimits()
        if "limits" in enforced or "safe" in enforced:
            qos_of = {one.name: one.qos for one in self._slurm.partitions() if one.qos}
            self._qos = qos_of.get(self._burst, "")
            home = {name: qos_of[name] for name in self._here if name in qos_of}
            found = ask(config["ClusterName"], self._burst, self._qos, home)
        self._limits = found

    def _read_topology(self, ask: Callable[[], frozenset[str]]) -> None:
        """Ask which nodes topology/tree knows: slurmctld refuses a job for others in ``sbatch``."""
        config = self._slurm.config()
        is_tree = config.get("TopologyPlugin") == "topology/tree"
        is_asked = is_tree and "topooptional" not in config.get("TopologyParam", "").casefold()
        self._in_topology = ask() if is_asked else frozenset()

    def _knows_no_node(self, snapshot: ClusterSnapshot) -> bool:
        there = {node.name for node in snapshot.nodes_of(self._burst)}
        return bool(there) and not there & self._in_topology

    def _limits_now(self, snapshot: ClusterSnapshot) -> BurstLimits | None:
        """The limits with the jobs that they count; None where there are none."""
        if self._limits == BurstLimits():
            return None
        counted = Counter[str]()
        for queued in snapshot.jobs:
            if self._burst in queued.partitions or (self._qos and queued.job.qos == self._qos):
                counted.update(dict.fromkeys(counted_as(queued.job.payers), queued.job.array_tasks))
        return structs.replace(self._limits, jobs=dict(counted))
