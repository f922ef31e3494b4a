"""The provision loop: it acts in EC2 on slurmctld's hand-overs, and reports the results to Slurm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from advisor.ec2.errors import Failure, FailureClass
from advisor.ec2.instances import Instance
from advisor.model.advice import Capacity
from advisor.model.cluster import NodePower
from advisor.model.errors import RetryLater
from advisor.model.node_sets import fold
from advisor.model.snapshot import PENDING, RUNNING, QueuedJob
from advisor.service.cloud.addresses import UNREACHABLE, tell_addresses
from advisor.service.cloud.asked_nodes import NOT_OURS, AskedNodes, reason_of
from advisor.service.cloud.block_keeper import BlockKeeper
from advisor.service.cloud.bookkeeping import Bookkeeping
from advisor.service.cloud.budget_guard import BudgetGuard
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.late_requests import LateRequests
from advisor.service.cloud.resumed_jobs import ResumedJobs
from advisor.service.cloud.spot_choice import Narrowed, SpotChoice, spot_pools_of
from advisor.service.cloud.unbegun import UnbegunJobs
from advisor.service.exchange.handover import HandOver, HandoverFolder, in_turn
from advisor.service.observation.advice_of_jobs import changes_to_return, moved_by_us
from advisor.service.running.isolating import do_all, for_each
from advisor.service.running.loops import Step

log = structlog.get_logger(__name__)

_PERIOD_SECONDS: Final = 1.0
_ROUND_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 180
"""The first pause of a pool without capacity (:mod:`advisor.ec2.pools`)."""
_AGAIN: Final = frozenset({FailureClass.THROTTLED, FailureClass.SERVER, FailureClass.TOKEN})


class ProvisionLoop:
    """Acts on hand-overs (`in_turn`); each file is deleted when its request is done.

    Args:
        instances: Our instances as the reconcile loop last listed them.
        kept: Names of the nodes that are kept up without a job; they are spot.
        first: Steps that come before all others.

    Attributes:
        launches, refusals: Launches by pool, and nodes without an instance by code, since the start.
        returning: Jobs whose nodes could not be launched.
        resuming: Nodes of the `resume` hand-overs that waited when the folder was last read.
        unbegun: Keeps jobs alive that have not begun; a loop of its own.
    """

    name = "provision"
    period_seconds = _PERIOD_SECONDS

    def __init__(
        self,
        context: CloudContext,
        *,
        folder: HandoverFolder,
        instances: Callable[[], Sequence[Instance]],
        kept: Callable[[], Collection[str]] = tuple,
        first: Sequence[Step] = (),
    ) -> None:
        settings, slurm, view, clock = context.settings, context.slurm, context.view, context.clock
        self._settings, self._slurm, self._view, self._clock = settings, slurm, view, clock
        self._fleet, self._cloud, self._interruptions = context.fleet, context.cloud, context.interruptions
        self._books, self._guard = Bookkeeping(context), BudgetGuard(context, instances)
        self._choice, self._blocks = SpotChoice(context), BlockKeeper(context)
        self.folder = folder
        self._kept, self._first = kept, first
        self._resumed_jobs = ResumedJobs(context)
        self._asked_nodes = AskedNodes(context)
        self._late = LateRequests(slurm, clock)
        self._booting: dict[str, float] = {}  # node: when slurmctld asked for it, monotonic seconds
        self._pool_of: dict[str, str] = {}  # booting node: its pool
        self._no_address: set[str] = set()
        self._unsettled = False
        self._counted: dict[str, float] = {}  # hand-over or instance: when its failed boots were, monotonic
        self.launches: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.returning: set[int] = set()
        self.resuming: frozenset[str] = frozenset()
        self.unbegun = UnbegunJobs(context)

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            *self._first,
            Step("hand-overs", self.act_on_handovers),
            Step("addresses", self.find_addresses),
            Step("capacity blocks", self._blocks.keep),
            Step("boots", self.watch_boots),
            Step("keep the budget", self.keep_budget),
            Step("return jobs", self.return_jobs),
        )

    def act_on_handovers(self) -> None:
        """Act on all hand-overs of slurmctld.

        A request that fails for the moment stays, and delays only other requests for its nodes. Launches that
        are not begun `_ROUND_SECONDS` after the first wait for the next round: newer suspends go before them.
        """
        if self._unsettled:
            # an answer of EC2 was lost: its outcome must be known before those nodes are launched again
            self._unsettled = False
            self._fleet.recover(self._booting.keys())
        self._asked_nodes.refresh()
        self._late.begin_round()
        behind: set[str] = set()  # nodes of hand-overs that are not done yet
        all_waiting: list[tuple[Path, HandOver]] = []
        began: float | None = None  # the first launch

        def act(waiting: tuple[Path, HandOver]) -> None:
            nonlocal began
            if waiting[1].operation == "resume":
                now = self._clock.monotonic()
                began = now if began is None else began
                if now - began > _ROUND_SECONDS:
                    behind.update(waiting[1].nodes)
                    return
            nodes = behind.intersection(waiting[1].nodes)
            behind.update(waiting[1].nodes)
            if waiting[1].operation == "resume_fail":
                self._count_failed(waiting[1])
            if nodes:
                # in another order an old suspend would end the instance of a newer resume
                raise RetryLater(
                    f"{fold(nodes)[:200]}: an earlier hand-over of these nodes must be done first; the log "
                    "of advisor-control says why it is not",
                    code="cloud.in_order",
                )
            if self._act(waiting):
                behind.difference_update(waiting[1].nodes)

        def act_on_all() -> None:
            resumes = [asked for _, asked in all_waiting if asked.operation == "resume"]
            self.resuming = frozenset(node for asked in resumes for node in asked.nodes)
            self._resumed_jobs.note_newest(asked for _, asked in all_waiting)
            for_each(in_turn(all_waiting), act)

        do_all(lambda: all_waiting.extend(self.folder.waiting()), act_on_all)

    def _act(self, waiting: tuple[Path, HandOver]) -> bool:
        """Do what a hand-over asks; False if it must wait for the next poll of Slurm."""
        path, asked = waiting
        foreign = self._asked_nodes.foreign(asked)
        if foreign is None:
            self._fleet.mark_requested(asked.nodes)
            return False
        hand_over = asked.without(foreign)
        refused = self._asked_nodes.refuse(asked, foreign) if foreign else ""
        match hand_over.operation:
            case "resume" if hand_over.nodes:
                jobs = self._resumed_jobs.of(hand_over)
                if jobs is None:
                    self._fleet.mark_requested(hand_over.nodes)
                    return False
                self._resume(hand_over, jobs)
            case "suspend":
                up = self._late.up_again(asked.nodes)
                # also for nodes of other partitions: only instances with the cluster's tag are terminated
                ended = asked.without(up)
                refused = "" if ended.nodes and self._suspend(ended) else refused
                hand_over = hand_over.without(up)
            case "resume_fail" if hand_over.nodes:
                hand_over = hand_over.without(self._late.came(hand_over.nodes))
                self._boot_failed(hand_over)
        if hand_over.operation != "resume":
            self._forget_boots(hand_over.nodes)
        if foreign:
            self.refusals[NOT_OURS] += len(foreign)
        if refused and not hand_over.nodes:
            self.folder.set_aside(path, f"{fold(foreign)}: {refused}")
        else:
            self.folder.done(path)
        self._counted.pop(hand_over.identity, None)
        self._resumed_jobs.done(hand_over)
        self._asked_nodes.done(hand_over)
        return True

    def _suspend(self, hand_over: HandOver) -> list[str]:
        ids = self._fleet.suspend(hand_over.nodes)
        self._interruptions.given_up(ids, self._clock.wall())
        log.info("cloud.suspended", nodes=list(hand_over.nodes), instances=ids)
        return ids

    def _forget_boots(self, nodes: Sequence[str]) -> None:
        never_launched = [node for node in nodes if node in self._booting and node not in self._pool_of]
        self._cloud.budget.release(never_launched, launched=False)
        for node in nodes:
            self._booting.pop(node, None)
            self._pool_of.pop(node, None)
            self._no_address.discard(node)
        self._cloud.budget.release(nodes, launched=True)

    def _resume(self, hand_over: HandOver, jobs: Mapping[str, QueuedJob]) -> None:
        priorities = {node: queued.priority for node, queued in jobs.items()} | hand_over.priorities
        # if money or capacity is short, the job that Slurm would start first gets its nodes
        wanted = sorted(self._resumed_jobs.wanted(hand_over), key=lambda node: -priorities.get(node, 0))
        advised = self._choice.advised(jobs, self._view.fresh().nodes) if jobs else {}
        capacity_of = advised | self._kept_capacities(wanted, hand_over)
        of_several = [nodes for nodes in hand_over.allocated if len(nodes) > 1]
        capacity_of, pools_of = self._narrowed(jobs, capacity_of, of_several)
        boot = self._cloud.boot_seconds or self._settings.placement.boot_seconds
        ends = self._resumed_jobs.ends(wanted, jobs, self._clock.wall() + boot)

        def too_dear(nodes: Sequence[str], listed: Sequence[Instance] | None) -> Mapping[str, Failure]:
            return self._guard.put_aside(nodes, jobs, capacity_of, ends=ends, listed=listed)

        self._booting = dict.fromkeys(wanted, self._resumed_jobs.asked_at(hand_over)) | self._booting
        self._books.settle(self._fleet.instances)
        report = self._fleet.resume(
            wanted,
            capacity_of=capacity_of,
            refuse=too_dear,
            jobs=of_several,
            pools_of=pools_of,
            ends=ends,
        )
        self._no_address |= {item.node for item in report.launched}
        addresses = ((item.node, item.private_ip) for item in report.launched)
        self._no_address -= tell_addresses(self._slurm, self._settings.ec2, addresses)
        for item in report.launched:
            if item.node in self._pool_of:
                continue  # launched when this hand-over was tried before
            self._pool_of[item.node] = item.pool.key
            self.launches[item.pool.key] += 1
            log.info("cloud.launched", node=item.node, instance=item.instance_id, pool=item.pool.key)
        for failure in report.newly_unavailable:
            log.error("cloud.admin_must_act", code=failure.code, message=failure.message)
        there = {item.node for item in report.launched}
        self._cloud.budget.release(report.taken_back, launched=True, kept=there)
        self._launch_failed(hand_over, report.failed)

    def _narrowed(
        self,
        jobs: Mapping[str, QueuedJob],
        capacity_of: Mapping[str, Capacity],
        of_several: Sequence[Sequence[str]],
    ) -> Narrowed:
        """Node to the spot pools that it may use."""
        if not jobs or Capacity.SPOT not in capacity_of.values():
            return Narrowed(dict(capacity_of), {})
        booting = {node: key for node, key in self._pool_of.items() if key.startswith(Capacity.SPOT.value)}
        return self._choice.narrow(
            jobs,
            capacity_of,
            together=frozenset(node for nodes in of_several for node in nodes),
            snapshot=self._view.fresh(),
            pool_of_node=spot_pools_of(self._fleet.instances()) | booting,
        )

    def _launch_failed(self, hand_over: HandOver, failed: Mapping[str, Failure]) -> None:
        for_now = {node: failure for node, failure in failed.items() if failure.kind in _AGAIN}
        for_good = {node: failure for node, failure in failed.items() if node not in for_now}
        # slurmctld may have given a node that boots to a later job, without another hand-over
        jobs = {hand_over.jobs[node] for node in for_good if node in hand_over.jobs}
        jobs |= self.unbegun.on_nodes(for_good)
        self.unbegun.keep_alive(jobs)
        of_reason: dict[str, list[str]] = {}
        for node, failure in for_good.items():
            log.warning("cloud.not_launched", node=node, code=failure.code, message=failure.message)
            of_reason.setdefault(reason_of(failure), []).append(node)
        for reason, nodes in of_reason.items():
            # slurmctld need not wait for its time-out: the job goes back into the queue at once
            self._slurm.update_node(nodes, state="POWER_DOWN_FORCE", reason=reason, address=UNREACHABLE)
            for node in nodes:
                self._booting.pop(node, None)
                self.refusals[for_good[node].code] += 1
        self._cloud.budget.release(for_good, launched=False)
        self._give_back(jobs)
        if for_now:
            self._unsettled = True
            code = next(iter(for_now.values())).code
            raise RetryLater(
                f"EC2 launched no instance for {fold(for_now)[:200]} for now ({code}): it is asked again; "
                "`advisor pools` says which pools are closed",
                code="cloud.launch_later",
            )

    def _boot_failed(self, hand_over: HandOver) -> None:
        """After Slurm's ResumeTimeout: make the node usable again and terminate its instance."""
        if not (nodes := hand_over.nodes):
            return
        self._suspend(hand_over)
        try:
            self._slurm.update_node(nodes, state="RESUME")
        except RetryLater:
            # slurmctld refuses it for a node that is not down: after a takeover or a crash it may not know
            # of the failure any more, and the node's next hand-over waits for this one
            down = [node.name for node in self._view.fresh().nodes if node.is_down and node.name in nodes]
            if down or self._view.poll_began < self._counted[hand_over.identity]:
                raise

    def _count_failed(self, asked: HandOver) -> None:
        """Count a failed boot once, before its turn: while EC2 does not answer no hand-over is done."""
        foreign = self._asked_nodes.foreign(asked)
        if foreign is None or asked.identity in self._counted:
            return
        failed = asked.without(foreign)
        failed = failed.without(self._late.came(failed.nodes))
        self._counted[asked.identity] = self._clock.monotonic()
        if failed.nodes:
            self._count_failed_boots(failed.nodes)

    def boot_ended(self, node: str, instance: Instance) -> None:
        """Prepare that a node is given up before ResumeTimeout, as its instance has ended while it booted.

        Such a boot has failed, but for an instance that EC2 took back. Jobs that have the node and may not be
        requeued would end with it.
        """
        self.unbegun.keep_alive(self.unbegun.on_nodes([node]))
        if not instance.was_reclaimed and instance.instance_id not in self._counted:
            self._counted[instance.instance_id] = self._clock.monotonic()
            self._count_failed_boots([node])

    def _count_failed_boots(self, nodes: Sequence[str]) -> None:
        self._cloud.boot_failed(len(nodes))
        log.warning("cloud.boot_failed", nodes=list(nodes), in_a_row=self._cloud.boot_failures)
        self._give_back(self._resumed_jobs.not_booted(nodes))

    def _kept_capacities(self, nodes: Iterable[str], hand_over: HandOver) -> dict[str, Capacity]:
        """Kept nodes are spot if the site uses spot; a node that has a job follows the job's advice.

        The hand-over itself says which nodes have a job: no snapshot need show it yet.
        """
        kept = set(self._kept()) - hand_over.jobs.keys()
        capacity = Capacity.SPOT if self._settings.capacity.use_spot else Capacity.ON_DEMAND
        return dict.fromkeys((node for node in nodes if node in kept), capacity)

    def keep_budget(self) -> None:
        """Once a budget is spent or promised, start nothing more (`BudgetGuard`)."""
        self._give_back(self._guard.keep())

    def find_addresses(self) -> None:
        """Ask EC2 for addresses that it did not know at the launch (F06)."""
        if not self._no_address:
            return
        found = [
            (instance.node, instance.private_ip)
            for instance in self._fleet.instances()
            if instance.is_alive and instance.node in self._no_address and instance.node is not None
        ]
        self._no_address -= tell_addresses(self._slurm, self._settings.ec2, found)

    def watch_boots(self) -> None:
        """Measure how long nodes took to boot."""
        if not self._booting:
            return
        snapshot, polled = self._view.fresh_poll()
        for node in snapshot.nodes:
            asked = self._booting.get(node.name)
            if asked is None or polled <= asked:
                continue
            if node.power is NodePower.UP and not node.is_down:
                pool = self._pool_of.pop(node.name, "")
                self._cloud.booted(polled - self._booting.pop(node.name), pool)
                self._resumed_jobs.booted(node.name)

    def give_back(self, job_id: int) -> None:
        """Bring a job back whose start fails before it has begun, as soon as slurmctld has requeued it."""
        self.unbegun.keep_alive([job_id])
        self._give_back([job_id])

    def _give_back(self, job_ids: Iterable[int]) -> None:
        """Remember jobs to return on-premise, because EC2 has no capacity for them now (F01)."""
        self.returning.update(job_ids)

    def return_jobs(self) -> None:
        """Return moved jobs for which EC2 had no capacity, as soon as slurmctld has requeued them.

        A job that its user sent to the burst partition stays there and waits a while: otherwise slurmctld
        would give it a node and take it away again every few seconds.
        """
        if not self.returning:
            return
        snapshot = self._view.fresh()
        known = {queued.job.job_id: queued for queued in snapshot.jobs}
        for job_id in list(self.returning):
            queued = known.get(job_id)
            moved = moved_by_us(queued)
            if queued is None or (moved is None and queued.state == RUNNING):
                self.returning.discard(job_id)
            elif queued.state != PENDING or queued.job.queue != self._settings.cluster.burst_partition:
                continue
            else:
                if moved is None:
                    changes = {"starttime": f"now+{_PATIENCE_SECONDS}"}
                else:
                    changes = {**changes_to_return(queued, moved, self._settings), "starttime": "now"}
                self._slurm.update_job([job_id], changes | self.unbegun.taken_back(job_id))
                self.unbegun.forget(job_id)
                self.returning.discard(job_id)
                log.info("job.waits_for_capacity" if moved is None else "job.returned", job=job_id, **changes)
