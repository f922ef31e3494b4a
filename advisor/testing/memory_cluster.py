"""A cluster in memory: on-premise processors, cloud nodes that are resumed and suspended, and their jobs.

It does what a real slurmctld was seen to do (docs/designs/0008-launch-protocol.md, `advisor.testing.lab` for
the real one): it calls Resume-, Suspend- and ResumeFailProgram, gives nodes up at ResumeTimeout and
SlurmdTimeout, requeues their jobs with the same id and makes them wait, and ends those that may not be
requeued. On-premise there is always room, unless the cluster is given a number of processors: it schedules
those by EASY backfilling.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from advisor.model.cluster import Node, NodePower
from advisor.model.node_sets import expand
from advisor.model.snapshot import PENDING, RUNNING, QueuedJob
from advisor.simulate.pool.rules import Rules
from advisor.testing.memory_accounting import MemoryAccounting
from advisor.testing.memory_on_premise import OnPremise
from advisor.testing.memory_slurm_records import BURST, ENDED, ON_PREMISE, MemoryJob, MemoryNode, SlurmTimes


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
        started: Told of each job that starts on-premise.
        processors: On-premise, under EASY backfilling, where time limits kill; 0: there is always room, and
            limits do not kill.
        rules: Of its backfilling, each processor being a node; None: EASY.
        node_processors: Of a cloud node.
        is_shared: Whether jobs share a cloud node by processors; else one job has it.
        first_job_id: Least id that `submit` gives.
        queue_changes: How often a job has started or ended on-premise.
        cloud_ends: How often a job has ended in the cloud.
        cloud_changes: How often anything else has changed, but for addresses and nodes that power down.
    """

    now: Callable[[], float]
    program: Callable[[str, tuple[str, ...], dict[str, int]], None] = lambda _operation, _nodes, _jobs: None
    answers: Callable[[str, str, float], bool] = lambda _node, _address, _since: True
    node_count: int = 4
    times: SlurmTimes = field(default_factory=SlurmTimes)
    is_away: bool = False
    features: tuple[str, ...] = ("cloud",)
    started: Callable[[MemoryJob], None] = lambda _job: None
    processors: int = 0
    rules: Rules | None = None
    node_processors: int = 4
    is_shared: bool = False
    first_job_id: int = 1
    queue_changes: int = 0
    cloud_changes: int = 0
    cloud_ends: int = 0

    def __post_init__(self) -> None:
        self.nodes = {
            name: MemoryNode(name, features=self.features, active=self.features)
            for name in (f"burst{n}" for n in range(1, self.node_count + 1))
        }
        self.jobs: dict[int, MemoryJob] = {}
        self.on_premise = OnPremise(self.processors, self.now(), self.rules) if self.processors else None
        self.ended_runs = MemoryAccounting()
        self._forgettable = deque[MemoryJob]()
        self._last_id = self.first_job_id - 1

    def submit(self, seconds: float, **changes: Any) -> MemoryJob:
        """Submit a job."""
        job_id = self._last_id = max(self._last_id, max(self.jobs, default=0)) + 1
        job = MemoryJob(job_id=job_id, seconds=seconds, submit_time=self.now(), **changes)
        self.jobs[job_id] = job
        return job

    def submit_array(
        self, tasks: int, seconds: float, *, at_once: int = 0, **changes: Any
    ) -> list[MemoryJob]:
        """Submit an array, of which at most ``at_once`` tasks run at a time; 0: all."""
        first = self.submit(seconds, **changes)
        array = [first, *(self.submit(seconds, **changes) for _ in range(tasks - 1))]
        for task in array:
            task.array_job_id, task.array_limit = first.job_id, at_once
        return array

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
        self._advance_on_premise(now)
        for node in self._awake():
            self._look_at_node(node, now)
        for job in self.jobs.values():
            if job.state in ("CONFIGURING", RUNNING):
                self._look_at_job(job, now)
        self._suspend_idle(now)
        self._start_waiting(now)
        self._advance_on_premise(now)
        while self._forgettable and now - self._forgettable[0].end_time > self.times.forget:
            old = self._forgettable.popleft()
            if old.state in ENDED:
                self.jobs.pop(old.job_id, None)

    @property
    def has_cloud_work(self) -> bool:
        """Whether a cloud node is not powered down, or a job of the burst partition has not ended."""
        return bool(self._awake()) or any(
            job.partition == BURST and job.state not in ENDED for job in self.jobs.values()
        )

    @property
    def is_anything_waiting(self) -> bool:
        """Whether a job waits on-premise for processors."""
        return self.on_premise is not None and self.on_premise.waiting > 0

    @property
    def waiting_processors(self) -> int:
        """Processors that the jobs that wait on-premise ask for."""
        return 0 if self.on_premise is None else self.on_premise.waiting_processors

    def next_event(self) -> float:
        """When something is due that depends on time alone, epoch seconds; the boot of a machine does not."""
        return min(self._due(self.now()), default=math.inf)

    def _due(self, now: float) -> Iterator[float]:
        if self.on_premise is not None:
            yield self.on_premise.next_event
        for node in self._awake():
            yield max(now + 1.0, self._power_change(node) + 1.0)
        for job in self.jobs.values():
            if job.state == RUNNING and job.start_time is not None and job.partition != ON_PREMISE:
                yield max(now + 1.0, job.start_time + self._run_seconds(job))
            elif job.state == PENDING and job.begin_time > now:
                yield job.begin_time

    def _power_change(self, node: MemoryNode) -> float:
        """When a time-out of the node is over, epoch seconds; infinite: none runs."""
        if node.power is NodePower.POWERING_UP:
            return node.since + self.times.resume
        if node.power is NodePower.POWERING_DOWN:
            return node.since + self.times.suspend
        idle = math.inf if node.jobs else node.since + self.times.idle
        if node.silent_since is None or node.is_down:
            return idle
        return min(idle, node.silent_since + self.times.silent)

    def _run_seconds(self, job: MemoryJob) -> float:
        return min(job.run_seconds, job.limit_seconds) if self.processors else job.run_seconds

    def _advance_on_premise(self, now: float) -> None:
        if self.on_premise is None:
            return
        if self.rules is not None:
            self.on_premise.set_other_ends(self._planned_ends())
        for time, job, has_started in self.on_premise.advance(now):
            self.queue_changes += 1
            if has_started:
                self.started(job)
                job.state, job.start_time, job.runs = RUNNING, time, job.runs + 1
            else:
                self._end(job, time)

    def _planned_ends(self) -> list[float]:
        """When the jobs that run in the cloud end by their limits: Slurm's plan knows those, too."""
        return sorted(
            job.start_time + job.limit_seconds
            for job in self.jobs.values()
            if job.partition != ON_PREMISE and job.state == RUNNING and job.start_time is not None
        )

    def _awake(self) -> list[MemoryNode]:
        """Nodes that are not powered down."""
        down = NodePower.DOWN
        return [node for node in self.nodes.values() if node.power is not down]

    def queue_anew(self, job: MemoryJob) -> None:
        """Let a waiting job be queued with what has changed about it; one that runs stays."""
        if self.on_premise is not None and job.state == PENDING:
            self.on_premise.remove(job.job_id)

    def _end_early(self, job: MemoryJob, state: str) -> None:
        now = self.now()
        if self.on_premise is not None:
            self.on_premise.remove(job.job_id)
        if job.start_time is not None:
            self._note_run(job, state, now)
        self._leave(job, now)
        job.state, job.end_time = state, now
        job.ends.append(job.state)
        if math.isfinite(self.times.forget):
            self._forgettable.append(job)

    def _start_waiting(self, now: float) -> None:
        for job in self.jobs.values():
            if job.state == PENDING and not self._is_queued(job) and not self.obstacle(job, now):
                self._start(job, now)

    def _is_queued(self, job: MemoryJob) -> bool:
        return self.on_premise is not None and job.job_id in self.on_premise

    def obstacle(self, job: MemoryJob, now: float) -> str:
        """Slurm's reason why a waiting job may not start yet; empty: it waits for nodes at most.

        Jobs that Slurm has forgotten count as ended well.
        """
        if job.is_held:
            return job.reason
        if job.begin_time > now:
            return "BeginTime"
        states = [self.jobs[other].state for other in (*job.after, *job.after_ok) if other in self.jobs]
        if any(state not in ENDED for state in states):
            return "Dependency"
        if any(self.jobs[other].state != "COMPLETED" for other in job.after_ok if other in self.jobs):
            return "DependencyNeverSatisfied"
        if job.array_limit and not self._is_queued(job):
            others = (each for each in self.jobs.values() if each.array_job_id == job.array_job_id)
            begun = sum(self._is_queued(each) or each.state in ("CONFIGURING", RUNNING) for each in others)
            return "JobArrayTaskLimit" if begun >= job.array_limit else ""
        return ""

    def _look_at_node(self, node: MemoryNode, now: float) -> None:
        is_booting = node.power is NodePower.POWERING_UP
        responds = (is_booting or node.power is NodePower.UP) and self.answers(
            node.name, node.address, node.since if is_booting else 0.0
        )
        if node.power is NodePower.POWERING_UP:
            if responds:
                self.cloud_changes += 1
                node.power, node.since, node.silent_since = NodePower.UP, now, None
            elif now - node.since > self.times.resume:
                self.cloud_changes += 1
                self._free(node)
                node.power, node.is_down, node.since, node.reason = NodePower.DOWN, True, now, "ResumeTimeout"
                self.program("resume_fail", (node.name,), {})
        elif node.power is NodePower.UP:
            self.cloud_changes += responds == (node.silent_since is not None)
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
        if self.on_premise is not None and job.partition == ON_PREMISE:
            return
        nodes = [self.nodes[name] for name in job.nodes]
        if job.state == "CONFIGURING" and all(node.power is NodePower.UP for node in nodes):
            self.cloud_changes += 1
            job.state, job.start_time, job.runs = RUNNING, now, job.runs + 1
        if job.state != RUNNING or any(node.silent_since is not None for node in nodes):
            return
        seconds = self._run_seconds(job)
        if job.start_time is not None and now - job.start_time >= seconds:
            self.cloud_ends += 1
            self._end(job, job.start_time + seconds)

    def _end(self, job: MemoryJob, time: float) -> None:
        """A job's last run ends at ``time``, epoch seconds."""
        is_killed = job.run_seconds > self._run_seconds(job)
        job.state = "TIMEOUT" if is_killed else "FAILED" if job.fails else "COMPLETED"
        job.end_time = time
        job.ends.append(job.state)
        self._note_run(job, job.state, time)
        self._leave(job, self.now())
        if math.isfinite(self.times.forget):
            self._forgettable.append(job)

    def _note_run(self, job: MemoryJob, state: str, end: float) -> None:
        start = end if job.start_time is None else job.start_time
        self.ended_runs.add(job, state, start, end)
        if job.partition != ON_PREMISE:
            job.cloud_core_seconds += job.size * (end - start)

    def _leave(self, job: MemoryJob, now: float) -> None:
        for node in (self.nodes[name] for name in job.nodes):
            node.jobs = {other: cores for other, cores in node.jobs.items() if other != job.job_id}
            if node.power is NodePower.UP:  # one that boots goes on booting, and is idle afterwards
                node.since = now
        job.nodes = ()

    def _suspend_idle(self, now: float) -> None:
        """Power idle nodes down; SuspendProgram is called once for all of them."""
        idle = [
            node
            for node in self._awake()
            if node.power is NodePower.UP
            and not node.jobs
            and (node.powers_down_after_job or now - node.since > self.times.idle)
        ]
        if idle:
            self._power_down(*idle)

    def _power_down(self, *nodes: MemoryNode) -> None:
        for node in nodes:
            node.power, node.since, node.silent_since = NodePower.POWERING_DOWN, self.now(), None
            node.powers_down_after_job = False
        self.program("suspend", tuple(node.name for node in nodes), {})

    def _start(self, job: MemoryJob, now: float) -> None:
        if ON_PREMISE in job.partition.split(","):
            job.partition = ON_PREMISE
        if job.partition == ON_PREMISE:
            if self.on_premise is None:
                job.state, job.start_time, job.runs = RUNNING, now, job.runs + 1
            elif job.job_id not in self.on_premise:
                self.on_premise.add(job)
            return
        wanted = self._nodes_wanted(job)
        excluded = set(expand(job.excluded)) if job.excluded else set()
        wanted_features = set(job.wanted_features)
        cores = -(-job.size // wanted) if self.is_shared else self.node_processors
        powers = {NodePower.UP, NodePower.DOWN} | ({NodePower.POWERING_UP} if self.is_shared else set())
        free = [
            node
            for node in self.nodes.values()
            if sum(node.jobs.values()) + cores <= self.node_processors
            and node.power in powers
            and not (node.is_down or node.is_draining or node.powers_down_after_job)
            and node.silent_since is None
            and node.name not in excluded
            and wanted_features <= set(node.active)
        ]
        # nodes that are up come first, whatever they weigh
        free.sort(key=lambda node: (node.power is NodePower.DOWN, node.weight))
        liked = [node for node in free if set(filter(None, job.prefer.split("&"))) <= set(node.active)]
        if len(liked) >= wanted:
            free = liked
        if len(free) < wanted:
            return
        self.cloud_changes += 1
        chosen = free[:wanted]
        job.nodes = job.had = tuple(node.name for node in chosen)
        job.state, job.start_time = "CONFIGURING", now
        asleep = [node for node in chosen if node.power is NodePower.DOWN]
        for node in chosen:
            node.jobs = {**node.jobs, job.job_id: cores}
        for node in asleep:
            node.power, node.since = NodePower.POWERING_UP, now
        if asleep:
            names = tuple(node.name for node in asleep)
            self.program("resume", names, dict.fromkeys(names, job.job_id))

    def _nodes_wanted(self, job: MemoryJob) -> int:
        return max(job.nodes_wanted, -(-job.processors // self.node_processors))

    def _free(self, node: MemoryNode) -> None:
        """The node is lost to its jobs, which are requeued, or end where they may not be."""
        for job_id in node.jobs:
            self._lose_node(self.jobs[job_id])

    def _lose_node(self, job: MemoryJob) -> None:
        if job.state == RUNNING and job.start_time is not None:
            job.interruptions += 1
            job.lost_seconds += self.now() - job.start_time
        if job.may_requeue:
            self._requeue(job)
        else:
            self.cloud_changes += 1
            self._end_early(job, "NODE_FAIL")

    def _requeue(self, job: MemoryJob) -> None:
        now = self.now()
        self.cloud_changes += 1
        if self.on_premise is not None:
            self.on_premise.remove(job.job_id)
        if job.state == RUNNING and job.start_time is not None:
            self._note_run(job, "REQUEUED", now)
        self._leave(job, now)
        job.state, job.start_time, job.restarts = PENDING, None, job.restarts + 1
        job.queued_at = now
        job.begin_time = job.ages_since = now + self.times.requeue
