"""Long jobs on traces whose outcome is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.model.errors import BadInput
from benchmarks.back_to_spot import run

DAY = 86_400 // 300


def rows(folder: Path, *traces: list[int]) -> list[dict[str, Any]]:
    paths = []
    for number, alive in enumerate(traces):
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": alive}))
    found: list[dict[str, Any]] = run(spot=paths, starts=3)["rows"]
    return found


def test_traces_of_two_kinds_and_short_ones_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"metadata": {"gap_seconds": 34}, "data": [1] * 80 * DAY}))
    paths = [tmp_path / "0.json", other]
    paths[0].write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [1] * 8 * DAY}))
    with pytest.raises(BadInput, match=r"other\.json: its gap is not 300 s"):
        run(spot=paths)
    with pytest.raises(BadInput, match="shorter than a job"):
        rows(tmp_path, [1] * 2 * DAY)


def test_where_spot_can_always_be_had_nothing_is_on_demand(tmp_path: Path) -> None:
    for row in rows(tmp_path, [1] * 8 * DAY):
        assert row["on_demand_hours"] == 0.0
        assert row["spot_hours"] == pytest.approx(48.2)
        assert (row["tries"], row["late_share"]) == (0.0, 0.0)


def test_where_it_can_never_be_had_tries_cost_starts_and_no_deadline(tmp_path: Path) -> None:
    none = [1, *[0] * (8 * DAY)]
    stays, *tried = rows(tmp_path, none)
    assert stays["on_demand_hours"] == pytest.approx(48.2)
    for row in tried:
        assert row["spot_hours"] == row["late_share"] == 0.0
        wasted = row["tries"] * (0.2 + 5.0 / 60.0)  # a start, and half the time between two checkpoints
        assert row["on_demand_hours"] == pytest.approx(48.2 + wasted)
    assert tried[0]["tries"] > tried[1]["tries"] > tried[2]["tries"] > 0.0


def test_a_job_that_found_no_room_comes_back_to_spot(tmp_path: Path) -> None:
    later = [1] * (3 * DAY - 6) + [0] * 24 + [1] * 5 * DAY  # no room for two hours at the first start
    stays, _, tried, _ = rows(tmp_path, later)
    assert tried["on_demand_hours"] < stays["on_demand_hours"] - 10.0
    assert 0.0 < tried["tries"] <= 3.0
