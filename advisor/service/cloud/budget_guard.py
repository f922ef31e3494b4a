"""The budget at launches and afterwards, in the provision loop.

Question 3 has checked it at each submission, but many jobs may have been asked about at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import structlog

from advisor.ec2.errors import Failure, FailureClass
from advisor.ec2.instances import Instance
from advisor.model.advice import Capacity
from advisor.model.cluster import Node, NodePower
from advisor.model.limits import far_from_start
from advisor.model.snapshot import PENDING, ClusterSnapshot, QueuedJob
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.money import usd_per_hour
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.service.observation.site_view import burst_nodes
from advisor.service.state.budget_limits import JudgedBudgets
from advisor.service.state.budget_records import LaunchRequest, limits_of

log = structlog.get_logger(__name__)

_FALLBACK: Final = {
    Capacity.RESERVED: Capacity.ON_DEMAND,
    Capacity.SPOT: Capacity.ON_DEMAND,
    Capacity.ON_DEMAND: Capacity.ON_DEMAND,
}


class BudgetGuard:
    """Keeps spending within the budget; what is paid for already may be used whatever was spent.

    Args:
        instances: Our instances as last listed.
    """

    def __init__(self, context: CloudContext, instances: Callable[[], Sequence[Instance]]) -> None:
        self._context, self._instances = context, instances
        self._settings, self._cloud = context.settings, context.cloud
        self._paid, self._reckoning = context.paid_now(), context.reckoning()
        self._limits = limits_of(context.settings)
        portfolio = context.settings.portfolio
        # it closes all nodes then, whether they are paid for or not
        self._sends_all_back = portfolio.enabled and portfolio.limit_nodes
        self._reserved: set[str] = set()  # nodes of the last hand-over that count on a capacity reservation

    def put_aside(
        self,
        nodes: Sequence[str],
        jobs: Mapping[str, QueuedJob],
        capacity_of: Mapping[str, Capacity],
        *,
        ends: Mapping[str, float],
        listed: Sequence[Instance] | None = (),
    ) -> dict[str, Failure]:
        """Promise each node the cost of its job; return the nodes that the budget forbids, with the reason.

        The first nodes get the capacity that is paid for already and are promised nothing.

        Args:
            ends: When the jobs of a node end at the latest, epoch seconds.
            listed: The cluster's instances, including those that EC2 does not list yet; None: the nodes got
                no place in a capacity reservation. Those that were to have one are promised their cost.

        Raises:
            TellAdmin: There is a budget and promises cannot be written to disk: nothing may be launched.
        """
        prices = self._context.prices_now()
        boot = self._cloud.boot_seconds or self._settings.placement.boot_seconds
        idle, snapshot = self._reckoning.idle_seconds, self._context.view.if_fresh()
        sharing = {} if snapshot is None else snapshot.jobs_on
        free: Collection[str] = ()
        if listed is None:
            nodes = [node for node in nodes if node in self._reserved]
        asked = {node: capacity_of.get(node, Capacity.ON_DEMAND) for node in nodes}
        if listed is not None:
            payers = self._paid.free_nodes(self._paid.at_launch(listed), asked, ends)
            free = payers.keys()
            self._reserved = {node for node, row in payers.items() if row.is_of_reservation}
        requests = []
        for node in nodes:
            queued = jobs.get(node)
            option = asked[node]
            # the price is the highest of its instance types, and of the requested capacity and its fallback
            options = (option, _FALLBACK[option])
            types = self._paid.types_of(node)
            price = max(usd_per_hour(one, name, prices) for one in options for name in types)
            price = 0.0 if node in free else price
            # a node without a job is promised the cost of a day, in which it may be idle
            behind = 0.0 if queued is None else idle
            run = max(self._reckoning.run_seconds(one) for one in (queued, *sharing.get(node, ())))
            usd = price * (boot + run + behind) / 3600.0
            account, user = ("", "") if queued is None else (queued.job.account or "", queued.job.user or "")
            requests.append(LaunchRequest(node=node, account=account, user=user, usd=usd, usd_per_hour=price))
        refused = self._cloud.budget.promise(requests, self._limits) if requests else {}
        return {node: Failure(FailureClass.BUDGET, "Budget", why) for node, why in refused.items()}

    def keep(self) -> set[int]:
        """Once the budget is spent or promised, let nothing more start; running jobs go on.

        Nodes that cost money take no new job and are powered down after their last one.

        Returns:
            The moved jobs that wait for a node that costs money; they are to return on-premise. Before the
            budget is spent, those for which too little is left, where they may begin on a node that is up:
            no launch asks for their money.
        """
        if not self._limits:
            return set()
        everything, payers = self._cloud.budget.exhausted(self._limits)
        if not everything and not payers and not self._instances():
            return set()
        snapshot = self._context.view.fresh()
        up = self._up_for_money(snapshot)
        if everything and up:
            log.warning("cloud.budget_spent", nodes=[node.name for node in up])
            self._context.slurm.update_node(
                [node.name for node in up],
                state="POWER_DOWN_ASAP",
                reason="burst advisor: the budget is spent",
            )
        waiting = [
            queued
            for queued in snapshot.jobs
            if queued.state == PENDING
            and queued.job.queue == self._settings.cluster.burst_partition
            and (moved := moved_by_us(queued)) is not None
            and (moved.capacity != Capacity.RESERVED or self._sends_all_back)
        ]
        back = {q.job.job_id for q in waiting if everything or not payers.isdisjoint(q.job.payers)}
        return back | (self._too_dear(waiting, up, snapshot) if waiting and up else set())

    def _too_dear(
        self, waiting: Sequence[QueuedJob], up: Sequence[Node], snapshot: ClusterSnapshot
    ) -> set[int]:
        """Jobs that may begin on nodes that are up, and whose longest run is not covered by what is left."""
        prices, names = self._context.prices_now(), {node.name for node in up}
        of_nodes = (
            usd_per_hour(item.option, item.instance_type, prices)
            for item in self._instances()
            if item.is_alive and item.node in names
        )
        price = max(of_nodes, default=0.0)
        cores, memory = min(node.processors for node in up), min(node.memory_mb for node in up)
        budgets = JudgedBudgets(self._limits, self._cloud.budget.books(), self._context.clock.wall())
        far, found = far_from_start(snapshot.jobs, self._settings.cluster.burst_partition), set[int]()
        for queued in sorted(waiting, key=lambda queued: -queued.priority):
            job = queued.job
            if job.job_id in far:
                continue
            nodes = min(len(up), job.array_tasks * job.nodes_of_size(cores, memory))
            usd = nodes * price * self._reckoning.run_seconds(queued) / 3600.0
            asked = LaunchRequest(
                node="", account=job.account or "", user=job.user or "", usd=usd, usd_per_hour=price
            )
            if budgets.refusal(asked):
                found.add(job.job_id)
        return found

    def _up_for_money(self, snapshot: ClusterSnapshot) -> list[Node]:
        """Nodes that are up and not paid for already; none before EC2 was listed: that is not known then."""
        listed = self._instances()
        covered = self._paid.at_launch(listed).covered
        paid = {item.node for item in listed if item.instance_id in covered}
        return [
            node
            for node in burst_nodes(snapshot, self._settings)
            if listed and node.power is NodePower.UP and not (node.is_draining or node.is_down)
            if node.name not in paid
        ]
