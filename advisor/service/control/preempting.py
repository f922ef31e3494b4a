"""Jobs that may preempt running ones, so that they start here at once and need no cloud.

Forecasts know nothing of preemption: to them a cluster that is full of a scavenger partition's jobs is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import structs

from advisor.model.job import Job
from advisor.model.scheduler import Scheduler
from advisor.model.settings import Settings
from advisor.model.site import ANY_QOS, SiteState
from advisor.model.snapshot import ClusterSnapshot, Partition, QueuedJob
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Poll
from advisor.service.running.loops import LoopRunner, Step
from advisor.slurm.records import seconds

AskQos = Callable[[], Mapping[str, frozenset[str]]]
"""The QOS whose jobs each QOS may preempt."""


class PreemptingFeature(Feature):
    """Publishes the processors that jobs of each partition and QOS may take from running jobs.

    It reads slurm.conf and the QOS in a thread of its own: slurmdbd may take long.
    """

    name = "preemption"
    period_seconds = 60.0

    def __init__(self, settings: Settings, slurm: Scheduler, qos: AskQos, clock: Clock) -> None:
        self._ours = settings.cluster.on_premise_partitions
        self._slurm = slurm
        self._ask_qos = qos
        self.runners = (LoopRunner(self, clock),)
        self._exempt_seconds = 0.0
        self._partitions: Mapping[str, Partition] = {}
        self._qos: Mapping[str, frozenset[str]] = {}
        self._snapshot: ClusterSnapshot | None = None

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("read what preempts what", self.read),)

    def polled(self, poll: Poll) -> None:
        """See :class:`Feature`."""
        self._snapshot = poll.snapshot

    def read(self) -> None:
        """Ask which jobs may preempt which."""
        config = self._slurm.config()
        kind = config.get("PreemptType", "") if config.get("PreemptMode") != "OFF" else ""
        self._exempt_seconds = seconds(config.get("PreemptExemptTime", "")) or 0.0
        by_partition = kind == "preempt/partition_prio"
        self._partitions = {each.name: each for each in self._slurm.partitions()} if by_partition else {}
        self._qos = self._ask_qos() if kind == "preempt/qos" else {}

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`Feature`."""
        if self._snapshot is None or not (self._partitions or self._qos):
            return site
        found = {name: room for name in self._ours if (room := self._room(name, self._snapshot))}
        return structs.replace(site, preemptable=found)

    def may_preempt(self, job: Job, name: str) -> bool:
        """Whether a job in a partition may preempt others, whichever run at present."""
        if self._qos.get(job.qos or ANY_QOS):
            return True
        nodes = () if self._snapshot is None or not self._partitions else self._snapshot.nodes
        beside = {other for node in nodes if name in node.partitions for other in node.partitions}
        return any(self._is_lower(other, name) for other in beside)

    def _room(self, name: str, snapshot: ClusterSnapshot) -> dict[str, int]:
        """By QOS with something to preempt, the processors for new jobs of a partition, idle ones included.

        Those that jobs of that QOS wait for are not.
        """
        nodes = [node for node in snapshot.nodes_of(name) if not (node.is_down or node.is_draining)]
        on_nodes = (queued for node in nodes for queued in snapshot.jobs_on.get(node.name, ()))
        holding = {queued.job.job_id: queued for queued in on_nodes if queued.uses_processors}.values()
        idle = max(0, sum(node.processors for node in nodes) - _processors(holding))
        since = snapshot.time - self._exempt_seconds
        running = [queued for queued in holding if (queued.start_time or snapshot.time) <= since]
        waiting = [queued for queued in snapshot.jobs if queued.is_queued and name in queued.partitions]
        found = {}
        if self._partitions:
            lower = [queued for queued in running if self._is_lower(queued.partitions[0], name)]
            found[ANY_QOS] = _processors(lower), _processors(waiting)
        for qos, others in self._qos.items():
            its = [queued for queued in waiting if queued.job.qos == qos]
            found[qos] = _processors([q for q in running if q.job.qos in others]), _processors(its)
        return {qos: idle + taken - asked for qos, (taken, asked) in found.items() if taken}

    def _is_lower(self, its: str, name: str) -> bool:
        own, other = self._partitions.get(name), self._partitions.get(its)
        return own is not None and other is not None and other.is_preempted and other.tier < own.tier


def _processors(jobs: Iterable[QueuedJob]) -> int:
    return sum(queued.job.processors * queued.job.array_tasks for queued in jobs)
