"""A cluster in memory, as far as power saving goes: nodes that are resumed and suspended, and their jobs.

It does what a real slurmctld was seen to do (docs/designs/0008-launch-protocol.md, `advisor.testing.lab` for
the real one): it calls Resume-, Suspend- and ResumeFailProgram, gives nodes up at ResumeTimeout and
SlurmdTimeout, requeues their jobs with the same id and makes them wait. On-premise there is always room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from advisor.model.cluster import Node, NodePower
from advisor.slurm.node_sets import expand
from advisor.slurm.protocol import PENDING, RUNNING, QueuedJob
from advisor.testing.memory_slurm_records import ENDED, ON_PREMISE, MemoryJob, MemoryNode, SlurmTimes


@dataclass
class MemoryCluster:
    """Nodes and jobs, which change when `advance` is called.

    Attributes:
        now: Epoch seconds.
        program: Resume-, Suspend-, ResumeFailProgram: ``(operation, nodes, jobs by node)``.
        answers: Whether a node's slurmd answers at an address: ``(node, address, since)``. A node that powers
            up must have booted after it was asked for; slurmctld ignores a machine that runs already.
        times: Time-outs.
        is_away: slurmctld does not run: no call is answered, and nothing starts.
        features: Features of every node, as in slurm.conf.
    """

    now: Callable[[], float]
    program: Callable[[str, tuple[str, ...], dict[str, int]], None] = lambda _operation, _nodes, _jobs: None
    answers: Callable[[str, str, float], bool] = lambda _node, _address, _since: True
    node_count: int = 4
    times: SlurmTimes = field(default_factory=SlurmTimes)
    is_away: bool = False
    features: tuple[str, ...] = ("cloud",)

    def __post_init__(self) -> None:
        self.nodes = {
            name: MemoryNode(name, features=self.features, active=self.features)
            for name in (f"burst{n}" for n in range(1, self.node_count + 1))
        }
        self.jobs: dict[int, MemoryJob] = {}

    def submit(self, seconds: float, **changes: Any) -> MemoryJob:
        """Submit a job."""
        job_id = max(self.jobs, default=0) + 1
        job = MemoryJob(job_id=job_id, seconds=seconds, submit_time=self.now(), **changes)
        self.jobs[job_id] = job
        return job

    def show(self, nodes: Iterable[Node], jobs: Iterable[QueuedJob] = ()) -> None:
        """Take over nodes and jobs as a snapshot has them; jobs that have ended stay known."""
        self.nodes = {node.name: MemoryNode.of(node) for node in nodes}
        ended = {job_id: job for job_id, job in self.jobs.items() if job.state in ENDED}
        shown = {queued.job.job_id: MemoryJob.of(queued, self.jobs.get(queued.job.job_id)) for queued in jobs}
        self.jobs = ended | shown

    def advance(self) -> None:
        """Do what is due."""
        if self.is_away:
            return
        now = self.now()
        for node in self.nodes.values():
            self._look_at_node(node, now)
        for job in self.jobs.values():
            if job.state in ("CONFIGURING", RUNNING):
                self._look_at_job(job, now)
        for node in self.nodes.values():
            self._suspend_if_idle(node, now)
        for job in self.jobs.values():
            if job.state == PENDING and job.begin_time <= now:
                self._start(job, now)

    def _look_at_node(self, node: MemoryNode, now: float) -> None:
        is_booting = node.power is NodePower.POWERING_UP
        responds = (is_booting or node.power is NodePower.UP) and self.answers(
            node.name, node.address, node.since if is_booting else 0.0
        )
        if node.power is NodePower.POWERING_UP:
            if responds:
                node.power, node.since, node.silent_since = NodePower.UP, now, None
            elif now - node.since > self.times.resume:
                self._free(node)
                node.power, node.is_down, node.since, node.reason = NodePower.DOWN, True, now, "ResumeTimeout"
                self.program("resume_fail", (node.name,), {})
        elif node.power is NodePower.UP:
            node.silent_since = None if responds else node.silent_since or now
            if node.silent_since is not None and now - node.silent_since > self.times.silent:
                self._free(node)
                node.is_down = True
        elif node.power is NodePower.POWERING_DOWN and now - node.since > self.times.suspend:
            # usable again at once: SlurmctldParameters has idle_on_node_suspend; the rest stays as it was set
            self.nodes[node.name] = MemoryNode(
                node.name, since=now, weight=node.weight, features=node.features, active=node.active
            )

    def _look_at_job(self, job: MemoryJob, now: float) -> None:
        nodes = [self.nodes[name] for name in job.nodes]
        if job.state == "CONFIGURING" and all(node.power is NodePower.UP for node in nodes):
            job.state, job.start_time, job.runs = RUNNING, now, job.runs + 1
        if job.state != RUNNING or any(node.silent_since is not None for node in nodes):
            return
        if job.start_time is not None and now - job.start_time >= job.seconds:
            job.state = "FAILED" if job.fails else "COMPLETED"
            job.end_time = job.start_time + job.seconds
            job.ends.append(job.state)
            self._leave(job, now)

    def _leave(self, job: MemoryJob, now: float) -> None:
        for name in job.nodes:
            self.nodes[name].job_id, self.nodes[name].since = None, now
        job.nodes = ()

    def _suspend_if_idle(self, node: MemoryNode, now: float) -> None:
        if node.power is not NodePower.UP or node.job_id is not None:
            return
        if node.powers_down_after_job or now - node.since > self.times.idle:
            self._power_down(node)

    def _power_down(self, node: MemoryNode) -> None:
        node.power, node.since = NodePower.POWERING_DOWN, self.now()
        node.powers_down_after_job = False
        self.program("suspend", (node.name,), {})

    def _start(self, job: MemoryJob, now: float) -> None:
        if job.partition == ON_PREMISE:
            job.state, job.start_time, job.runs = RUNNING, now, job.runs + 1
            return
        excluded = set(expand(job.excluded)) if job.excluded else set()
        free = [
            node
            for node in self.nodes.values()
            if node.job_id is None
            and node.power in (NodePower.UP, NodePower.DOWN)
            and not (node.is_down or node.is_draining or node.powers_down_after_job)
            and node.silent_since is None
            and node.name not in excluded
        ]
        # nodes that are up come first, whatever they weigh
        free.sort(key=lambda node: (node.power is NodePower.DOWN, node.weight))
        liked = [node for node in free if set(filter(None, job.prefer.split("&"))) <= set(node.active)]
        if len(liked) >= job.nodes_wanted:
            free = liked
        if len(free) < job.nodes_wanted:
            return
        chosen = free[: job.nodes_wanted]
        job.nodes = job.had = tuple(node.name for node in chosen)
        job.state, job.start_time = "CONFIGURING", now
        asleep = [node for node in chosen if node.power is NodePower.DOWN]
        for node in chosen:
            node.job_id = job.job_id
        for node in asleep:
            node.power, node.since = NodePower.POWERING_UP, now
        if asleep:
            names = tuple(node.name for node in asleep)
            self.program("resume", names, dict.fromkeys(names, job.job_id))

    def _free(self, node: MemoryNode) -> None:
        """The node is lost to its job, which is requeued."""
        if node.job_id is not None:
            self._requeue(self.jobs[node.job_id])

    def _requeue(self, job: MemoryJob) -> None:
        now = self.now()
        self._leave(job, now)
        job.state, job.start_time, job.restarts = PENDING, None, job.restarts + 1
        job.begin_time = now + self.times.requeue
