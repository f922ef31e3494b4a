"""Which instances are paid for already, and how many more would be: asked at each poll and launch. Pure.

A capacity reservation pays for the instances in it. Reserved instances are a discount that EC2 gives to any
running instance of their type, so those of others of the account use them up as well: others are counted
first, because it is not known whose instance gets the discount. A Savings Plan pays so many dollars an hour
of what is left, at its own rates; instances beyond that cost the on-demand price.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from advisor.ec2.account import Account, ReservedInstances, SavingsPlan
from advisor.ec2.instances import Instance
from advisor.ec2.pools import instance_types
from advisor.ec2.prices import Prices
from advisor.model.advice import Capacity
from advisor.model.node_classes import ReservedUntil
from advisor.model.settings import Settings

_ROUNDING: Final = 1e-9


class PaidKind(enum.StrEnum):
    """The kind of capacity that was bought."""

    BLOCK = "capacity block"
    RESERVATION = "capacity reservation"
    RESERVED = "reserved instances"
    PLAN = "Savings Plan"


@dataclass(slots=True, kw_only=True)
class PaidRow:
    """One purchase, and what of it is in use now.

    Attributes:
        name: EC2's id, or the name in the settings.
        instance_type: Empty for a Savings Plan, which has rates.
        zone: Empty: any.
        total, others, ours, covering: Instances, of a Savings Plan dollars an hour: all, used by others, by
            our nodes with a job, and by all our nodes.
        until: When it ends, epoch seconds.
        usd_per_hour: What one costs, used or not; 0 where that is unknown.
        rates: Dollars an hour by instance type.
    """

    kind: PaidKind
    name: str
    total: float
    instance_type: str = ""
    zone: str = ""
    others: float = 0.0
    ours: float = 0.0
    covering: float = 0.0
    until: float = math.inf
    usd_per_hour: float = 0.0
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_of_reservation(self) -> bool:
        """Whether instances are launched in it, so that it says itself which they are."""
        return self.kind in (PaidKind.BLOCK, PaidKind.RESERVATION)

    def share(self, instance_type: str, zone: str = "") -> float | None:
        """The share of it that one instance uses; None: it does not apply to such an instance."""
        if self.kind is PaidKind.PLAN:
            return self.rates.get(instance_type)
        fits = instance_type == self.instance_type and not (zone and self.zone and zone != self.zone)
        return 1.0 if fits else None

    def places(self, types: Collection[str]) -> int:
        """How many more nodes of any of these types it pays for."""
        shares = [share for each in types if (share := self.share(each)) is not None]
        left = self.total - self.others - self.ours
        return max(0, int(left / max(shares) + _ROUNDING)) if shares else 0


@dataclass(slots=True)
class PaidBook:
    """All purchases, and which of our instances they pay for.

    Attributes:
        rows: The capacity that is paid for, in the order in which it is used.
        covered: Ids of the instances that are paid for.
    """

    rows: list[PaidRow]
    covered: set[str] = field(default_factory=set)

    def free(self, types: Collection[str]) -> tuple[int, tuple[ReservedUntil, ...]]:
        """How many nodes of these types are paid for and have no job: for ever, and until some moment.

        What is left of a Savings Plan is shown to each class; a launch counts it once.
        """
        found = [(row.until, row.places(types)) for row in self.rows]
        ending = (ReservedUntil(nodes, until) for until, nodes in found if nodes and until < math.inf)
        lasting = sum(nodes for until, nodes in found if until == math.inf)
        return lasting, tuple(sorted(ending, key=lambda each: each.until))

    def take(
        self, types: Collection[str], until: float = 0.0, *, reservations_only: bool = False
    ) -> PaidRow | None:
        """Use one node's place, of what lasts until a moment (epoch seconds); None where there is none.

        ``reservations_only``: for a node to be launched as spot. It is launched in a capacity reservation
        instead where one has room; no discount applies to it.
        """
        for row in self.rows:
            if reservations_only and not row.is_of_reservation:
                continue
            if row.until >= until and row.places(types):
                row.ours += max(share for each in types if (share := row.share(each)) is not None)
                return row
        return None

    def _count(self, item: Instance, *, is_busy: bool) -> None:
        """Find what pays for one of our instances."""
        for row in self.rows:
            share = row.share(item.instance_type, item.zone)
            if share is None or (row.is_of_reservation and row.name != item.reservation_id):
                continue
            most = row.total - row.others + _ROUNDING
            is_in = row.is_of_reservation
            if item.instance_id not in self.covered and (is_in or row.covering + share <= most):
                row.covering += share
                self.covered.add(item.instance_id)
            if is_busy and (is_in or row.ours + share <= most):
                row.ours += share
                return


def paid_book(
    account: Account,
    settings: Settings,
    prices: Prices,
    ours: Iterable[Instance],
    busy: Collection[str] | None = None,
) -> PaidBook:
    """Count what is paid for.

    Args:
        busy: Nodes that have a job; None: all, which leaves what more could be launched.
    """
    book = PaidBook(_rows(account, settings, prices))
    _count_others(book, account)
    alive = [item for item in ours if item.is_alive and item.option is not Capacity.SPOT]
    for item in sorted(alive, key=lambda item: (item.launch_time, item.instance_id)):
        book._count(item, is_busy=busy is None or item.node in busy)  # noqa: SLF001 -- of this module
    return book


def _rows(account: Account, settings: Settings, prices: Prices) -> list[PaidRow]:
    zones = frozenset(account.zones.values())
    rows = [
        PaidRow(
            kind=PaidKind.BLOCK if each.is_block else PaidKind.RESERVATION,
            name=each.reservation_id,
            instance_type=each.instance_type,
            zone=each.zone,
            total=each.total,
            others=each.others,
            until=each.ends_at,
        )
        for each in sorted(account.reservations, key=lambda each: (not each.is_block, each.ends_at))
        if not zones or each.zone in zones
    ]
    reserved = [*account.reserved, *_declared(account, settings)]
    rows += [
        PaidRow(
            kind=PaidKind.RESERVED,
            name=bought.name,
            instance_type=bought.instance_type,
            zone=bought.zone,
            total=bought.count,
            usd_per_hour=bought.usd_per_hour,
        )
        for bought in sorted(reserved, key=lambda bought: not bought.zone)
        if not (zones and bought.zone) or bought.zone in zones
    ]
    plans = (*account.plans, *_declared_plans(settings, prices))
    rows += [
        PaidRow(kind=PaidKind.PLAN, name=each.name, total=each.usd_per_hour, rates=each.rates)
        for each in plans
    ]
    return rows


def _declared(account: Account, settings: Settings) -> list[ReservedInstances]:
    """Reserved instances of the settings, beyond those of ``ec2.instance_type`` that EC2 shows."""
    kind = settings.ec2.instance_type
    shown = sum(each.count for each in account.reserved if each.instance_type == kind)
    more = max(0, settings.capacity.reserved_nodes - shown)
    found = [
        ReservedInstances(name=name, instance_type=each.instance_type, zone=each.zone, count=each.nodes)
        for name, each in settings.ec2.paid.items()
        if each.nodes
    ]
    if more:
        name = "capacity.reserved_nodes"
        found.append(ReservedInstances(name=name, instance_type=kind, zone="", count=more))
    return found


def _declared_plans(settings: Settings, prices: Prices) -> list[SavingsPlan]:
    return [
        SavingsPlan(
            name=name,
            usd_per_hour=each.savings_plan_usd_per_hour,
            rates={
                kind: each.savings_plan_rate * prices.of(kind).on_demand.usd_per_hour
                for kind in instance_types(settings.ec2)
            },
        )
        for name, each in settings.ec2.paid.items()
        if each.savings_plan_usd_per_hour
    ]


def _count_others(book: PaidBook, account: Account) -> None:
    """Let others' instances use reserved instances and plans, in the order of the rows."""
    for (kind, zone), number in account.others.on_demand.items():
        left = float(number)
        for row in book.rows:
            share = row.share(kind, zone)
            if share is None or row.is_of_reservation or left <= 0.0:
                continue
            taken = min(left, (row.total - row.others) / share)
            row.others += taken * share
            left -= taken


def paid_table(rows: Sequence[PaidRow], types: Collection[str]) -> list[dict[str, object]]:
    """The purchases for people and machines; ``free`` counts nodes of the site's types."""
    return [
        {
            "kind": row.kind.value,
            "name": row.name,
            "instance_type": row.instance_type or None,
            "zone": row.zone or None,
            "total": row.total,
            "unit": "USD/h" if row.kind is PaidKind.PLAN else "instances",
            "used_by_others": row.others,
            "used_by_us": row.ours,
            "free_nodes": row.places(types),
            "until": row.until if row.until < math.inf else None,
            "usd_per_hour": row.usd_per_hour or None,
        }
        for row in rows
    ]
