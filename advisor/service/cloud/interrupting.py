"""The interruption loop: when EC2 takes a node back, as little work as possible is lost.

After an interruption warning the node gets no new job, and each of its jobs gets the signal that it asked for
(``--signal``). After a rebalance recommendation the node gets no new job either, but its jobs end undisturbed
and then the node is powered down. When the instance is gone, the reconcile loop powers the node down, which
requeues its jobs under their ids; this loop helps them to their next node, which is not spot after two
interruptions, and for a promised job after one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from advisor.ec2.instances import Instance
from advisor.ec2.interruptions import Interruptions, NoticeKind
from advisor.model.advice import Capacity
from advisor.model.cluster import Node, NodePower
from advisor.model.limits import never_starts
from advisor.model.node_sets import fold
from advisor.model.snapshot import PARTITION_CLOSED, PENDING, RUNNING, ClusterSnapshot, QueuedJob
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.money import alive_by_node
from advisor.service.observation.advice_of_jobs import changes_to_return, moved_by_us
from advisor.service.observation.reserved_nodes import is_shut_out, open_cloud_nodes
from advisor.service.observation.site_view import burst_nodes
from advisor.service.running.isolating import for_each
from advisor.service.running.loops import Step
from advisor.slurm.running_jobs import JobEnd, NodeConstraints

log = structlog.get_logger(__name__)

_PERIOD_SECONDS: Final = 1.0
_SHUTDOWN_SECONDS: Final = 60.0  # from EC2's notice to the end of the last process
_LATE_WORD_SECONDS: Final = 15.0  # age that EC2's list may have
_LAUNCH_FAILED: Final = "launch_failed_requeued_held"
"""As by a Prolog that fails, or on a node that does not know the job's user."""
_HELD_FOR_GOOD: Final = frozenset({"BadConstraints", _LAUNCH_FAILED})


class JobWarnings(Protocol):
    """What the loop uses of :class:`advisor.slurm.running_jobs.RunningJobs`."""

    def warn(self, job_id: int) -> str:
        """Send the signal that the job asked for; returns its name, or an empty text."""
        ...

    def node_constraints(self, job_id: int) -> NodeConstraints:
        """Which nodes the job asks for, prefers and excludes."""
        ...

    def end_of(self, job_id: int) -> JobEnd | None:
        """How the job has ended; None if slurmctld has forgotten it."""
        ...

    def failed_on(self, nodes: Sequence[str]) -> dict[int, tuple[str, ...]]:
        """Jobs that failed on these nodes and that slurmctld still remembers, with all the nodes of each."""
        ...


@dataclass(frozen=True, slots=True)
class SpotParts:
    """The loop's dependencies: EC2's notices, and a way to warn jobs."""

    source: Interruptions
    jobs: JobWarnings


