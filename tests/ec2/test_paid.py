"""Which instances are paid for already, and how many more would be: figures of small accounts."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.ec2.account import Account, Others, Reservation, ReservedInstances, SavingsPlan
from advisor.ec2.paid import PaidBook, paid_book
from advisor.ec2.prices import Prices
from advisor.ec2.quotas import launches_left, quota_code
from advisor.model.advice import Capacity
from advisor.model.node_classes import ReservedUntil
from advisor.model.settings import Settings
from tests.service.doubles import make_instance

ON_DEMAND, SPOT = Capacity.ON_DEMAND, Capacity.SPOT
C5, M5 = "c5.xlarge", "m5.xlarge"


def bought(count: int, kind: str = C5, zone: str = "") -> ReservedInstances:
    return ReservedInstances(name=f"ri-{count}", instance_type=kind, zone=zone, count=count)


def held(name: str, total: int, **more: Any) -> Reservation:
    return Reservation(reservation_id=name, instance_type=C5, zone="us-east-1a", total=total, **more)


def ours(number: int, first: int = 1, **changes: Any) -> list[Any]:
    values: dict[str, Any] = {"option": ON_DEMAND} | changes
    return [
        make_instance(f"burst{index}", launch_time=float(index), **values)
        for index in range(first, first + number)
    ]


def book(account: Account, instances: Any = (), busy: Any = frozenset(), **settings: Any) -> PaidBook:
    known = Settings(**settings)
    return paid_book(account, known, Prices.of_settings(known.ec2), instances, busy)


def test_only_busy_nodes_use_up_a_discount_and_the_oldest_are_covered() -> None:
    found = book(Account(reserved=(bought(2),)), ours(4), {"burst4"})
    assert found.covered == {"i-burst1", "i-burst2"}
    assert found.free((C5,)) == (1, ())
    assert book(Account(reserved=(bought(2),)), ours(4), None).free((C5,)) == (0, ())


def test_spot_instances_use_up_nothing() -> None:
    found = book(Account(reserved=(bought(2),)), ours(3, option=SPOT), None)
    assert (found.covered, found.free((C5,))) == (set(), (2, ()))


def test_others_come_first_in_discounts_and_not_in_reservations() -> None:
    others = Others(on_demand={(C5, "us-east-1a"): 2, (C5, "us-east-1c"): 1, (M5, "us-east-1a"): 9})
    account = Account(
        reserved=(bought(1, zone="us-east-1a"), bought(5)), reservations=(held("cr-1", 3, others=1),)
    )
    found = book(Account(**{**_fields(account), "others": others}))
    assert {row.name: row.others for row in found.rows} == {"cr-1": 1, "ri-1": 1.0, "ri-5": 2.0}
    assert found.free((C5,)) == (2 + 0 + 3, ())


def _fields(account: Account) -> dict[str, Any]:
    return {name: getattr(account, name) for name in account.__slots__}


def test_an_instance_in_a_reservation_uses_up_that_one_alone() -> None:
    account = Account(reservations=(held("cr-1", 2), held("cr-2", 2)), reserved=(bought(1),))
    inside = ours(1, reservation_id="cr-2")
    found = book(account, [*inside, *ours(1, first=2)], None)
    assert {row.name: row.ours for row in found.rows} == {"cr-1": 0.0, "cr-2": 1.0, "ri-1": 1.0}
    assert found.covered == {"i-burst1", "i-burst2"}


def test_a_plan_pays_what_reserved_instances_do_not_and_no_more_than_its_dollars() -> None:
    plan = SavingsPlan(name="sp-1", usd_per_hour=0.3, rates={C5: 0.12})
    found = book(Account(reserved=(bought(1),), plans=(plan,)), ours(5), None)
    assert found.covered == {"i-burst1", "i-burst2", "i-burst3"}
    assert found.free((C5,)) == (0, ())
    assert book(Account(plans=(plan,))).free((C5, M5)) == (2, ())
    assert book(Account(plans=(plan,))).free((M5,)) == (0, ())


def test_what_is_declared_counts_beside_what_ec2_shows() -> None:
    account = Account(reserved=(bought(3),))
    assert book(account, capacity={"reserved_nodes": 2}).free((C5,)) == (3, ())
    assert book(account, capacity={"reserved_nodes": 5}).free((C5,)) == (5, ())
    paid = {
        "payer": {"instance_type": C5, "nodes": 4},
        "plan": {"savings_plan_usd_per_hour": 1.0, "savings_plan_rate": 0.5},
    }
    ec2 = {"paid": paid, "on_demand_usd_per_hour": 0.2}
    assert book(account, ec2=ec2).free((C5,)) == (3 + 4 + 10, ())


def test_what_ends_is_told_apart_and_taken_only_by_who_ends_before() -> None:
    account = Account(
        reservations=(held("cr-2", 2, ends_at=900.0), held("cr-1", 1, ends_at=500.0, is_block=True))
    )
    found = book(account)
    assert found.free((C5,)) == (0, (ReservedUntil(1, 500.0), ReservedUntil(2, 900.0)))
    assert [bool(found.take((C5,), 600.0)) for _ in range(3)] == [True, True, False]
    assert found.take((C5,), 400.0, reservations_only=True)
    assert not found.take((C5,), 400.0)


def test_a_discount_does_not_make_a_spot_instance_free() -> None:
    found = book(Account(reserved=(bought(1),)))
    assert not found.take((C5,), reservations_only=True)
    assert found.take((C5,))


@pytest.mark.parametrize(
    ("kind", "on_demand", "spot"),
    [
        ("c5.xlarge", "L-1216C47A", "L-34B43A08"),
        ("im4gn.large", "L-1216C47A", "L-34B43A08"),
        ("g5.xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("vt1.3xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("p4d.24xlarge", "L-417A185B", "L-7212CCBC"),
        ("inf2.xlarge", "L-1945791B", "L-B5D1601B"),
        ("x2idn.16xlarge", "L-7295265B", "L-E3A00192"),
        ("u-6tb1.metal", None, None),
        ("mac1.metal", None, None),
        ("hpc7a.96xlarge", "L-F7808C92", None),
    ],
)
def test_the_code_of_a_type_s_quota(kind: str, on_demand: str | None, spot: str | None) -> None:
    assert (quota_code(kind, ON_DEMAND), quota_code(kind, SPOT)) == (on_demand, spot)


def test_a_quota_counts_what_runs_and_what_is_held_free_but_no_block() -> None:
    account = Account(
        reservations=(held("cr-1", 2, is_block=True),),
        others=Others(on_demand={(C5, "us-east-1a"): 1}, held={C5: 1}, spot={C5: 50}),
        unused={C5: 2},
        quotas={"L-1216C47A": 32.0},
        vcpus={C5: 4},
    )
    instances = [*ours(1), *ours(1, first=2, reservation_id="cr-1"), *ours(1, first=3, option=SPOT)]
    assert launches_left(account, instances, C5, ON_DEMAND) == 8 - 1 - 1 - 2 - 1
