"""What is read of an account, from the emulator: what is paid for already, others' instances, quotas."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from advisor.ec2.paid import PaidBook, PaidKind, paid_book
from advisor.ec2.prices import Prices
from advisor.ec2.quotas import launches_left
from advisor.ec2.reading_account import AccountCache
from advisor.model.advice import Capacity
from advisor.model.errors import RetryLater
from advisor.model.settings import Settings
from advisor.testing.ec2 import Ec2Emulator

pytestmark = pytest.mark.ec2
MakeCache = Callable[..., AccountCache]
SITE_TYPE = ("c5.xlarge",)
END = datetime(2030, 5, 1, tzinfo=UTC)


def reserved_row(count: int, **changes: Any) -> dict[str, Any]:
    row = {
        "ReservedInstancesId": f"ri-{count}",
        "InstanceType": "c5.xlarge",
        "InstanceCount": count,
        "State": "active",
        "ProductDescription": "Linux/UNIX",
        "FixedPrice": 0.0,
        "UsagePrice": 0.0,
        "RecurringCharges": [{"Amount": 0.1, "Frequency": "Hourly"}],
        "Duration": 31536000,
    }
    return {**row, **changes}


def reservation_row(name: str, total: int, **changes: Any) -> dict[str, Any]:
    row = {
        "CapacityReservationId": name,
        "InstanceType": "c5.xlarge",
        "AvailabilityZone": "us-east-1a",
        "TotalInstanceCount": total,
    }
    return {**row, **changes}


@pytest.fixture
def make_cache(emulator: Ec2Emulator) -> MakeCache:
    return lambda **changes: AccountCache(emulator.settings(**changes), "c1")


def book(cache: AccountCache, emulator: Ec2Emulator, **changes: Any) -> PaidBook:
    settings = Settings(ec2=emulator.settings(**changes))
    return paid_book(cache.account, settings, Prices.of_settings(settings.ec2), (), frozenset())


def run(ec2: Any, number: int, **more: Any) -> None:
    """Launch as somebody else."""
    request = {"ImageId": "ami-12c6146b", "InstanceType": "c5.xlarge", "MinCount": number, "MaxCount": number}
    ec2.run_instances(**{**request, **more})


def test_reserved_instances_are_counted_and_their_share_of_the_advance(
    emulator: Ec2Emulator, make_cache: MakeCache
) -> None:
    emulator.reserved(
        [
            reserved_row(3),
            reserved_row(1, FixedPrice=8760.0 * 0.3, RecurringCharges=[]),  # a year in advance
            reserved_row(50, State="retired"),
            reserved_row(60, InstanceType="m5.xlarge"),
            reserved_row(70, ProductDescription="Windows"),
        ]
    )
    cache = make_cache()
    cache.refresh_reserved()
    assert {(each.count, round(each.usd_per_hour, 6)) for each in cache.account.reserved} == {
        (3, 0.1),
        (1, 0.3),
    }
    assert book(cache, emulator).free(SITE_TYPE) == (4, ())


def test_reserved_for_a_zone_we_do_not_use_is_not_counted(
    emulator: Ec2Emulator, make_cache: MakeCache, subnets: dict[str, str]
) -> None:
    emulator.reserved([reserved_row(3), reserved_row(5, AvailabilityZone="us-east-1c")])
    cache = make_cache(subnet_ids=(subnets["us-east-1a"],))
    cache.refresh_reservations()
    cache.refresh_reserved()
    assert book(cache, emulator).free(SITE_TYPE) == (3, ())


def test_no_reserved_instances_is_an_answer_too(emulator: Ec2Emulator, make_cache: MakeCache) -> None:
    emulator.reserved([reserved_row(3)])
    cache = make_cache()
    cache.refresh_reserved()
    emulator.reset()
    cache.refresh_reserved()
    assert cache.account.reserved == ()


def test_an_html_page_is_a_server_that_does_not_answer(emulator: Ec2Emulator, make_cache: MakeCache) -> None:
    emulator.reserved([reserved_row(3)])
    cache = make_cache()
    cache.refresh_reserved()
    page = {"status": 400, "body": "<!doctype html>\n<html lang=en>\n<title>500</title><p>x"}
    emulator.faults([{"action": "DescribeReservedInstances", "http": page}])
    with pytest.raises(RetryLater):
        cache.refresh_reserved()
    assert len(cache.account.reserved) == 1  # what was read before stays


def test_others_of_the_account_use_up_reserved_instances(
    emulator: Ec2Emulator, make_cache: MakeCache, ec2: Any
) -> None:
    emulator.reserved([reserved_row(5)])
    run(ec2, 2)
    run(ec2, 3, InstanceMarketOptions={"MarketType": "spot"})
    run(ec2, 1, InstanceType="m5.xlarge")
    cache = make_cache()
    cache.refresh_reservations()
    cache.refresh_reserved()
    assert book(cache, emulator).free(SITE_TYPE) == (3, ())


def test_only_reservations_that_are_ours_to_use_are_counted(
    emulator: Ec2Emulator, make_cache: MakeCache, subnets: dict[str, str]
) -> None:
    tag = [{"Key": "advisor:cluster", "Value": "c1"}]
    targeted = {"InstanceMatchCriteria": "targeted"}
    emulator.reservations(
        [
            reservation_row("cr-01", 8, others=3),
            reservation_row("cr-02", 4, **targeted),  # another team's
            reservation_row("cr-03", 2, **targeted, Tags=tag),
            reservation_row("cr-04", 1, **targeted),  # the settings name it
            reservation_row("cr-05", 16, AvailabilityZone="us-east-1c"),
            reservation_row("cr-06", 32, State="expired"),
            reservation_row("cr-07", 64, InstancePlatform="Windows"),
        ]
    )
    ours = {"subnet_ids": (subnets["us-east-1a"],), "paid": {"mpi": {"reservation_id": "cr-04"}}}
    cache = make_cache(**ours)
    cache.refresh_reservations()
    found = book(cache, emulator, **ours)
    assert {row.name: row.places(SITE_TYPE) for row in found.rows} == {"cr-01": 5, "cr-03": 2, "cr-04": 1}
    assert found.free(SITE_TYPE) == (8, ())


def test_a_capacity_block_is_used_until_half_an_hour_before_its_end(
    emulator: Ec2Emulator, make_cache: MakeCache
) -> None:
    rows = [reservation_row("cr-01", 2, EndDate=END.isoformat())]
    rows.append(reservation_row("cr-02", 3, EndDate=END.isoformat(), ReservationType="capacity-block"))
    emulator.reservations(rows)
    cache = make_cache()
    cache.refresh_reservations()
    found = book(cache, emulator)
    assert [row.kind for row in found.rows] == [PaidKind.BLOCK, PaidKind.RESERVATION]
    cache = AccountCache(emulator.settings(), "c1", uses_blocks=False)
    cache.refresh_reservations()
    assert [each.reservation_id for each in cache.account.reservations] == ["cr-01"]
    _, until = found.free(SITE_TYPE)
    assert [(each.nodes, each.until) for each in until] == [
        (3, END.timestamp() - 1800.0),
        (2, END.timestamp()),
    ]


def test_a_savings_plan_pays_for_what_its_rates_buy(
    emulator: Ec2Emulator, make_cache: MakeCache, ec2: Any
) -> None:
    plan = {"savingsPlanId": "sp-1", "state": "active", "commitment": "1.0"}
    rates = {"c5.xlarge": "0.12", "m5.xlarge": "0.15"}
    other = {"savingsPlanId": "sp-2", "state": "active", "commitment": "9.0", "region": "eu-west-1"}
    emulator.savings([{**plan, "rates": rates}, other])
    run(ec2, 2, InstanceType="m5.xlarge")
    cache = make_cache()
    cache.refresh_reservations()
    cache.refresh_plans()
    # of a dollar an hour, others use 30 cents
    assert book(cache, emulator).free(SITE_TYPE) == (int(0.7 / 0.12), ())


def test_quotas_are_read_by_code_and_count_the_whole_account(
    emulator: Ec2Emulator, make_cache: MakeCache, ec2: Any
) -> None:
    run(ec2, 2, InstanceType="m5.2xlarge")
    emulator.quotas({"on-demand": 40})
    cache = make_cache()
    cache.refresh_reservations()
    cache.refresh_quotas()
    assert cache.account.quotas == {"L-1216C47A": 40.0}
    assert launches_left(cache.account, (), "c5.xlarge", Capacity.ON_DEMAND) == (40 - 16) // 4
    assert launches_left(cache.account, (), "c5.xlarge", Capacity.SPOT) == math.inf  # no such quota is known
    emulator.reservations([reservation_row("cr-01", 3)])
    cache.refresh_reservations()
    assert launches_left(cache.account, (), "c5.xlarge", Capacity.ON_DEMAND) == (40 - 16 - 12) // 4


def test_a_quota_counts_reservations_of_every_type_and_what_others_run_in_them(
    emulator: Ec2Emulator, make_cache: MakeCache, ec2: Any
) -> None:
    """Their vCPUs were taken for free: EC2 refused the launch, which closed on-demand for an hour."""
    emulator.quotas({"on-demand": 40})
    emulator.reservations([reservation_row("cr-01", 3, InstanceType="m5.2xlarge")])
    inside = {"CapacityReservationSpecification": {"CapacityReservationTarget": {}}}
    inside["CapacityReservationSpecification"]["CapacityReservationTarget"]["CapacityReservationId"] = "cr-01"
    run(ec2, 1, InstanceType="m5.2xlarge", **inside)
    cache = make_cache()
    cache.refresh_reservations()
    cache.refresh_quotas()
    assert cache.account.reservations == ()
    assert launches_left(cache.account, (), "c5.xlarge", Capacity.ON_DEMAND) == (40 - 24) // 4