class InterruptionLoop:
    """Acts on EC2's notices.

    Args:
        instances: Our instances as the reconcile loop last listed them: no other machine's node is ever
            touched.
        back_to_spot: Sends jobs that run on-demand back to spot.
    """

    name = "interruptions"
    period_seconds = _PERIOD_SECONDS

    def __init__(
        self,
        context: CloudContext,
        *,
        instances: Callable[[], Sequence[Instance]],
        jobs: JobWarnings,
        back_to_spot: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings, self._slurm = context.settings, context.slurm
        self._view, self._clock = context.view, context.clock
        self._record, self._tries = context.interruptions, context.spot_tries
        self._cloud = context.cloud
        self._instances = instances
        self._jobs = jobs
        self._back_to_spot = back_to_spot
        self._gone_since: dict[str, float] = {}  # instance that was taken: epoch seconds
        self._requeued: set[tuple[int, str]] = set()  # job, and the instance it lost
        self._hurried: dict[int, int] = {}  # job: its interruptions when its begin time was set to now
        self._kept_off: dict[int, str] = {}
        self._left_at: dict[int, float | None] = {}  # job to be placed: start of the run that it was to leave
        # jobs whose launch had failed at the last poll, and their restarts
        self._not_launched: set[tuple[int, int]] = set()
        self._released_here: set[int] = set()  # moved jobs that Slurm held on-premise, and may hold again

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            Step("empty nodes", self.empty_nodes),
            Step("warn jobs", self.warn_jobs),
            Step("requeue jobs", self.requeue_what_failed_with_its_node),
            Step("back to spot", self._back_to_spot),
            Step("place again", self.place_again),
            Step("forget", self.forget),
        )

    def _concerned(self, *kinds: NoticeKind) -> tuple[ClusterSnapshot, list[tuple[Instance, Node]]]:
        """Our nodes that are up and whose instance has had a notice of one of these kinds."""
        said = [item for item in self._instances() if self._record.said(item.instance_id, *kinds)]
        if not said:
            return ClusterSnapshot(time=0.0, jobs=(), nodes=()), []
        snapshot = self._view.fresh()
        nodes = {node.name: node for node in burst_nodes(snapshot, self._settings)}
        alive = alive_by_node(self._instances(), nodes)
        return snapshot, [
            (item, nodes[item.node])
            for item in said
            # the node may have a newer instance by now, even one that is not listed yet
            if item.node in nodes
            and alive.get(item.node) is item
            and self._record.concerns_its_node(item.instance_id)
        ]

    def empty_nodes(self) -> None:
        """Give no new job to a node that EC2 takes back; after its last job it is powered down."""
        _, concerned = self._concerned(NoticeKind.INTERRUPTION, NoticeKind.REBALANCE)
        for_each(concerned, self._empty)

    def _empty(self, concerned: tuple[Instance, Node]) -> None:
        instance, node = concerned
        if node.power in (NodePower.UP, NodePower.POWERING_UP) and not node.is_draining:
            is_last_warning = self._record.said(instance.instance_id, NoticeKind.INTERRUPTION)
            why = "takes it back" if is_last_warning else "may take it back soon"
            reason = f"burst advisor: EC2 {why} ({instance.instance_id})"
            self._slurm.update_node([node.name], state="POWER_DOWN_ASAP", reason=reason)
            log.warning("cloud.node_emptied", node=node.name, instance=instance.instance_id, why=why)

    def warn_jobs(self) -> None:
        """Send each job on a node that EC2 takes back the signal that it asked for, once."""
        snapshot, concerned = self._concerned(NoticeKind.INTERRUPTION)
        on_node = snapshot.jobs_on
        pairs = [
            (instance.instance_id, queued.job.job_id)
            for instance, node in concerned
            for queued in on_node.get(node.name, [])
        ]
        for_each(pairs, self._warn)

    def _warn(self, pair: tuple[str, int]) -> None:
        instance_id, job_id = pair
        if self._record.warn_once(instance_id, job_id):
            signal = self._jobs.warn(job_id)
            self._record.warned(instance_id, job_id)
            log.warning("job.warned", job=job_id, instance=instance_id, signal=signal or "none asked for")

    def requeue_what_failed_with_its_node(self) -> None:
        """Requeue jobs whose processes the machine's shutdown ended before Slurm lost the node (F25).

        Such a job looks failed. Its instance decides, not its exit code: if EC2 took the instance within
        those seconds, the job was interrupted. slurmctld is asked and not the snapshot: a job may start and
        be lost between two polls.
        """
        now = self._clock.wall()
        taken = {item.instance_id: item for item in self._instances() if self._was_taken(item)}
        self._gone_since = {name: self._gone_since.get(name, now) for name in taken}
        self._requeued = {pair for pair in self._requeued if pair[1] in taken}
        fresh = {
            item.node: name
            for name, item in taken.items()
            if item.node is not None and now - self._gone_since[name] <= _SHUTDOWN_SECONDS
        }
        if fresh:
            for job_id, nodes in sorted(self._jobs.failed_on(sorted(fresh)).items()):
                for node in fresh.keys() & nodes:
                    self._requeue_if_taken(job_id, fresh[node])

    def _was_taken(self, instance: Instance) -> bool:
        """Whether an instance ended without us: EC2 took it back, or it was stopped."""
        if instance.is_alive:
            return False
        said = self._record.said(instance.instance_id, NoticeKind.INTERRUPTION)
        return said or instance.was_reclaimed or instance.state in ("stopping", "stopped")

    def _requeue_if_taken(self, job_id: int, instance_id: str) -> None:
        if (job_id, instance_id) in self._requeued:
            return  # this failure is of its next start, on a node of the same name
        end = self._jobs.end_of(job_id)
        if end is None or end.state != "FAILED" or not end.may_requeue:
            return
        if self._has_newer(instance_id, end.end_time):
            return  # that instance served the node when the job ended
        # EC2's list is read once a period, and much later where this process was away
        taken_at = min(self._gone_since[instance_id], self._record.ended_at(instance_id) or math.inf)
        before = taken_at - end.end_time
        if not -_SHUTDOWN_SECONDS <= before <= self._settings.loops.reconcile_seconds + _LATE_WORD_SECONDS:
            return  # it failed by itself, earlier
        self._slurm.requeue_ended([job_id])
        self._requeued.add((job_id, instance_id))
        self._record.interrupted([job_id], instance_id)
        log.warning("job.requeued", job=job_id, why="its machine was taken while it ran")

    def _has_newer(self, instance_id: str, before: float) -> bool:
        """Whether the node of an instance had a newer one at a time, epoch seconds."""
        instance = next(item for item in self._instances() if item.instance_id == instance_id)
        return any(
            item.node == instance.node and instance.launch_time < item.launch_time <= before
            for item in self._instances()
        )

    def place_again(self) -> None:
        """Help requeued jobs to their next node: at once, and off spot after too many interruptions."""
        to_place = self._record.to_place()
        self._left_at = {job_id: at for job_id, at in self._left_at.items() if job_id in to_place}
        snapshot = self._view.fresh()
        nodes = burst_nodes(snapshot, self._settings)
        usable, closings = open_cloud_nodes(nodes, snapshot.reservations, snapshot.time)
        held = (
            job
            for job in snapshot.jobs
            if _is_held_by_slurm(job)
            or (self._is_there(job) and is_shut_out(job, usable, closings, snapshot.time))
            or self._is_limited_there(job)
        )
        ours = [job for job in held if job.job.job_id in to_place or moved_by_us(job) is not None]
        failed = {
            (job.job.job_id, job.restarts)
            for job in ours
            if _reason(job) == _LAUNCH_FAILED and self._is_there(job)
        }
        if failed - self._not_launched:
            self._cloud.launch_failed()  # once: one node may have failed several jobs
        self._not_launched = failed
        for_each(ours, self._free)
        if self._released_here:
            self._released_here &= {item.job.job_id for item in snapshot.jobs}
        if not to_place:
            return
        queued = {item.job.job_id: item for item in snapshot.jobs}
        spot = {
            item.node
            for item in self._instances()
            if item.is_alive and item.option is Capacity.SPOT and item.node is not None
        }
        # jobs that are not in the queue are being requeued or are gone; `forget` drops the latter
        known = [queued[job_id] for job_id in sorted(to_place) if job_id in queued]
        for job in known:
            job_id = job.job.job_id
            runs = job.state == RUNNING
            # the last poll may be older than its requeue
            left_at = self._left_at.setdefault(job_id, job.start_time if runs else None)
            if runs and job.start_time != left_at:
                self._record.placed([job_id])
                self._hurried.pop(job_id, None)
                self._kept_off.pop(job_id, None)
        waiting = (job for job in known if job.state == PENDING and not _is_held_by_slurm(job))
        for_each(waiting, lambda job: self._place(job, spot))

    def _place(self, queued: QueuedJob, spot: set[str]) -> None:
        job_id = queued.job.job_id
        changes: dict[str, str] = {}
        keep_off = self._kept_off.get(job_id, "")
        interruptions = self._record.interruptions_of(job_id)
        if queued.reason == "BeginTime" and self._hurried.get(job_id) != interruptions:
            # Slurm makes a requeued job wait two minutes; a later wait is one for capacity
            changes["starttime"] = "now"
        if not self._tries(queued):
            before, keep_off = keep_off, fold(sorted(spot))
            if keep_off != before:
                own = self._record.own_exclusions(
                    job_id, lambda job: self._jobs.node_constraints(job).excluded
                )
                changes["excnodelist"] = ",".join(filter(None, (own, keep_off)))
        if changes:
            self._slurm.update_job([job_id], changes)
            self._kept_off[job_id] = keep_off
            if "starttime" in changes:
                self._hurried[job_id] = interruptions
            log.info("job.placed_again", job=job_id, interruptions=interruptions, **changes)

    def _free(self, queued: QueuedJob) -> None:
        """Return a job that cannot start there; release one that Slurm holds for ever, for its user (F20)."""
        job_id = queued.job.job_id
        if job_id in self._released_here:
            return  # no node here is as it asks for, either: that is for its user to mend
        if _is_held_by_slurm(queued):
            log.error("job.held_by_slurm", job=job_id, reason=queued.reason)
        else:
            log.info("job.cannot_start_there", job=job_id, reason=queued.reason)
        moved = moved_by_us(queued)
        is_away = self._settings.cluster.burst_partition in queued.partitions
        if moved is not None and is_away:
            self._slurm.update_job([job_id], changes_to_return(queued, moved, self._settings))
        if _is_held_by_slurm(queued):
            self._slurm.release([job_id])
        if not is_away and _reason(queued) == "BadConstraints":
            self._released_here.add(job_id)

    def _is_limited_there(self, queued: QueuedJob) -> bool:
        """Whether the burst partition is closed, or a limit that may be its alone keeps a job waiting."""
        return self._is_there(queued) and (never_starts(queued) or queued.reason in PARTITION_CLOSED)

    def _is_there(self, queued: QueuedJob) -> bool:
        return queued.state == PENDING and self._settings.cluster.burst_partition in queued.partitions

    def forget(self) -> None:
        """Drop what concerns no instance and no job any more; only while both sides can be read."""
        instances = self._instances()
        if instances:
            jobs = {queued.job.job_id for queued in self._view.fresh().jobs}
            listed = {item.instance_id for item in instances}
            self._record.forget(instances_left=listed, jobs_left=jobs, now=self._clock.wall())


def _reason(queued: QueuedJob) -> str:
    """Why it waits; some releases of Slurm write blanks, others underscores."""
    return (queued.reason or "").replace(" ", "_")


def _is_held_by_slurm(queued: QueuedJob) -> bool:
    """Whether Slurm holds a job for ever: a launch failed, or no node is as the job asks for.

    The latter happens to moved jobs where there is no hook and some options are not seen (``-N1``).
    """
    return queued.state == PENDING and _reason(queued) in _HELD_FOR_GOOD
