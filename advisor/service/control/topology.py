"""Whether slurmctld can start jobs in the burst partition: topology/tree knows the nodes of its file only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.model.scheduler import Scheduler
from advisor.model.settings import Settings
from advisor.model.site import SiteState
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Poll
from advisor.service.running.loops import LoopRunner, Step


class TopologyFeature(Feature):
    """Keeps jobs here where topology.conf names no cloud node: slurmctld would refuse them in ``sbatch``.

    Until it has been read once, no job is sent there.
    """

    name = "topology"

    def __init__(
        self, settings: Settings, slurm: Scheduler, named: Callable[[], frozenset[str]], clock: Clock
    ) -> None:
        self._burst = settings.cluster.burst_partition
        self._slurm = slurm
        self._named = named
        self.runners = (LoopRunner(self, clock),)
        self._nodes: frozenset[str] | None = None  # not read yet
        self._snapshot: ClusterSnapshot | None = None

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return 5.0 if self._nodes is None else 60.0

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("read the topology", self.read),)

    def polled(self, poll: Poll) -> None:
        """See :class:`Feature`."""
        self._snapshot = poll.snapshot

    def read(self) -> None:
        """Ask which nodes jobs may have; no answer where all nodes count."""
        config = self._slurm.config()
        is_tree = config.get("TopologyPlugin") == "topology/tree"
        is_asked = is_tree and "topooptional" not in config.get("TopologyParam", "").casefold()
        self._nodes = self._named() if is_asked else frozenset()

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`Feature`."""
        if self._nodes is None:
            return site.sending_none("the topology has not been read yet")
        if not self._nodes or self._snapshot is None:
            return site
        names = {node.name for node in self._snapshot.nodes_of(self._burst)}
        if not names or names & self._nodes:
            return site
        why = f"topology.conf names no node of partition {self._burst}, and slurmctld refuses its jobs"
        return site.sending_none(why)
