"""Jobs on spot traces of several zones and types: who chooses the pool decides what is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from advisor.model.errors import BadInput
from advisor.papers.pools.markets import MarketPool, Prices, groups_of, read_prices
from advisor.papers.pools.pools import (
    CHEAPEST_TYPE,
    CHOSEN,
    ON_DEMAND,
    PoolOptions,
    _World,
    replay_pools,
)
from advisor.predict.survival.pool_survival import Life
from advisor.replay.spot_traces import SpotCounts
from tests.commands import app

TYPES = {"a.large": 1.0, "b.large": 1.0}


def written(folder: Path, kind: str, zone: str, data: list[int]) -> Path:
    path = folder / f"preemption_1-node_aws-01-01-2023_{zone}_{kind}.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": data}))
    return path


def price_file(folder: Path, prices: dict[str, float]) -> Path:
    rows = ["timestamp,az,instance_type,product,price_usd_per_hour"]
    for kind, price in prices.items():
        rows += [
            f"2021-03-0{day}T00:00:00+00:00,z{zone},{kind},Linux,{price}" for zone in "ab" for day in (1, 9)
        ]
    path = folder / "prices.csv"
    path.write_text("\n".join(rows))
    return path


def options(**changes: Any) -> PoolOptions:
    return PoolOptions(**{"on_demand": TYPES, "draws": 4, "error": 0.0} | changes)


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    """One type whose instances last two hours, and one whose instances stay."""
    ticks = 144 * 8
    flaky = [int(tick % 13 < 12) for tick in range(ticks)]
    return [
        *(written(tmp_path, "flaky", zone, flaky) for zone in ("z1", "z2")),
        *(written(tmp_path, "steady", zone, [1] * ticks) for zone in ("z1", "z2")),
    ]


def test_traces_that_differ_in_the_zone_are_one_type(traces: list[Path]) -> None:
    assert [len(files) for files in groups_of(traces).values()] == [2, 2]
    assert len(groups_of([Path("one.json.gz"), Path("two.json")])) == 2


def test_the_rule_finds_the_pools_that_last(traces: list[Path], tmp_path: Path) -> None:
    result = replay_pools(traces, price_file(tmp_path, {"a.large": 0.30, "b.large": 0.33}), options())
    rows = {row["policy"]: row for row in result["rows"]}
    assert rows[CHEAPEST_TYPE]["jobs"] == rows[CHOSEN]["jobs"] > 500
    # in half of the draws the cheapest type is the one that lasts
    assert rows[CHOSEN]["lost_vs_cheapest_type"] < -0.8
    assert rows[CHOSEN]["usd_vs_cheapest_type"] < 0.0
    assert rows[ON_DEMAND]["lost_work_share"] == 0.0
    assert rows[ON_DEMAND]["usd_per_work_hour"] == pytest.approx(1.0)
    again = replay_pools(traces, tmp_path / "prices.csv", options())
    assert again["rows"] == result["rows"]
    assert replay_pools(traces, tmp_path / "prices.csv", options(seed=2))["rows"] != result["rows"]


def test_where_nothing_is_ever_taken_nothing_is_lost_and_nobody_pays_on_demand(tmp_path: Path) -> None:
    files = [written(tmp_path, "steady", zone, [1] * 1000) for zone in ("z1", "z2")]
    result = replay_pools(files, price_file(tmp_path, {"a.large": 0.3, "b.large": 0.3}), options())
    rows = {row["policy"]: row for row in result["rows"]}
    for name in (CHEAPEST_TYPE, CHOSEN):
        assert (rows[name]["lost_work_share"], rows[name]["on_demand_share"]) == (0.0, 0.0)
        assert rows[name]["usd_per_work_hour"] == pytest.approx(0.3)


def test_the_rule_learns_of_a_stock_out_from_its_launches(tmp_path: Path) -> None:
    """One of two pools never has room in the time that counts: no job goes on-demand for it."""
    counts = {"full": [1] * 1000, "empty": [1] + [0] * 999}
    files = [written(tmp_path, kind, "z1", data) for kind, data in counts.items()]
    result = replay_pools(files, price_file(tmp_path, {"a.large": 0.3, "b.large": 0.31}), options())
    rows = {row["policy"]: row for row in result["rows"]}
    assert rows[CHOSEN]["on_demand_share"] == 0.0
    assert 0.3 <= rows[CHOSEN]["usd_per_work_hour"] <= 0.31


def test_nobody_knows_yet_what_becomes_of_a_running_instance() -> None:
    pool = MarketPool("k", "a", SpotCounts(600.0, np.ones(9)), Prices(np.zeros(1), np.ones(1)), 0.0)
    later = [Life(pool="k", start=0.0, end=7200.0, was_taken=is_taken) for is_taken in (True, False)]
    now, then = (
        [_World([pool], 1.0, [life]).survival(at).lasts("k") for life in later] for at in (3600.0, 7200.0)
    )
    assert now[0] == now[1]
    assert then[0][-1] < then[1][-1]


def test_an_instance_is_taken_when_fewer_are_there_and_the_trace_repeats() -> None:
    counts = SpotCounts(100.0, np.array([2.0, 1.0, 0.0, 3.0]))
    pool = MarketPool("k", "a", counts, Prices(np.array([0.0, 50.0]), np.array([1.0, 2.0])), begin=10.0)
    assert [pool.free(time) for time in (0.0, 150.0, 250.0, 399.0, 400.0)] == [2, 1, 0, 3, 2]
    assert pool.end_of(0.0, 1) == 100.0
    assert pool.end_of(50.0, 0) == 200.0
    assert pool.end_of(350.0, 0) == 600.0  # the next round's third tick
    assert pool.end_of(350.0, 2) == 400.0
    assert [pool.price(time) for time in (0.0, 39.0, 40.0)] == [1.0, 1.0, 2.0]
    forever = MarketPool("k", "a", SpotCounts(100.0, np.ones(3)), pool.prices, 0.0)
    assert forever.end_of(0.0, 0) == np.inf


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "timestamp,az,instance_type,price_usd_per_hour\n",
        "timestamp,az,instance_type,price_usd_per_hour\nnow,z,a,1\n",
        "timestamp,az,instance_type,price_usd_per_hour\n2021-01-01T00:00:00+00:00,z,a,-1\n",
        "timestamp,az,instance_type,price_usd_per_hour\n2021-01-01T00:00:00+00:00,z,a\n",
        pytest.param(f"timestamp,az,instance_type,price_usd_per_hour\n{'a' * 200_000}\n", id="long"),
    ],
)
def test_prices_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"prices\.csv"):
        read_prices(path)


def test_too_few_types_with_prices_are_refused(traces: list[Path], tmp_path: Path) -> None:
    prices = price_file(tmp_path, {"a.large": 0.3})
    with pytest.raises(BadInput, match=r"no prices of b\.large"):
        replay_pools(traces, prices, options())
    with pytest.raises(BadInput, match="2 kinds of traces"):
        replay_pools(traces, prices, options(on_demand={"a.large": 1.0}))


def test_traces_of_less_than_the_hours_that_are_only_learned_from_are_refused(tmp_path: Path) -> None:
    day = written(tmp_path, "short", "z1", [1] * 100)
    with pytest.raises(BadInput, match="no job arrives after the first 24 hours"):
        replay_pools([day], price_file(tmp_path, {"a.large": 0.3}), options(on_demand={"a.large": 1.0}))


def test_the_command(traces: list[Path], tmp_path: Path) -> None:
    prices = price_file(tmp_path, {"a.large": 0.30, "b.large": 0.33})
    words = ["replay", "pools", "--prices", str(prices), "--draws", "1", "--jobs", "0.5"]
    words += [word for path in traces for word in ("--spot", str(path))]
    words += ["--type", "a.large=1", "--type", "b.large=1"]
    runner = CliRunner()
    ran = runner.invoke(app, [*words, "--format", "json"], catch_exceptions=False)
    assert ran.exit_code == 0
    assert next(row["policy"] for row in json.loads(ran.stdout)["rows"]) == CHEAPEST_TYPE
    assert "cheapest pool" in runner.invoke(app, words, catch_exceptions=False).stdout
    assert isinstance(runner.invoke(app, [*words, "--type", "c.large"]).exception, BadInput)
