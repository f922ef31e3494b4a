"""A job costs what its nodes were launched for, whatever prices do afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.history.state_file import StateFile
from advisor.model import Capacity, Job
from advisor.model.job import JobOutcome
from advisor.model.settings import Ec2Settings, Settings
from advisor.service.cloud.node_prices import NodePrices
from advisor.service.learn.learning import LearnLoop

HOUR = 3600.0


def record(folder: Path) -> NodePrices:
    return NodePrices(StateFile(folder / "node_prices.json"))


def test_the_price_of_a_launch_holds_until_the_next_one_and_over_restarts(tmp_path: Path) -> None:
    prices = record(tmp_path)
    prices.launched([("burst1", "i-1", 0.07), ("burst2", "i-2", 0.17)], 1000.0)
    prices.launched([("burst1", "i-1", 0.09)], 1060.0)  # asked for again: it is the same instance
    prices.launched([("burst1", "i-3", 0.17)], 5000.0)
    prices = record(tmp_path)
    assert prices.usd_per_hour("burst1", 999.0) is None
    assert prices.usd_per_hour("burst1", 4999.0) == 0.07
    assert prices.usd_per_hour("burst1", 9000.0) == 0.17
    assert prices.usd_per_hour("burst2", 9000.0) == 0.17
    assert prices.usd_per_hour("burst3", 9000.0) is None


def test_of_many_launches_the_last_are_remembered_and_damage_is_no_crash(tmp_path: Path) -> None:
    prices = record(tmp_path)
    for number in range(50):
        prices.launched([("burst1", f"i-{number}", float(number))], float(number))
    assert prices.usd_per_hour("burst1", 30.0) is None
    assert prices.usd_per_hour("burst1", 45.5) == 45.0
    (tmp_path / "node_prices.json").write_text('{"burst1": [[1, 2], "x", [3.0, "i-1", 0.5]], "burst2": 7}')
    prices = record(tmp_path)
    assert prices.usd_per_hour("burst1", 4.0) == 0.5
    assert prices.usd_per_hour("burst2", 4.0) is None


@pytest.mark.parametrize(
    ("nodes", "advised", "usd"),
    [
        ("burst[1-2]", Capacity.SPOT, 0.06 + 0.2),  # the second fell back to on-demand
        ("burst[1,9]", Capacity.SPOT, 0.06 + 1.0),  # of the other's launch nothing is known
        ("burst9", Capacity.ON_DEMAND, 2.0),
        ("burst9", Capacity.RESERVED, 0.0),
        (None, Capacity.SPOT, 1.0),
        ("no[node", None, 2.0),
    ],
)
def test_a_job_is_billed_at_the_prices_of_its_nodes_launches(
    nodes: str | None, advised: Capacity | None, usd: float, tmp_path: Path
) -> None:
    prices = record(tmp_path)
    prices.launched([("burst1", "i-1", 0.06), ("burst2", "i-2", 0.2)], 50.0)
    parts: dict[str, Any] = dict.fromkeys(
        ("slurm", "store", "knowledge", "sizes", "view", "metrics", "clock")
    )
    settings = Settings(ec2=Ec2Settings(spot_usd_per_hour=1.0, on_demand_usd_per_hour=2.0))
    loop = LearnLoop(settings, **parts, usd_per_hour=prices.usd_per_hour)
    outcome = JobOutcome(
        job=Job(job_id=1, submit_time=0.0, processors=4), start_time=100.0, end_time=100.0 + HOUR, nodes=nodes
    )
    assert loop._price(outcome, advised) == pytest.approx(usd)
