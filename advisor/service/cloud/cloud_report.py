"""The cloud in `advisor nodes`, `pools`, `spend` and `/metrics`: from what the loops know, without calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Final, TypeAlias

from advisor.ec2.instances import Instance
from advisor.ec2.paid import paid_table
from advisor.ec2.pools import Pool, Target, UnavailablePools, instance_types, pools_for, quota_of
from advisor.ec2.quotas import vcpus_used
from advisor.ec2.reports import pool_of
from advisor.model.advice import Capacity
from advisor.model.bill import Rows
from advisor.model.cluster import Node
from advisor.model.periods import is_user
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.money import usd_per_hour
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.cloud.reconciling import ReconcileLoop
from advisor.service.observation.site_view import burst_nodes
from advisor.service.state.budget_records import limits_of

_DAYS_SHOWN: Final = 31

DescribeNode: TypeAlias = Callable[[Node | None], Mapping[str, Any]]
"""Further columns of a node in the table of nodes; with None, those of an instance without a node."""


class CloudReport:
    """The data of `advisor nodes`, `advisor pools`, `advisor spend` and the metrics.

    Args:
        today: The day's bill as of the learn loop's last round; None before it.
    """

    def __init__(
        self,
        context: CloudContext,
        *,
        provision: ProvisionLoop,
        reconcile: ReconcileLoop,
        breakers: UnavailablePools | None,
        describe_node: DescribeNode = lambda _node: {},
        today: Callable[[], Rows | None] = lambda: None,
    ) -> None:
        self._settings, self._view, self._clock = context.settings, context.view, context.clock
        self._cloud, self._interruptions = context.cloud, context.interruptions
        self._prices, self._paid, self._account = context.prices_now, context.paid_now(), context.account
        self._provision = provision
        self._reconcile = reconcile
        self._breakers = breakers
        self._describe_node = describe_node
        self.today = today

    def everything(self) -> dict[str, Any]:
        """All tables and the counters."""
        return {
            "nodes": self.nodes(),
            "pools": self.pools(),
            "paid": self.paid(),
            "quotas": self.quotas(),
            "spend": self.spend(),
            "counters": self.counters(),
            "protected": self._cloud.protected,
        }

    def paid(self) -> list[dict[str, Any]]:
        """The capacity that is paid for already, how much of it is in use, and by whom."""
        nodes = burst_nodes(self._snapshot(), self._settings)
        book = self._paid.at_poll(nodes, self._reconcile.last_listed)
        return paid_table(book.rows, instance_types(self._settings.ec2))

    def quotas(self) -> list[dict[str, Any]]:
        """Quotas of vCPUs of the site's types, and how much of each the account uses."""
        account = self._account()
        return [
            {
                "code": code,
                "vcpus": vcpus,
                "used_vcpus": vcpus_used(account, self._reconcile.last_listed, code),
            }
            for code, vcpus in sorted(account.quotas.items())
        ]

    def nodes(self) -> list[dict[str, Any]]:
        """Nodes of the burst partition that have an instance or are on, and instances without a node."""
        snapshot = self._snapshot()
        known = {node.name: node for node in burst_nodes(snapshot, self._settings)}
        alive = [item for item in self._reconcile.last_listed if item.may_cost]
        with_instance = {item.node for item in alive}
        on_node = {name: [queued.job.job_id for queued in jobs] for name, jobs in snapshot.jobs_on.items()}
        notices = self._interruptions.notices()
        covered = self._paid.at_launch(alive).covered
        rows = [
            self._row(known.get(item.node or ""), item.node, on_node)
            | self._of_instance(item, notices, is_paid_for=item.instance_id in covered)
            for item in alive
        ]
        rows += [
            self._row(node, name, on_node)
            for name, node in known.items()
            if name not in with_instance and node.power.value != "powered_down"
        ]
        return sorted(rows, key=lambda row: (row["node"] or "", row["instance_id"] or ""))

    def _snapshot(self) -> ClusterSnapshot:
        return self._view.if_fresh() or ClusterSnapshot(time=0.0, jobs=(), nodes=())

    def _row(self, node: Node | None, name: str | None, on_node: Mapping[str, list[int]]) -> dict[str, Any]:
        """The row of a node, or of the node that an instance names, without the instance's columns."""
        return {
            "node": name,
            "power": node.power.value if node is not None else None,
            "states": sorted(node.states) if node is not None else [],
            "jobs": on_node.get(name or "", []),
            "instance_id": None,
            "instance_state": None,
            "capacity": None,
            "pool": None,
            "zone": None,
            "age_seconds": None,
            "usd_per_hour": None,
            "notices": {},
            **self._describe_node(node),
        }

    def _of_instance(
        self, instance: Instance, notices: Mapping[str, dict[str, float]], *, is_paid_for: bool
    ) -> dict[str, Any]:
        """The columns of an instance; a stopped one, or one that is paid for already, costs nothing more."""
        launched = instance.launch_time
        price = usd_per_hour(instance.option, instance.instance_type, self._prices())
        return {
            "instance_id": instance.instance_id,
            "instance_state": instance.state,
            "capacity": instance.option.value,
            "pool": pool_of(instance).key,
            "zone": instance.zone,
            "age_seconds": max(0.0, self._clock.wall() - launched) if launched else None,
            "usd_per_hour": price if instance.is_alive and not is_paid_for else 0.0,
            "notices": notices.get(instance.instance_id, {}),
        }

    def pools(self) -> list[dict[str, Any]]:
        """Every pool that a launch may use, in the order of the purchase options, and what is known of it."""
        found: dict[str, Pool] = {}
        for requested in (Capacity.RESERVED, Capacity.SPOT):
            every = pools_for(requested, self._settings.ec2, instance_types(self._settings.ec2))
            found |= {pool.key: pool for pool in every}
        found = {pool.key: pool for pool in self._reservations()} | found
        closed = self._breakers.unavailable() if self._breakers is not None else {}
        boots = self._cloud.boot_times()
        instances, prices = self._instances_by_pool(found), self._prices()
        rows = []
        for key, pool in found.items():
            why = closed.get(key) or closed.get(quota_of(pool))
            times = boots.get(key)
            rows.append(
                {
                    "pool": key,
                    "capacity": pool.option.value,
                    "instance_type": pool.instance_type,
                    "subnet": pool.subnet_id,
                    "open": why is None,
                    "closed_until": why["until"] if why else None,
                    "closed_by": why["code"] if why else None,
                    "instances": instances[key],
                    "launches": self._provision.launches[key],
                    "boots": times.boots if times else 0,
                    "boot_median_seconds": times.median_seconds if times else None,
                    "boot_p90_seconds": times.p90_seconds if times else None,
                    "usd_per_hour": prices.of_spot_pool(pool)
                    if pool.option is Capacity.SPOT
                    else usd_per_hour(pool.option, pool.instance_type, prices),
                }
            )
        return rows

    def _reservations(self) -> Iterator[Pool]:
        account = self._account()
        for each in account.reservations:
            target = Target(reservation_id=each.reservation_id, zone=each.zone, is_block=each.is_block)
            in_zone = (name for name, zone in account.zones.items() if zone == each.zone)
            yield Pool(
                option=Capacity.RESERVED,
                instance_type=each.instance_type,
                subnet_id=next(in_zone, None),
                target=target,
            )

    def _instances_by_pool(self, pools: dict[str, Pool]) -> Counter[str]:
        """Instances of each pool that may cost money.

        Where the settings name no subnet, EC2 uses and lists the default one: such an instance belongs to the
        pool without a subnet.
        """
        counted: Counter[str] = Counter()
        for item in self._reconcile.last_listed:
            if not item.may_cost:
                continue
            pool = pool_of(item)
            without = replace(pool, subnet_id=None)
            counted[pool.key if pool.key in pools else without.key] += 1
        return counted

    def spend(self) -> dict[str, Any]:
        """What was spent beside the budget, and on each of the last days; the bill has the share of each job.

        ``in_doubt`` and ``rebuilt_today`` are reasons; ``launches_wait``: nothing is launched for the doubt.
        """
        budget, settings = self._cloud.budget, self._settings.budget
        limits = limits_of(self._settings)
        (spent, by_account), (promised, promised_by_account) = budget.exposure(
            settings.period, settings.account_period, settings.user_period
        )
        days = sorted(budget.days().items())[-_DAYS_SHOWN:]
        return {
            "spent_today_usd": budget.spent_today()[0],
            "spent_usd": spent,
            "spent_by_account": {name: usd for name, usd in by_account.items() if not is_user(name)},
            "in_doubt": budget.doubt or None,
            "launches_wait": budget.is_in_the_way(limits),
            "rebuilt_today": budget.rebuilt_today or None,
            "promised_usd": promised,
            "promised_by_account": {
                name: usd for name, usd in promised_by_account.items() if not is_user(name)
            },
            "budget_usd": settings.usd or None,
            "budget_period": settings.period,
            "account_budgets_usd": dict(settings.accounts),
            "budgets": [asdict(one) for one in budget.budgets(limits)],
            "began": budget.began,
            "days": [
                {
                    "day": day,
                    "usd": sum(accounts.values()),
                    "by_account": {name: usd for name, usd in accounts.items() if name},
                }
                for day, accounts in days
            ],
        }

    def counters(self) -> dict[str, Any]:
        """Counters since the start: refusals by code, boots, interruptions, orphans."""
        succeeded, failed = self._cloud.boots_seen
        return {
            "refusals": dict(self._provision.refusals),
            "boots_succeeded": succeeded,
            "boots_failed": failed,
            "interruptions": dict(self._interruptions.totals),
            "orphans_collected": self._reconcile.orphans_collected,
            "nodes_lost": self._reconcile.nodes_lost,
            "handovers_set_aside": self._provision.folder.set_aside_since_start,
            "handovers_stuck": list(self._provision.folder.stuck),
        }
