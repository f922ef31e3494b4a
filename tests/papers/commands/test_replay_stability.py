"""`advisor replay stability`, as an admin runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def advisor(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from advisor.cli.main import run; run()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def small_nodes(folder: Path) -> Path:
    path = folder / "nodes.csv"
    rows = [
        f"n{node},{3600 * (5 * hour + node)},{4 + (hour + node) % 5}"
        for node in range(4)
        for hour in range(12)
    ]
    path.write_text("node,time,cores\n" + "\n".join(rows) + "\n")
    return path


def test_one_json_object_with_the_contracts_fields(tmp_path):
    done = advisor("replay", "stability", "--nodes", small_nodes(tmp_path), "--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {"nodes", "tasks", "rows", "survival", "seconds"} <= result.keys()
    assert {"auc", "brier", "brier_base_rate"} <= result["survival"].keys()
    names = {row["scheduler"] for row in result["rows"]}
    assert {"capacity", "no-delay", "matched", "matched+acquirer", "oracle", "equation-2-literal"} <= names
    fields = {"gives_way", "mean_jct", "p90_jct", "geomean_njct", "wasted_work_share", "preemptions"}
    assert all(fields <= row.keys() for row in result["rows"])
    assert result["rows"][0]["geomean_njct"] == 1.0


def test_a_table_and_a_page(tmp_path):
    page = tmp_path / "page.html"
    arguments = ("--schedulers", "matched,oracle", "--error", "0.5", "--tasks", "pareto", "--plot", page)
    done = advisor("replay", "stability", "--nodes", small_nodes(tmp_path), *arguments)
    assert done.returncode == 0, done.stderr
    assert "matched*" in done.stdout
    assert "*: a shrinking node ends what loses the least work" in done.stdout
    assert page.stat().st_size > 100_000


def test_nodes_that_are_not_there_are_bad_input(tmp_path):
    done = advisor("replay", "stability", "--nodes", tmp_path / "none.csv")
    assert done.returncode == 2
    assert "none.csv" in done.stderr
    assert "Traceback" not in done.stderr


def test_tasks_without_end_are_refused():
    done = advisor("replay", "stability", "--nodes", "synthetic:C2:1", "--longest", "inf")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
