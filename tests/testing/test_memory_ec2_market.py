"""What the EC2 in memory sells: room by traces, prices in steps, stock-outs and quotas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from botocore.exceptions import ClientError

from advisor.ec2.prices import PriceCache
from advisor.model.settings_cloud import Ec2Settings
from advisor.service.state.state_files import PRICES
from advisor.testing.manual_clock import ManualClock
from advisor.testing.memory_ec2 import MemoryEc2
from advisor.testing.memory_ec2_market import ON_DEMAND, SPOT, Ec2Market, Steps, StockOut

BEGIN = 1_800_000_000.0


def steps(*values: float, gap: float = 1000.0) -> Steps:
    return Steps(BEGIN, np.arange(len(values)) * gap, np.array(values), len(values) * gap)


def account(clock: ManualClock, market: Ec2Market) -> MemoryEc2:
    return MemoryEc2(now=lambda: clock.wall, market=market)


def launch(ec2: MemoryEc2, token: str, most: int = 1, *, spot: bool = False, least: int = 1) -> int:
    request: dict[str, Any] = {
        "ImageId": "ami-1", "InstanceType": "c5.xlarge", "MinCount": least, "MaxCount": most,
        "ClientToken": token, "TagSpecifications": [],
    }  # fmt: skip
    if spot:
        request["InstanceMarketOptions"] = {"MarketType": "spot"}
    return len(ec2.connect("ec2").run_instances(**request)["Instances"])


def code_of(error: pytest.ExceptionInfo[ClientError]) -> str:
    return error.value.response["Error"]["Code"]


def test_steps_repeat_and_integrate() -> None:
    found = steps(2.0, 2.0, 5.0)
    assert [found.at(BEGIN + t) for t in (0, 999, 1999, 2000, 2999, 3000, 5000)] == [2, 2, 2, 5, 5, 2, 5]
    assert found.next_change(BEGIN) == BEGIN + 2000.0
    assert found.next_change(BEGIN + 2500.0) == BEGIN + 3000.0
    assert found.integral(BEGIN + 1500.0, BEGIN + 6500.0) == pytest.approx(1000 + 5000 + 4000 + 5000 + 1000)
    assert steps(1.0, 1.0).next_change(BEGIN) == np.inf


def test_spot_instances_beyond_the_trace_are_warned_and_taken_back() -> None:
    clock = ManualClock(wall=BEGIN)
    ec2 = account(clock, Ec2Market(spot_rooms=(steps(4, 1), steps(2, 2))))
    assert launch(ec2, "a", 9, spot=True) == 6
    assert launch(ec2, "b", 2) == 2
    assert ec2.next_event() == BEGIN + 880.0
    clock.wall = ec2.next_event()
    ec2.advance()
    warned = [item for item in ec2.alive() if item.spot_status == "marked-for-termination"]
    assert (len(warned), ec2.notices, {item.market for item in warned}) == (3, 3, {SPOT})
    assert ec2.next_event() == BEGIN + 1000.0
    clock.wall = BEGIN + 1000.0
    ec2.advance()
    assert sorted(item.market for item in ec2.alive()) == [ON_DEMAND] * 2 + [SPOT] * 3
    with pytest.raises(ClientError) as refused:
        launch(ec2, "c", spot=True)
    assert code_of(refused) == "InsufficientInstanceCapacity"
    clock.wall = BEGIN + 2000.0
    assert launch(ec2, "d", 9, spot=True) == 3


def test_a_stock_out_ends() -> None:
    clock = ManualClock(wall=BEGIN)
    ec2 = account(clock, Ec2Market(stock_outs=(StockOut(ON_DEMAND, BEGIN + 10.0, BEGIN + 20.0),)))
    assert launch(ec2, "a") == 1
    clock.wall = BEGIN + 10.0
    with pytest.raises(ClientError) as refused:
        launch(ec2, "b")
    assert code_of(refused) == "InsufficientInstanceCapacity"
    assert launch(ec2, "c", spot=True) == 1
    assert len(ec2.alive()) == 2, "what runs stays"
    clock.wall = BEGIN + 20.0
    assert launch(ec2, "b") == 1
    assert ec2.refused == {"InsufficientInstanceCapacity": 1}


@pytest.mark.parametrize(
    ("market", "code"), [(SPOT, "MaxSpotInstanceCountExceeded"), (ON_DEMAND, "VcpuLimitExceeded")]
)
def test_a_quota_counts_the_vcpus_that_run(market: str, code: str) -> None:
    clock = ManualClock(wall=BEGIN)
    ec2 = account(clock, Ec2Market(vcpus=4, vcpu_limits={market: 11}))
    assert launch(ec2, "a", 5, spot=market == SPOT) == 2
    with pytest.raises(ClientError) as refused:
        launch(ec2, "b", spot=market == SPOT)
    assert code_of(refused) == code
    assert launch(ec2, "c", 5, spot=market != SPOT) == 5
    first = ec2.alive()[0].instance_id
    ec2.connect("ec2").terminate_instances(InstanceIds=[first])
    assert launch(ec2, "d", 5, spot=market == SPOT) == 1


def test_a_quota_is_told_as_launches_meet_it() -> None:
    clock = ManualClock(wall=BEGIN)
    ec2 = account(clock, Ec2Market(vcpus=2, vcpu_limits={SPOT: 11}))
    quotas = ec2.connect("service-quotas")
    told = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-34B43A08")
    (size,) = ec2.connect("ec2").describe_instance_types(InstanceTypes=["c5.large"])["InstanceTypes"]
    assert launch(ec2, "a", 9, spot=True) == told["Quota"]["Value"] // size["VCpuInfo"]["DefaultVCpus"] == 5
    with pytest.raises(ClientError) as refused:
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-1216C47A")
    assert code_of(refused) == "NoSuchResourceException"


def test_prices_are_told_as_ec2_tells_them(tmp_path: Path) -> None:
    clock = ManualClock(wall=BEGIN + 500.0)
    market = Ec2Market(usd_per_hour=0.36, spot_usd_per_hour=steps(0.1, 0.2))
    ec2 = account(clock, market)
    cache = PriceCache(Ec2Settings(), PRICES.at(tmp_path), lambda: clock.wall, connect=ec2.connect)
    for refresh in (cache.refresh_spot, cache.refresh_on_demand):
        refresh()
    assert (cache.prices.spot.usd_per_hour, cache.prices.on_demand.usd_per_hour) == (0.1, 0.36)
    clock.wall = BEGIN + 1000.0
    cache.refresh_spot()
    assert cache.prices.spot.usd_per_hour == 0.2
    assert market.usd(SPOT, BEGIN, BEGIN + 2000.0) == pytest.approx((100.0 + 200.0) / 3600.0)
    assert market.usd(ON_DEMAND, BEGIN, BEGIN + 1000.0) == pytest.approx(0.1)
