"""Whether slurmctld can start jobs in the burst partition: topology/tree knows the nodes of its file only."""

from __future__ import annotations

from collections.abc import Callable

from advisor.model.scheduler import Scheduler
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Poll, ReadFirst


class TopologyFeature(ReadFirst):
    """Keeps jobs here where topology.conf names no cloud node: slurmctld would refuse them in ``sbatch``."""

    name = "topology"

    def __init__(
        self, settings: Settings, slurm: Scheduler, named: Callable[[], frozenset[str]], clock: Clock
    ) -> None:
        unread = "the topology has not been read yet"
        super().__init__(clock, step="read the topology", unread=unread, period_seconds=60.0)
        self._burst = settings.cluster.burst_partition
        self._slurm = slurm
        self._named = named
        self._nodes: frozenset[str] = frozenset()
        self._snapshot: ClusterSnapshot | None = None

    def polled(self, poll: Poll) -> None:
        """See :class:`~advisor.service.running.feature.Feature`."""
        self._snapshot = poll.snapshot

    def ask(self) -> None:
        """Ask which nodes jobs may have; no answer where all nodes count."""
        config = self._slurm.config()
        is_tree = config.get("TopologyPlugin") == "topology/tree"
        is_asked = is_tree and "topooptional" not in config.get("TopologyParam", "").casefold()
        self._nodes = self._named() if is_asked else frozenset()

    def publish_read(self, site: SiteState) -> SiteState:
        """See :class:`ReadFirst`."""
        if not self._nodes or self._snapshot is None:
            return site
        names = {node.name for node in self._snapshot.nodes_of(self._burst)}
        if not names or names & self._nodes:
            return site
        why = f"topology.conf names no node of partition {self._burst}, and slurmctld refuses its jobs"
        return site.sending_none(why)
