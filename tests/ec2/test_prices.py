"""Prices read from the emulator, kept when a read fails."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from advisor.ec2.pools import Pool
from advisor.ec2.prices import PriceCache, Prices, Quote
from advisor.model.advice import Capacity
from advisor.model.errors import TellAdmin
from advisor.service.cloud.pricing import PriceLoop, price_table
from advisor.service.state.state_files import PRICES
from advisor.testing.ec2 import Ec2Emulator

pytestmark = pytest.mark.ec2
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
MakeCache = Callable[..., PriceCache]


def spot_row(zone: str, usd: str, day: int, kind: str = "c5.xlarge") -> dict[str, Any]:
    return {
        "InstanceType": kind,
        "AvailabilityZone": zone,
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": usd,
        "Timestamp": f"2026-11-{day:02d}T00:00:00Z",
    }


def product(usd: str, **attributes: str) -> dict[str, Any]:
    known = {
        "instanceType": "c5.xlarge",
        "operatingSystem": "Linux",
        "regionCode": "us-east-1",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
    return {
        "product": {"attributes": {**known, **attributes}},
        "terms": {"OnDemand": {"x": {"priceDimensions": {"y": dimension}}}},
    }


@pytest.fixture
def make_cache(emulator: Ec2Emulator, tmp_path: Path) -> MakeCache:
    def make(now: Callable[[], float] = lambda: NOW, **changes: Any) -> PriceCache:
        return PriceCache(emulator.settings(**changes), PRICES.at(tmp_path), now)

    return make


def test_until_something_was_read_the_settings_hold(make_cache: MakeCache) -> None:
    prices = make_cache(spot_usd_per_hour=0.5, on_demand_usd_per_hour=0.9).prices
    assert (prices.spot.usd_per_hour, prices.on_demand.usd_per_hour) == (0.5, 0.9)
    assert not prices.spot.is_read
    assert prices.spot.age_seconds(NOW) == math.inf
    assert price_table(prices, NOW)["spot"] == {"usd_per_hour": 0.5, "age_seconds": None}


def test_spot_is_the_dearest_zones_newest_price(emulator: Ec2Emulator, make_cache: MakeCache) -> None:
    emulator.history(
        [
            spot_row("us-east-1a", "0.0900", 10),  # no longer in force
            spot_row("us-east-1a", "0.0500", 15),
            spot_row("us-east-1b", "0.0610", 14),
            spot_row("us-east-1b", "0.9900", 28),  # not yet in force
            spot_row("us-east-1a", "2.0000", 15, kind="p5.48xlarge"),
        ]
    )
    cache = make_cache()
    cache.refresh_spot()
    assert cache.prices.spot == Quote(0.061, NOW)


def test_spot_of_the_zones_of_our_subnets_only(emulator: Ec2Emulator, make_cache: MakeCache) -> None:
    ec2: Any = boto3.client("ec2", endpoint_url=emulator.url, region_name="us-east-1")
    subnets = {row["AvailabilityZone"]: row["SubnetId"] for row in ec2.describe_subnets()["Subnets"]}
    emulator.history([spot_row("us-east-1a", "0.0500", 15), spot_row("us-east-1b", "0.0610", 14)])
    cache = make_cache(subnet_ids=(subnets["us-east-1a"],))
    cache.refresh_spot()
    assert cache.prices.spot.usd_per_hour == 0.05


def test_each_spot_pool_has_its_own_price_where_its_zone_is_known(
    emulator: Ec2Emulator, make_cache: MakeCache
) -> None:
    ec2: Any = boto3.client("ec2", endpoint_url=emulator.url, region_name="us-east-1")
    subnets = {row["AvailabilityZone"]: row["SubnetId"] for row in ec2.describe_subnets()["Subnets"]}
    zones = ("us-east-1a", "us-east-1b", "us-east-1c")
    emulator.history([spot_row("us-east-1a", "0.0500", 15), spot_row("us-east-1b", "0.0610", 14)])
    cache = make_cache(subnet_ids=tuple(subnets[zone] for zone in zones))
    cache.refresh_spot()
    restarted = make_cache(subnet_ids=tuple(subnets[zone] for zone in zones))

    def price(prices: Prices, subnet: str | None) -> float:
        pool = Pool(option=Capacity.SPOT, instance_type="c5.xlarge", subnet_id=subnet)
        return prices.of_spot_pool(pool)

    for prices in (cache.prices, restarted.prices):
        assert [price(prices, subnets[zone]) for zone in zones] == [0.05, 0.061, 0.061]
        assert price(prices, None) == prices.spot.usd_per_hour == 0.061


def test_on_demand_is_shared_linux(emulator: Ec2Emulator, make_cache: MakeCache) -> None:
    emulator.products(
        [
            product("0.1700000000"),
            product("0.0000000000"),  # a capacity block's: no price
            product("not a number"),
            product("9.0000000000", operatingSystem="Windows"),
            product("8.0000000000", tenancy="Dedicated"),
            product("7.0000000000", regionCode="eu-west-1"),
        ]
    )
    cache = make_cache()
    cache.refresh_on_demand()
    assert cache.prices.on_demand == Quote(0.17, NOW)


def test_on_demand_of_another_region_is_asked_where_the_price_list_is(
    emulator: Ec2Emulator, make_cache: MakeCache
) -> None:
    emulator.products([product("0.1700000000"), product("0.2000000000", regionCode="eu-west-1")])
    cache = make_cache(region="eu-west-1")
    cache.refresh_on_demand()
    assert cache.prices.on_demand.usd_per_hour == 0.2


def test_the_last_good_price_outlives_a_failed_read_and_a_restart(
    emulator: Ec2Emulator, make_cache: MakeCache
) -> None:
    emulator.history([spot_row("us-east-1a", "0.0500", 15)])
    cache = make_cache()
    cache.refresh_spot()
    emulator.faults([{"action": "DescribeSpotPriceHistory", "error": {"code": "UnauthorizedOperation"}}])
    with pytest.raises(TellAdmin):
        cache.refresh_spot()
    assert cache.prices.spot.usd_per_hour == 0.05
    restarted = make_cache(lambda: NOW + 3600)
    assert restarted.prices.spot == Quote(0.05, NOW)
    assert price_table(restarted.prices, NOW + 3600)["spot"]["age_seconds"] == 3600.0
    assert not restarted.prices.on_demand.is_read


def test_a_type_without_a_price_keeps_the_last_known_one(make_cache: MakeCache) -> None:
    cache = make_cache(spot_usd_per_hour=0.5)
    cache.refresh_spot()
    cache.refresh_on_demand()
    assert cache.prices.spot == Quote(0.5)


def test_prices_of_another_type_or_region_are_not_used(emulator: Ec2Emulator, make_cache: MakeCache) -> None:
    emulator.history([spot_row("us-east-1a", "0.0500", 15)])
    make_cache().refresh_spot()
    assert make_cache().prices.spot.is_read
    assert not make_cache(instance_type="m5.xlarge").prices.spot.is_read
    assert not make_cache(region="us-west-2").prices.spot.is_read


HERE = '{"for": ["us-east-1", "c5.xlarge"], '
DAMAGED = [
    "",
    "{",
    "[1]",
    HERE + '"spot": 5, "on_demand": []}',
    HERE + '"spot": {"usd_per_hour": "cheap", "time": 1}, "on_demand": {"usd_per_hour": -1, "time": 5}}',
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_means_the_settings_prices(
    make_cache: MakeCache, emulator: Ec2Emulator, tmp_path: Path, damage: str
) -> None:
    (tmp_path / "prices.json").write_text(damage)
    assert make_cache().prices == Prices.of_settings(emulator.settings())


def test_a_file_that_cannot_be_written_costs_nothing_but_the_memory(
    emulator: Ec2Emulator, tmp_path: Path
) -> None:
    emulator.history([spot_row("us-east-1a", "0.0500", 15)])
    cache = PriceCache(emulator.settings(), PRICES.at(tmp_path / "missing"), lambda: NOW)
    cache.refresh_spot()
    assert cache.prices.spot.usd_per_hour == 0.05


def test_each_source_is_a_step_of_its_own(emulator: Ec2Emulator, make_cache: MakeCache) -> None:
    emulator.products([product("0.1700000000")])
    cache = make_cache()
    for step in PriceLoop(cache).steps():
        step.run()
    assert cache.prices.on_demand.is_read
    assert not cache.prices.spot.is_read


def test_the_file_is_plain_json(emulator: Ec2Emulator, make_cache: MakeCache, tmp_path: Path) -> None:
    emulator.products([product("0.1700000000")])
    cache = make_cache()
    cache.refresh_on_demand()
    content = json.loads((tmp_path / "prices.json").read_text())
    assert content["for"] == ["us-east-1", "c5.xlarge"]
    assert content["on_demand"]["usd_per_hour"] == 0.17
