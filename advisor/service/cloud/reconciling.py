"""The reconcile loop: it compares Slurm's nodes with EC2's instances, and terminates with a delay.

An instance or a node is only given up if Slurm and EC2 agree (docs/designs/0001, rule 4). If either cannot be
read, nothing is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final

import structlog

from advisor.decide.submission.capacity import is_never_spot
from advisor.ec2.instances import BY_REQUEST, Instance
from advisor.ec2.interruptions import NoticeKind
from advisor.model.advice import Capacity
from advisor.model.cluster import Node, NodePower
from advisor.model.errors import TellAdmin
from advisor.model.snapshot import PENDING, ClusterSnapshot, QueuedJob
from advisor.service.cloud.addresses import tell_addresses
from advisor.service.cloud.bookkeeping import Bookkeeping
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.money import alive_by_node
from advisor.service.observation.site_view import burst_nodes
from advisor.service.running.isolating import for_each
from advisor.service.running.loops import Step

log = structlog.get_logger(__name__)

_MISFIT: Final = ("Low RealMemory", "Low socket", "Low CPUs", "Low TmpDisk")  # slurmctld's words
_PROTECTED_SECONDS: Final = 1800.0
_CLOCKS_SECONDS: Final = 5.0  # by so much clocks of EC2 and slurmctld may differ; no life is shorter


def _is_orphan(instance: Instance, node: Node | None, instance_of_node: Instance | None) -> bool:
    """Whether Slurm no longer needs an instance, be it stopped: that still costs money.

    Its node does not exist or is powered down, or another instance serves the node.
    """
    is_double = instance.node is not None and instance_of_node not in (instance, None)
    return instance.may_cost and (node is None or node.power is NodePower.DOWN or is_double)


class ReconcileLoop:
    """Finds and repairs what hand-overs missed.

    Args:
        resuming: Nodes that wait for a launch: the instance they had is of a former life.
        boot_ended: Called before a node is given up whose instance has ended while it booted; it keeps the
            node's jobs alive.
        first: Steps that come before all others.

    Attributes:
        instances: The instances that EC2 listed in this round; empty if it could not be read.
        last_listed: The instances that EC2 listed when it was last read.
        listed_at: When EC2 was last read, epoch seconds.
        orphans_collected, nodes_lost: Numbers since the start.
    """

    name = "reconcile"

    def __init__(
        self,
        context: CloudContext,
        *,
        resuming: Callable[[], Collection[str]],
        boot_ended: Callable[[str, Instance], None],
        first: Sequence[Step] = (),
    ) -> None:
        self._resuming, self._boot_ended, self._first = resuming, boot_ended, first
        self._settings, self._slurm, self._view = context.settings, context.slurm, context.view
        self.period_seconds = context.settings.loops.reconcile_seconds
        self._fleet, self._cloud, self._clock = context.fleet, context.cloud, context.clock
        self._interruptions = context.interruptions
        self._books = Bookkeeping(context)
        self._orphans_since: dict[str, float] = {}  # instance: monotonic seconds
        self._lost_since: dict[str, float] = {}  # node: monotonic seconds
        self._unlisted_since: dict[str, float] = {}  # node: monotonic seconds
        self._protected_since: float | None = None  # monotonic seconds
        self._young: frozenset[str] = frozenset()
        self._is_read = False
        self.instances: tuple[Instance, ...] = ()
        self.last_listed: tuple[Instance, ...] = ()
        self.listed_at: float | None = None
        self.orphans_collected = 0
        self.nodes_lost = 0

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            *self._first,
            Step("settle launches", self.settle_launches),
            Step("read instances", self.read_instances),
            Step("addresses", self.set_addresses),
            Step("orphaned instances", self.terminate_orphans),
            Step("lost nodes", self.give_up_lost),
            Step("down nodes", self.mend_down),
            Step("spot nodes that must not be", self.retire_spot),
            Step("misfit nodes", self.tell_misfits),
            Step("find the nodes' instances", self.tell_unlisted),
            Step("launch and end instances", self._fleet.tell_refused),
            Step("protection", self.end_protection),
            Step("bill", self.count_money),
        )

    def settle_launches(self) -> None:
        """Settle launches that a crash interrupted (F09)."""
        nodes = burst_nodes(self._view.fresh(), self._settings)
        wanted = {node.name for node in nodes if node.power is NodePower.POWERING_UP}
        for launched in self._fleet.recover(wanted):
            log.info("cloud.recovered", node=launched.node, instance=launched.instance_id)
        self._fleet.tag_unnamed()

    def read_instances(self) -> None:
        """List the cluster's instances; if EC2 cannot be read, the later steps see none and do nothing."""
        self.instances, self._is_read = (), False
        listed = self._fleet.instances()
        self._young = self._fleet.unlisted_nodes(listed)
        self.instances = self.last_listed = tuple(listed)
        self.listed_at = self._clock.wall()
        self._is_read = True
        if any(item.is_alive for item in listed):
            self._cloud.instances_run(self._settings.cluster.name, self._settings.ec2.region)

    def _pairs(self) -> tuple[ClusterSnapshot, dict[str, Node], dict[str, Instance]]:
        snapshot = self._view.fresh()
        nodes = {node.name: node for node in burst_nodes(snapshot, self._settings)}
        return snapshot, nodes, alive_by_node(self.instances, nodes)

    def set_addresses(self) -> None:
        """Give a node that powers up the address of its own instance (F07: never matched by address)."""
        if self._settings.ec2.node_address == "loopback":
            return
        _, nodes, alive = self._pairs()
        found = (
            (name, instance.private_ip)
            for name, instance in alive.items()
            if name in nodes
            and nodes[name].power is NodePower.POWERING_UP
            and nodes[name].address != instance.private_ip
        )
        tell_addresses(self._slurm, self._settings.ec2, found)

    def terminate_orphans(self) -> None:
        """Terminate instances that have been orphans for the grace time (F12).

        A node in another partition counts, too: its instance may run jobs.

        Raises:
            TellAdmin: Slurm shows no node of the burst partition. A wrong name, or a partition removed from
                slurm.conf, says nothing about instances: none is terminated.
        """
        if not self.instances:
            self._orphans_since.clear()
            return
        polled = self._view.poll_began  # before the snapshot is taken: it may be a newer one
        snapshot, nodes, alive = self._pairs()
        if not nodes:
            self._orphans_since.clear()
            partition = self._settings.cluster.burst_partition
            raise TellAdmin(
                f"EC2 lists {len(self.instances)} instances, but Slurm shows no node of partition "
                f"{partition}: none is terminated. Correct cluster.burst_partition or slurm.conf",
                code="cloud.no_burst_nodes",
            )
        everywhere = {node.name: node for node in snapshot.nodes}
        now = self._clock.monotonic()
        self._orphans_since = {
            item.instance_id: self._orphans_since.get(item.instance_id, now)
            for item in self.instances
            if _is_orphan(item, everywhere.get(item.node or ""), alive.get(item.node or ""))
        }
        grace = self._settings.loops.orphan_grace_seconds
        due = {i for i, since in self._orphans_since.items() if now - since >= grace}
        if due:
            log.warning("cloud.orphans", instances=sorted(due), snapshot_time=snapshot.time)
            orphans = [item for item in self.instances if item.instance_id in due]
            self.orphans_collected += len(self._fleet.terminate_orphans(orphans, polled))

    def give_up_lost(self) -> None:
        """Power down nodes whose instance EC2 has ended, which requeues their jobs (F19, F24).

        EC2's list alone is not enough: either Slurm cannot reach the node, or EC2 has also sent a notice or
        ended the spot request. This spares the jobs Slurm's own time-out of minutes.
        """
        if not self.instances:
            self._lost_since.clear()
            return
        snapshot, nodes, alive = self._pairs()
        in_order = sorted(self.instances, key=lambda item: item.launch_time)  # a node's last one counts
        ended = {item.node: item for item in in_order if not item.is_alive and item.node is not None}
        now = self._clock.monotonic()
        not_lost = self._young.union(alive, self._resuming())
        lost = {
            name
            for name, node in nodes.items()
            if name in ended
            and name not in not_lost
            and not _is_of_former_life(ended[name], node, snapshot.jobs_on.get(name, ()))
            and ("NOT_RESPONDING" in node.states or node.is_down or self._is_said_gone(ended[name], node))
            and node.power not in (NodePower.DOWN, NodePower.POWERING_DOWN)
        }
        self._lost_since = {name: self._lost_since.get(name, now) for name in lost}
        ripe = sorted(n for n, since in self._lost_since.items() if now - since >= self.period_seconds / 2)

        def give_up(name: str) -> None:
            instance = ended[name]
            why = instance.state_reason or instance.state
            log.warning("cloud.lost", node=name, instance=instance.instance_id, why=why)
            if nodes[name].power is NodePower.POWERING_UP:
                self._boot_ended(name, instance)
            self._count_interruption(instance, snapshot)
            self._slurm.update_node(
                [name],
                state="POWER_DOWN_FORCE",
                reason=f"burst advisor: {instance.instance_id} ended ({why})",
            )
            self.nodes_lost += 1
            del self._lost_since[name]

        for_each(ripe, give_up)

    def _is_said_gone(self, instance: Instance, node: Node) -> bool:
        """Whether EC2 has also sent a notice of the instance's end, for a node that was up."""
        return node.power is NodePower.UP and self._interruptions.said(
            instance.instance_id, NoticeKind.INTERRUPTION, NoticeKind.ENDED
        )

    def _count_interruption(self, instance: Instance, snapshot: ClusterSnapshot) -> None:
        """Count jobs that lose their node to EC2; Slurm may have requeued them a moment ago."""
        record, node = self._interruptions, instance.node
        if node is None:
            return
        if not (instance.was_reclaimed or record.said(instance.instance_id, NoticeKind.INTERRUPTION)):
            return
        warned = record.warned_about(instance.instance_id)
        requeued = {q.job.job_id for q in snapshot.jobs if q.state == PENDING and q.job.job_id in warned}
        there = {queued.job.job_id for queued in snapshot.jobs_on.get(node, [])}
        record.interrupted(there | requeued, instance.instance_id)

    def mend_down(self) -> None:
        """Make powered-down nodes usable again that a failed boot left DOWN (F02).

        Not while EC2 does not answer: the next boot would fail as well.
        """
        if not self._is_read:
            return
        _, nodes, alive = self._pairs()
        broken = [
            name
            for name, node in nodes.items()
            if node.is_down and node.power is NodePower.DOWN and name not in alive and not node.is_draining
        ]
        if broken:
            log.info("cloud.node_usable_again", nodes=broken)
            self._slurm.update_node(broken, state="RESUME")

    def retire_spot(self) -> None:
        """Drain nodes that run as spot and have got a feature that forbids it; their jobs end there first.

        slurmctld would start jobs there that ask for the feature since they may not be requeued (rule 1).
        """
        _, nodes, alive = self._pairs()
        names = [
            name
            for name, instance in sorted(alive.items())
            if instance.option is Capacity.SPOT
            and name in nodes
            and is_never_spot(nodes[name].features)
            and nodes[name].power is NodePower.UP
            and not nodes[name].is_draining
        ]
        if names:
            log.warning("cloud.spot_retired", nodes=names, why="slurm.conf says by now that they are no spot")
            reason = "burst advisor: a spot instance, and its features forbid that"
            self._slurm.update_node(names, state="POWER_DOWN_ASAP", reason=reason)

    def tell_misfits(self) -> None:
        """Report nodes that slurmd finds smaller than slurm.conf declares them (F27).

        Raises:
            TellAdmin: There are some: Slurm has drained them, and no job will ever start there.
        """
        nodes = burst_nodes(self._view.fresh(), self._settings)
        misfits = {node.name: node.reason for node in nodes if (node.reason or "").startswith(_MISFIT)}
        if misfits:
            name, reason = next(iter(sorted(misfits.items())))
            raise TellAdmin(
                f"{len(misfits)} cloud nodes are smaller than slurm.conf says ({name}: {reason}). "
                "Declare less memory, fewer processors or less disk for them",
                code="cloud.misfit",
            )

    def tell_unlisted(self) -> None:
        """Report nodes that are up while EC2 lists no instance of theirs: none is ended or counted.

        Raises:
            TellAdmin: It has been so for the grace time. The instances have another cluster's tag, or run in
                another region.
        """
        if not self._is_read:
            return
        _, nodes, _ = self._pairs()
        known = self._young.union(self._resuming(), (item.node for item in self.instances))
        now, grace = self._clock.monotonic(), self._settings.loops.orphan_grace_seconds
        self._unlisted_since = {
            name: self._unlisted_since.get(name, now)
            for name, node in nodes.items()
            if name not in known and node.is_cloud and node.power is NodePower.UP and not node.is_down
        }
        alone = [name for name, since in self._unlisted_since.items() if now - since >= grace]
        if alone:
            raise TellAdmin(
                f"{len(alone)} cloud nodes are up, {min(alone)} among them, and EC2 lists no instance of "
                f"theirs in {self._settings.ec2.region} with the tag of cluster.name: none is ended or "
                "counted. Were ec2.region or cluster.name changed? Change them back until these nodes are "
                "powered down",
                code="cloud.no_instance",
            )

    def end_protection(self) -> None:
        """After half an hour of protection let one more node boot, but only from a clean start (F17).

        Nodes that still power up or down belong to the time of the failures, so their outcome says nothing.
        Nodes that run jobs do not count: a job of a week would otherwise keep the cloud closed for a week.
        One more failed boot protects again.
        """
        now = self._clock.monotonic()
        if not self._cloud.protected:
            self._protected_since = None
            return
        if self._protected_since is None:
            self._protected_since = now
        nodes = burst_nodes(self._view.fresh(), self._settings)
        moving = {NodePower.POWERING_UP, NodePower.POWERING_DOWN}
        # failed boots left their nodes powered down; an admin decides about any other node that is down
        failed = (node.is_down and node.power is NodePower.DOWN and not node.is_draining for node in nodes)
        is_clean = not any(failed) and not any(node.power in moving for node in nodes)
        if now - self._protected_since >= _PROTECTED_SECONDS and is_clean:
            log.warning("cloud.protection_ends", why="one boot may try")
            self._cloud.try_one_boot()
            self._protected_since = None

    def count_money(self) -> None:
        """Add the cost of running instances to the day's bill, by the accounts that use them.

        An empty list means that nothing runs only if EC2 could be read; else running instances are counted
        later.
        """
        if not self._is_read:
            return
        self._books.count(self.instances)


def _is_of_former_life(instance: Instance, node: Node, jobs: Sequence[QueuedJob]) -> bool:
    """Whether a node boots anew after its instance was terminated by request, as SuspendProgram does.

    slurmctld may give such a node to a job before the hand-over for its next instance is read. An instance
    that was launched after one of the node's jobs had got the node is of this life: an admin has ended it. A
    boot without a job that fails ends at ResumeTimeout.
    """
    if node.power is not NodePower.POWERING_UP or instance.state_reason != BY_REQUEST:
        return False
    begins = (queued.start_time for queued in jobs if queued.start_time is not None)
    return instance.launch_time + _CLOCKS_SECONDS < min(begins, default=math.inf)
