"""Spot traces, prices and stock-outs as a rehearsal reads them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.rehearsal.cloud_market import CloudMarket, outage_of, read_spot_prices, read_spot_trace

HEADER = "timestamp,az,instance_type,product,price_usd_per_hour\n"
PRICES = HEADER + (
    "2021-03-02T00:00:00+00:00,us-east-1b,c5.xlarge,Linux/UNIX,0.9\n"
    "2021-03-02T02:00:00+00:00,us-east-1a,c5.xlarge,Linux/UNIX,0.06\n"
    "2021-03-02T01:00:00+00:00,us-east-1a,c5.xlarge,Linux/UNIX,0.05\n"
    "2021-03-02T05:00:00+00:00,us-east-1a,c5.xlarge,Linux/UNIX,0.07\n"
    "2021-03-02T01:30:00+00:00,us-east-1a,m5.xlarge,Linux/UNIX,0.08\n"
)


def spot_trace(folder: Path, data: list[float], name: str = "trace.json.gz") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(json.dumps({"metadata": {"gap_seconds": 30}, "data": data}).encode()))
    return path


def test_the_nodes_are_divided_among_the_traces(tmp_path: Path) -> None:
    traces = [
        read_spot_trace(spot_trace(tmp_path, [4, 4, 2])),
        read_spot_trace(spot_trace(tmp_path, [0, 1, 1])),
    ]
    market = CloudMarket(spot_traces=tuple(traces)).at(1000.0, nodes=20, vcpus=2, usd=0.4, spot_usd=0.1)
    assert [market.spot_room(1000.0 + time) for time in (0, 30, 60, 90)] == [10, 20, 15, 10]
    assert market.usd("spot", 1000.0, 4600.0) == pytest.approx(0.1)


def test_prices_are_shares_of_the_on_demand_price_in_one_zone(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(PRICES)
    found = read_spot_prices(path, "c5.xlarge", 0.2)
    np.testing.assert_allclose(found.times, [0.0, 3600.0])
    np.testing.assert_allclose(found.values, [0.25, 0.3])
    assert found.period == 4 * 3600.0
    market = CloudMarket(spot_price=found).at(0.0, nodes=1, vcpus=1, usd=2.0, spot_usd=1.0)
    assert market.spot_prices_move
    assert market.usd("spot", 0.0, 7200.0) == pytest.approx(0.5 + 0.6)


@pytest.mark.parametrize("data", [[], [0, 0], [-1, 2], ["a"]])
def test_a_trace_that_counts_nothing_is_refused(tmp_path: Path, data: list[float]) -> None:
    with pytest.raises(BadInput, match=r"data|trace"):
        read_spot_trace(spot_trace(tmp_path, data))
    with pytest.raises(BadInput, match="cannot read it"):
        read_spot_trace(tmp_path / "none.json")


@pytest.mark.parametrize("text", [HEADER, "a,b\n1,2\n", PRICES.replace("0.06", "much")])
def test_a_history_without_prices_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"spot prices|columns are missing"):
        read_spot_prices(path, "c5.xlarge", 0.2)


def test_a_stock_out_says_market_begin_and_length() -> None:
    assert outage_of("on-demand@24+6.5") == ("on-demand", 24.0, 6.5)
    for wrong in ("spot", "spot@1", "reserved@1+2", "spot@-1+2", "spot@1+0", "spot@nan+1"):
        with pytest.raises(BadInput, match="stock-out"):
            outage_of(wrong)
