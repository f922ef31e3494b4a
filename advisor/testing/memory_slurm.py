"""slurmctld in memory, as far as power saving goes: nodes that are resumed and suspended, and their jobs.

It does what a real one was seen to do (docs/designs/0008-launch-protocol.md, `advisor.testing.lab` for the
real one): calls Resume-, Suspend- and ResumeFailProgram, gives nodes up at ResumeTimeout and SlurmdTimeout,
requeues their jobs with the same id and makes them wait. It refuses fields, states and changes that Slurm
would refuse, so that a misspelt one fails a test. On-premise there is always room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from advisor.model.cluster import Node, NodePower
from advisor.model.errors import RetryLater
from advisor.model.job import Job
from advisor.slurm.node_sets import expand
from advisor.slurm.protocol import PENDING, RUNNING, QueuedJob, SlurmSnapshot
from advisor.slurm.running_jobs import JobEnd, NodeConstraints
from advisor.testing.memory_slurm_records import (
    BURST,
    ENDED,
    ON_PREMISE,
    MemoryJob,
    MemoryNode,
    SlurmTimes,
    as_node,
)

__all__ = ["BURST", "ENDED", "ON_PREMISE", "MemoryJob", "MemoryNode", "MemorySlurm", "SlurmTimes"]

_JOB_FIELDS: Final = frozenset({"partition", "starttime", "timelimit", "features", "excnodelist", "prefer"})


@dataclass
class MemorySlurm:
    """A cluster. Takes the place of `advisor.slurm.protocol.SlurmBackend` before the loops of the cloud.

    Attributes
    ----------
    now : callable
        Epoch seconds.
    program : callable
        Resume-, Suspend-, ResumeFailProgram: ``(operation, nodes, jobs by node)``.
    answers : callable
        Whether a node's slurmd answers at an address: ``(node, address, since)``. One that powers up must
        have booted since it was asked for: of a machine that runs already slurmctld thinks nothing.
    times : SlurmTimes
        Time-outs.
    observe : callable
        Told each call as ``(name, stage)``, stage ``before`` or ``after``; it may raise.
    powered_down : callable
        Told of each node that somebody forces down, before it is; it may raise.
    is_away : bool
        slurmctld does not run: no call is answered, and nothing starts.
    features : tuple of str
        Of every node, as slurm.conf says.
    told : list of (str, tuple, dict)
        Each change that was carried out: ``node``, ``job``, ``requeue``, ``release`` or ``warn``; names or
        ids; what was set.
    """

    now: Callable[[], float]
    program: Callable[[str, tuple[str, ...], dict[str, int]], None] = lambda _operation, _nodes, _jobs: None
    answers: Callable[[str, str, float], bool] = lambda _node, _address, _since: True
    node_count: int = 4
    times: SlurmTimes = field(default_factory=SlurmTimes)
    observe: Callable[[str, str], None] = lambda _name, _stage: None
    powered_down: Callable[[MemoryNode], None] = lambda _node: None
    is_away: bool = False
    features: tuple[str, ...] = ("cloud",)
    told: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes = {
            name: MemoryNode(name, features=self.features, active=self.features)
            for name in (f"burst{n}" for n in range(1, self.node_count + 1))
        }
        self.jobs: dict[int, MemoryJob] = {}
        self._faults: deque[tuple[str, str]] = deque()

    # ------------------------------------------------------------------ what a test does

    def submit(self, seconds: float, **changes: Any) -> MemoryJob:
        """Submit a job."""
        job_id = len(self.jobs) + 1
        job = MemoryJob(job_id=job_id, seconds=seconds, submit_time=self.now(), **changes)
        self.jobs[job_id] = job
        return job

    def show(self, nodes: Iterable[Node], jobs: Iterable[QueuedJob] = ()) -> None:
        """Take over nodes and jobs as a snapshot has them; jobs that have ended stay known."""
        self.nodes = {node.name: MemoryNode.of(node) for node in nodes}
        ended = {job_id: job for job_id, job in self.jobs.items() if job.state in ENDED}
        shown = {queued.job.job_id: MemoryJob.of(queued, self.jobs.get(queued.job.job_id)) for queued in jobs}
        self.jobs = ended | shown

    def fail(self, how: str, times: int = 1, *, call: str = "") -> None:
        """Let the next calls, or those of one name, fail.

        ``never-arrives``, or ``answer-lost``: the call is carried out, and its answer is lost.
        """
        self._faults.extend([(how, call)] * times)

    def heal(self) -> None:
        """Answer again."""
        self._faults.clear()
        self.is_away = False

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

    # ------------------------------------------------------------------ what slurmctld does

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

    # ------------------------------------------------------------------ what slurmctld is asked and told

    def _call(self, name: str, do: Callable[[], Any]) -> Any:
        self.observe(name, "before")
        how = self._fault(name)
        if self.is_away or how == "never-arrives":
            raise RetryLater("slurmctld does not answer", code="slurm.command_failed")
        answer = do()
        self.observe(name, "after")
        if how:
            raise RetryLater("slurmctld's answer was lost", code="slurm.timeout")
        return answer

    def _fault(self, name: str) -> str:
        found = next((fault for fault in self._faults if fault[1] in ("", name)), None)
        if found is None:
            return ""
        self._faults.remove(found)
        return found[0]

    def snapshot(self, now: float) -> SlurmSnapshot:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""

        def look() -> SlurmSnapshot:
            fixed = Node(
                name="fixed1",
                states=frozenset({"MIXED"}),
                processors=4096,
                memory_mb=1 << 20,
                partitions=(ON_PREMISE,),
            )
            cloud = tuple(map(as_node, self.nodes.values()))
            jobs = tuple(self._as_queued(job) for job in self.jobs.values() if job.state not in ENDED)
            return SlurmSnapshot(time=now, jobs=jobs, nodes=(fixed, *cloud))

        found: SlurmSnapshot = self._call("snapshot", look)
        return found

    def update_node(
        self,
        nodes: Collection[str],
        *,
        state: str | None = None,
        reason: str | None = None,
        address: str | None = None,
        hostname: str | None = None,
        weight: int | None = None,
        features: Sequence[str] | None = None,
    ) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`; one field more is one that is not known here."""

        def update() -> None:
            for node in self._known(nodes):
                node.weight = node.weight if weight is None else weight
                if features is not None:
                    if not set(features) <= set(node.features):
                        raise RetryLater("Invalid feature specification", code="slurm.command_failed")
                    node.active = tuple(features)
                node.address = address or node.address
                node.reason = reason or node.reason
                if state is not None:
                    self._set_state(node, state)
            said = {
                "state": state,
                "reason": reason,
                "address": address,
                "hostname": hostname,
                "weight": weight,
                "features": features,
            }
            changes = {name: value for name, value in said.items() if value is not None}
            self.told.append(("node", tuple(nodes), changes))

        if hostname is not None and {hostname} != set(nodes):
            msg = f"{hostname} is not the name of {nodes}"
            raise ValueError(msg)
        self._call("update_node", update)

    def _known(self, names: Iterable[str]) -> list[MemoryNode]:
        if unknown := set(names) - self.nodes.keys():
            raise RetryLater(f"Invalid node name {sorted(unknown)}", code="slurm.command_failed")
        return [self.nodes[name] for name in names]

    def _set_state(self, node: MemoryNode, state: str) -> None:
        match state:
            case "POWER_DOWN_FORCE":
                self.powered_down(node)
                self._free(node)
                if node.power in (NodePower.UP, NodePower.POWERING_UP):
                    self._power_down(node)
            case "POWER_UP":
                if node.power is NodePower.DOWN and not node.is_down:
                    node.power, node.since = NodePower.POWERING_UP, self.now()
                    self.program("resume", (node.name,), {})
            case "POWER_DOWN_ASAP":
                if node.power in (NodePower.UP, NodePower.POWERING_UP):
                    node.powers_down_after_job = True
            case "RESUME":
                node.is_down = node.is_draining = node.powers_down_after_job = False
            case _:
                msg = f"no node state {state!r}"
                raise ValueError(msg)

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        if unknown := changes.keys() - _JOB_FIELDS:
            msg = f"scontrol update job knows no {sorted(unknown)} here"
            raise ValueError(msg)

        def update() -> None:
            for job in self._not_ended(job_ids):
                if job.state != PENDING:
                    raise RetryLater("Job is no longer pending execution", code="slurm.command_failed")
                job.partition = changes.get("partition", job.partition)
                job.excluded = changes.get("excnodelist", job.excluded)
                job.prefer = changes.get("prefer", job.prefer)
                if (start := changes.get("starttime")) is not None:
                    job.begin_time = self.now() + float(start.removeprefix("now") or 0)
            self.told.append(("job", tuple(job_ids), dict(changes)))

        self._call("update_job", update)

    def _not_ended(self, job_ids: Iterable[int]) -> list[MemoryJob]:
        found = [self.jobs[job_id] for job_id in job_ids if job_id in self.jobs]
        if any(job.state in ENDED for job in found) or not found:
            raise RetryLater("Job/step already completing or completed", code="slurm.command_failed")
        return found

    def requeue(self, job_ids: Collection[int], *, hold: bool = False) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`; an ended job runs again, as in Slurm."""
        if hold:
            msg = "no held jobs here"
            raise ValueError(msg)

        def again() -> None:
            for job_id in job_ids:
                if self.jobs[job_id].state != PENDING:
                    self._requeue(self.jobs[job_id])
            self.told.append(("requeue", tuple(job_ids), {}))

        self._call("requeue", again)

    def release(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`: nothing is held here."""

        def let_go() -> None:
            self._not_ended(job_ids)
            self.told.append(("release", tuple(job_ids), {}))

        self._call("release", let_go)

    # ------------------------------------------------------------------ single jobs

    def warn(self, job_id: int) -> str:
        """See :class:`~advisor.slurm.running_jobs.RunningJobs`."""

        def send() -> str:
            (job,) = self._not_ended([job_id])
            self.told.append(("warn", (job_id,), {}))
            return job.signal

        found: str = self._call("warn", send)
        return found

    def excluded_nodes(self, job_id: int) -> str:
        """See :class:`~advisor.slurm.running_jobs.RunningJobs`."""
        found: str = self._call("excluded_nodes", lambda: self.jobs[job_id].excluded)
        return found

    def node_constraints(self, job_id: int) -> NodeConstraints:
        """See :class:`~advisor.slurm.running_jobs.RunningJobs`."""
        job = self.jobs[job_id]
        found: NodeConstraints = self._call(
            "node_constraints", lambda: NodeConstraints(prefer=job.prefer, excluded=job.excluded)
        )
        return found

    def end_of(self, job_id: int) -> JobEnd | None:
        """See :class:`~advisor.slurm.running_jobs.RunningJobs`."""
        job = self.jobs[job_id]
        found: JobEnd = self._call(
            "end_of",
            lambda: JobEnd(state=job.state, end_time=job.end_time, may_requeue=job.may_requeue),
        )
        return found

    def failed_on(self, nodes: Sequence[str]) -> dict[int, tuple[str, ...]]:
        """See :class:`~advisor.slurm.running_jobs.RunningJobs`."""

        def look() -> dict[int, tuple[str, ...]]:
            failed = (job for job in self.jobs.values() if job.state == "FAILED")
            return {job.job_id: job.had for job in failed if set(job.had) & set(nodes)}

        found: dict[int, tuple[str, ...]] = self._call("failed_on", look)
        return found

    def _as_queued(self, job: MemoryJob) -> QueuedJob:
        waits = job.state == PENDING and job.begin_time > self.now()
        return QueuedJob(
            job=Job(
                job_id=job.job_id,
                submit_time=job.submit_time,
                processors=4 * job.nodes_wanted,
                queue=job.partition,
                account=job.account or None,
                requested_time=job.limit_seconds,
                nodes=job.nodes_wanted if job.nodes_wanted > 1 else None,
                requeue=True,
            ),
            state=job.state,
            partitions=(job.partition,),
            array_job_id=job.job_id,
            start_time=job.start_time,
            restarts=job.restarts,
            reason="BeginTime" if waits else "Resources" if job.state == PENDING else "",
            nodes=",".join(job.nodes),
            admin_comment=job.admin_comment,
        )
