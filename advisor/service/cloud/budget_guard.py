"""The budget at the launch and after it: question 3 asks first, but many jobs may be answered at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from advisor.ec2.classes import class_of_nodes, instance_types_of
from advisor.ec2.errors import Failure, FailureClass
from advisor.model.advice import Capacity
from advisor.model.cluster import NodePower
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING, QueuedJob
from advisor.service.cloud.money import usd_per_hour
from advisor.service.cloud.pricing import AskPrices
from advisor.service.cloud.reckoning import Reckoning
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import burst_nodes
from advisor.service.state.budget_records import LaunchRequest, limits_of
from advisor.service.state.cloud_record import CloudRecord
from advisor.slurm.protocol import SlurmBackend

log = structlog.get_logger(__name__)

_FALLBACK: Final = {
    Capacity.RESERVED: Capacity.RESERVED,
    Capacity.SPOT: Capacity.ON_DEMAND,
    Capacity.ON_DEMAND: Capacity.ON_DEMAND,
}


class BudgetGuard:
    """Keeps spending within the budget."""

    def __init__(
        self,
        settings: Settings,
        *,
        cloud: CloudRecord,
        slurm: SlurmBackend,
        view: SharedView,
        prices: AskPrices,
        reckoning: Reckoning,
    ) -> None:
        self._settings = settings
        self._cloud = cloud
        self._slurm = slurm
        self._view = view
        self._prices = prices
        self._reckoning = reckoning
        self._limits = limits_of(settings)
        self._class_of = class_of_nodes(settings.ec2)

    def put_aside(
        self,
        nodes: Iterable[str],
        jobs: Mapping[str, QueuedJob],
        capacity_of: Mapping[str, Capacity],
    ) -> dict[str, Failure]:
        """Promise each node what its job will cost; returns the nodes that the budget forbids, and why.

        Raises:
            TellAdmin: There is a budget and promises cannot be written to disk: nothing may be launched.
        """
        prices = self._prices()
        boot = self._cloud.boot_seconds or self._settings.placement.boot_seconds
        idle = self._reckoning.idle_seconds
        requests = []
        for node in nodes:
            queued = jobs.get(node)
            option = capacity_of.get(node, Capacity.ON_DEMAND)
            # a launch may cost the dearest of its types, and of the requested capacity and its fallback
            types = instance_types_of(self._settings.ec2, self._class_of.get(node))
            options = (option, _FALLBACK[option])
            price = max(usd_per_hour(one, name, prices) for one in options for name in types)
            # a node without a job is promised a day, in which it is idle
            behind = 0.0 if queued is None else idle
            usd = price * (boot + self._reckoning.run_seconds(queued) + behind) / 3600.0
            account = queued.job.account or "" if queued is not None else ""
            requests.append(LaunchRequest(node=node, account=account, usd=usd, usd_per_hour=price))
        refused = self._cloud.budget.promise(requests, self._limits)
        return {node: Failure(FailureClass.BUDGET, "Budget", why) for node, why in refused.items()}

    def keep(self) -> set[int]:
        """Once the budget is spent or promised, let nothing more start; running jobs go on.

        Nodes take no new job and are powered down after their last one.

        Returns:
            Waiting jobs that we moved: they are to go back on-premise.
        """
        everything, accounts = self._cloud.budget.exhausted(self._limits)
        if not everything and not accounts:
            return set()
        snapshot = self._view.fresh()
        if everything:
            up = [
                node.name
                for node in burst_nodes(snapshot, self._settings)
                if node.power is NodePower.UP and not node.is_draining and not node.is_down
            ]
            if up:
                log.warning("cloud.budget_spent", nodes=up)
                self._slurm.update_node(
                    up, state="POWER_DOWN_ASAP", reason="burst advisor: the budget is spent"
                )
        return {
            queued.job.job_id
            for queued in snapshot.jobs
            if queued.state == PENDING
            and queued.job.queue == self._settings.cluster.burst_partition
            and (everything or queued.job.account in accounts)
            and moved_by_us(queued) is not None
        }
