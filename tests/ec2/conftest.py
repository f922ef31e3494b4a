"""A fleet whose clock and waits belong to the test, against the emulator over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from advisor.ec2.account import Account
from advisor.ec2.clients import LAUNCH_CONFIG
from advisor.ec2.fleet import Fleet
from advisor.ec2.journal import Journal
from advisor.ec2.pools import UnavailablePools
from advisor.service.state.state_files import CLOSED_POOLS
from advisor.testing.ec2 import Ec2Emulator
from advisor.testing.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def start_fleet(emulator: Ec2Emulator, clock: ManualClock, tmp_path: Path) -> Callable[..., Fleet]:
    """Starts the fleet anew from what is on the disk, as after a crash; other clusters are other hosts."""

    def start(cluster: str = "c1", account: Callable[[], Account] = Account, **settings: Any) -> Fleet:
        folder = tmp_path if cluster == "c1" else tmp_path / cluster
        folder.mkdir(exist_ok=True)
        return Fleet(
            emulator.settings(**settings),
            cluster,
            Journal(folder / "launches.jsonl", now=lambda: clock.wall),
            UnavailablePools(CLOSED_POOLS.at(folder), lambda: clock.wall),
            now=lambda: clock.wall,
            monotonic=lambda: clock.steady,
            sleep=clock.sleep,
            jitter=lambda: 0.5,
            account=account,
        )

    return start


@pytest.fixture
def unpaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out botocore's own waiting between throttled calls: it is real time, and not what is tested."""
    config = LAUNCH_CONFIG.merge(Config(retries={"mode": "standard", "total_max_attempts": 1}))
    monkeypatch.setattr("advisor.ec2.fleet.LAUNCH_CONFIG", config)


@pytest.fixture
def fleet(start_fleet: Callable[..., Fleet]) -> Fleet:
    return start_fleet()


@pytest.fixture
def subnets(emulator: Ec2Emulator) -> dict[str, str]:
    """Zone to subnet."""
    ec2 = boto3.client("ec2", region_name="us-east-1", endpoint_url=emulator.url)
    return {item["AvailabilityZone"]: item["SubnetId"] for item in ec2.describe_subnets()["Subnets"]}


@pytest.fixture
def ec2(emulator: Ec2Emulator) -> Iterator[Any]:
    """The account seen without the fleet."""
    return boto3.client("ec2", region_name="us-east-1", endpoint_url=emulator.url)
