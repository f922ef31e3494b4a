"""The cost of running instances, added to the record of spending, which is rebuilt if it is in doubt.

The reconcile loop counts in each round, the provision loop before each launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from advisor.ec2.instances import Instance
from advisor.model.bill import PaidTime, midnight
from advisor.model.errors import AdvisorError, TellAdmin
from advisor.model.periods import period_span
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.money import alive_by_node, running_nodes, usd_per_hour
from advisor.service.observation.site_view import burst_nodes
from advisor.service.state.budget_records import RunningNode, limits_of


class Bookkeeping:
    """Keeps the budget up to date."""

    def __init__(self, context: CloudContext) -> None:
        self._context = context
        self._settings, self._budget = context.settings, context.cloud.budget
        self._paid, self._reckoning = context.paid_now(), context.reckoning()
        self._limits = limits_of(context.settings)

    def count(self, listed: Sequence[Instance]) -> None:
        """Add the cost of the instances that EC2 lists to the spending of the accounts that use them.

        Raises:
            AdvisorError: Earlier spending is in doubt and cannot be rebuilt yet. Running instances were
                counted all the same.
        """
        problem: AdvisorError | None = None
        if self._budget.doubt:
            try:
                self._rebuild(listed)
            except AdvisorError as error:
                problem = error
        if not self._budget.doubt or problem is not None:
            self._budget.count(self._running(listed))
        if problem is not None:
            raise problem

    def renew(self, listed: Sequence[Instance]) -> None:
        """Promise the nodes that are up what their jobs of the last poll may still cost."""
        self._budget.renew(self._running(listed))

    def settle(self, instances: Callable[[], Sequence[Instance]]) -> None:
        """Before a launch: make sure that it is known what was spent.

        Raises:
            AdvisorError: It is not known and cannot be rebuilt yet: nothing may be launched.
        """
        if self._budget.is_in_the_way(self._limits):
            self._rebuild(instances())

    def _rebuild(self, listed: Sequence[Instance]) -> None:
        paid: Iterable[PaidTime] | None = None
        now = self._context.clock.wall()
        begins = [period_span(now, limit.period)[0] for limit in self._limits]
        since = min(begins, default=midnight(now))
        if self._budget.needs_history(since):
            try:
                paid = self._context.paid_since(since)
            except AdvisorError as error:
                if self._limits:
                    raise TellAdmin(
                        f"{self._budget.doubt}, and the history cannot be read ({error}): "
                        "nothing is launched until the spending is known, or until the next period of each "
                        "budget has begun (UTC). Mend the history: `advisor doctor` says how",
                        code="budget.unknown",
                    ) from error
                paid = ()
        prices = self._context.prices_now()
        ended = [
            RunningNode(
                instance_id=item.instance_id,
                node=item.node or "",
                usd_per_hour=usd_per_hour(item.option, item.instance_type, prices),
                launch_time=item.launch_time,
            )
            for item in listed
            if not item.is_alive and item.launch_time
        ]
        self._budget.rebuild(self._running(listed, promises_lost=True), ended, paid, since)

    def _running(self, listed: Sequence[Instance], *, promises_lost: bool = False) -> list[RunningNode]:
        snapshot = self._context.view.fresh()
        nodes = {node.name: node for node in burst_nodes(snapshot, self._settings)}
        prices = self._context.prices_now()
        covered = self._paid.at_launch(listed).covered
        alive = alive_by_node(listed, nodes)
        found = running_nodes(
            snapshot,
            nodes,
            alive,
            prices,
            covered=covered,
            promises_lost=promises_lost,
            run_seconds=self._reckoning.run_seconds,
            idle_seconds=self._reckoning.idle_seconds,
        )
        # orphans and second instances of a node are soon terminated: until then they cost money, too
        return found + [
            RunningNode(
                instance_id=item.instance_id,
                node=item.instance_id,
                usd_per_hour=usd_per_hour(item.option, item.instance_type, prices),
                launch_time=item.launch_time,
                left_usd=0.0,
            )
            for item in listed
            if item.is_alive and alive.get(item.node or "") is not item
        ]
