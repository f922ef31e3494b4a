"""``advisor rehearse``: the contract's fields, the table, the page, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor.cli.rehearse_shipped import rules_of
from advisor.model.errors import BadInput
from advisor.simulate.pool.rules import Rules
from tests.commands import app

pytestmark = pytest.mark.slow

SMALL = ("--trace", "synthetic:900:4", "--skip", "300")
ALWAYS = [
    "all-on-premise", "overflow", "cunha2017", "ambati2021", "starburst", "price", "clairvoyant",
]  # fmt: skip


def rehearsed(*words: str) -> Any:
    done = CliRunner().invoke(
        app, ["rehearse", "--format", "json", "--processes", "1", *words], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_contract() -> None:
    result = rehearsed(*SMALL, "--budget-share", "0.1")
    assert {"trace", "jobs", "budget_usd", "fidelity", "rows", "seconds"} <= result.keys()
    assert result["jobs"] == 600
    assert result["budget_usd"] == pytest.approx(0.1 * result["core_hours"] * result["usd_per_core_hour"])
    rows = {row["policy"]: row for row in result["rows"]}
    assert list(rows) == ALWAYS
    for row in rows.values():
        assert row.keys() >= {
            "policy", "mean_wait_seconds", "mean_turnaround_seconds", "mean_bounded_slowdown",
            "p95_wait_seconds", "saved_hours", "cost_usd", "budget_share_spent", "moved_jobs", "later_share",
        }  # fmt: skip
        assert row["cost_usd"] <= result["budget_usd"]
    here = rows["all-on-premise"]
    assert (here["saved_hours"], here["cost_usd"], here["moved_jobs"], here["later_share"]) == (0, 0, 0, 0)
    for name in ("overflow", "clairvoyant"):
        assert rows[name]["saved_hours"] > 0.0
        assert rows[name]["saved_hours"] == pytest.approx(
            600 * (here["mean_turnaround_seconds"] - rows[name]["mean_turnaround_seconds"]) / 3600.0
        )


def test_nothing_moves_without_a_budget() -> None:
    rows = rehearsed(*SMALL, "--budget-share", "0")["rows"]
    assert {(row["moved_jobs"], row["cost_usd"], row["budget_share_spent"]) for row in rows} == {
        (0, 0.0, 0.0)
    }


def test_processes_change_nothing() -> None:
    def figures(processes: str) -> list[dict[str, Any]]:
        rows = rehearsed(*SMALL, "--processes", processes)["rows"]
        return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]

    assert figures("2") == figures("1")


def test_the_cloud_of_the_options_is_the_one_that_is_simulated() -> None:
    fast = rehearsed(*SMALL, "--boot", "0", "--slowdown", "1")
    slow = rehearsed(*SMALL, "--boot", "1200", "--slowdown", "1.5", "--bill-boot")
    assert (slow["boot_seconds"], slow["slowdown"], slow["bills_boot"]) == (1200.0, 1.5, True)
    saved = [
        next(row["saved_hours"] for row in found["rows"] if row["policy"] == "clairvoyant")
        for found in (fast, slow)
    ]
    assert saved[0] > saved[1]


def test_the_table_says_the_same_in_words() -> None:
    done = CliRunner().invoke(app, ["rehearse", *SMALL, "--processes", "1"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "600 jobs of" in done.stdout
    assert "Budget " in done.stdout
    for word in (*ALWAYS, "mean wait h", "saved hours", "later jobs", "rank correlation of the starts"):
        assert word in done.stdout


def test_the_page_has_every_curve(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = rehearsed(*SMALL, "--out", str(page))
    shares = {row["budget_share"] for row in result["curve"]}
    assert shares == {0.01, 0.02, 0.05, 0.1}
    assert len(result["curve"]) == 4 * len(result["rows"])
    text = page.read_text(encoding="utf-8")
    for word in ("Rehearsal of", "Hours saved against money spent", "Mean wait of all jobs", "clairvoyant"):
        assert word in text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--policies", "magic"), "rehearse.policy"),
        (("--skip", "900"), "rehearse.no_jobs"),
        (("--nodes", "1"), "rehearse.no_jobs"),
        (("--budget-share", "inf"), "option.share"),
        (("--budget-share", "-0.1"), "option.share"),
        (("--budget-share", "nan"), "option.share"),
        (("--out", "/no/such/folder/page.html"), "plot.unwritable"),
        (("--trace", "/no/such.swf"), "trace.missing"),
        (("--set", "budget.usd=5"), "rehearse.shipped"),
        (("--stock-out", "spot@1+1"), "rehearse.shipped"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], code: str) -> None:
    done = CliRunner().invoke(app, ["rehearse", *SMALL, "--processes", "1", *words])
    assert isinstance(done.exception, BadInput), done.output
    assert done.exception.code == code
    assert done.exception.mend


@pytest.mark.parametrize("option", ["--skip", "--nodes"])
def test_what_leaves_no_job_is_what_has_to_be_changed(option: str) -> None:
    value = {"--skip": "900", "--nodes": "1"}[option]
    done = CliRunner().invoke(app, ["rehearse", *SMALL, option, value])
    assert isinstance(done.exception, BadInput), done.output
    assert option in done.exception.mend


@pytest.mark.parametrize(
    "words", [("--stock-out", "x"), ("--spot-trace", "/no/such"), ("--set", "no.such=1")]
)
def test_options_of_the_loops_are_read_before_anything_is_simulated(
    words: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_yet(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("advisor.replay.closed_loop.rehearse.rehearse", not_yet)
    done = CliRunner().invoke(app, ["rehearse", *SMALL, "--shipped", *words])
    assert isinstance(done.exception, BadInput), done.output


@pytest.mark.parametrize(
    "words",
    [
        ("rehearse", "--budget-share"),
        ("replay", "budget", "--budget-share"),
        ("replay", "waiting", "--spot-price"),
        ("replay", "waiting", "--reserved-price"),
        ("replay", "promise", "--confidence"),
    ],
)
def test_a_percentage_is_refused_where_an_option_is_a_share_of_one(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words, "5", *SMALL[:2]])
    assert isinstance(done.exception, BadInput), done.output
    assert (done.exception.code, done.exception.where) == ("option.share", words[-1])
    assert done.exception.mend == "Give a number from 0 to 1. Did you mean 0.05?"


@pytest.mark.parametrize("words", [("--boot", "inf"), ("--boot", "nan"), ("--slowdown", "nan")])
def test_times_that_are_none_are_refused(words: tuple[str, str]) -> None:
    done = CliRunner().invoke(app, ["rehearse", *SMALL, *words])
    assert done.exit_code == 2


def test_jobs_larger_than_a_smaller_machine_are_left_out() -> None:
    done = CliRunner().invoke(
        app, ["rehearse", *SMALL, "--nodes", "8", "--processes", "1", "--format", "json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["processors"] == 8
    assert "Jobs left out because they ask for more than the machine's 8 processors" in done.stderr


def test_the_shipped_loops_under_settings_side_by_side(tmp_path: Path) -> None:
    trace = tmp_path / "spot.json"
    trace.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [4, 0, 4, 4]}))
    page = tmp_path / "page.html"
    words = (
        "--trace", "synthetic:360:4", "--skip", "330", "--shipped", "--spot-trace", str(trace),
        "--stock-out", "on-demand@0+2", "--vcpus", "64", "--out", str(page),
        "--set", "capacity.use_spot=false;price.loss_weight=2.0",
    )  # fmt: skip
    result = rehearsed(*words)
    rows = result["rows"][-2:]
    assert [row["policy"] for row in rows] == ["shipped", f"shipped, {words[-1]}"]
    assert rows[1]["spot_share"] == 0.0
    for row in rows:
        assert row.keys() >= result["rows"][0].keys() | {"interruptions", "lost_hours", "refused_launches"}
        assert row["machine_usd"] <= result["budget_usd"]
        assert not row["failures"]
    assert sum(row["policy"] == "shipped" for row in result["curve"]) == 4
    text = page.read_text(encoding="utf-8")
    assert "shipped, capacity.use_spot=false" in text
    assert "runs lost their node" in text


def test_processes_side_by_side_print_the_result_alone() -> None:
    words = "rehearse --trace synthetic:360:4 --skip 330 --shipped --set price.loss_weight=2.0 --processes 2"
    script = "from advisor.cli.main import run; run()"
    done = subprocess.run(
        (sys.executable, "-c", script, *words.split(), "--format", "json"), capture_output=True, check=True
    )
    assert [row["policy"] for row in json.loads(done.stdout)["rows"]][-1] == "shipped, price.loss_weight=2.0"


def test_slurms_own_rules_are_read_from_slurm_conf(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text(
        "SchedulerParameters=bf_interval=600,bf_max_job_test=5,bf_window=10080\n"
    )
    conf = tmp_path / "slurm.conf"
    conf.write_text("SchedulerType=sched/backfill\nInclude more.conf\n")
    assert rules_of(conf) == Rules(cycle_seconds=600.0, depth=5, horizon_seconds=604_800.0)
    assert rules_of(None) is None
    easy, slow = (
        rehearsed(*SMALL, "--jobs", "150", "--budget-share", "0", *more)["rows"][0]["mean_wait_seconds"]
        for more in ((), ("--slurm-conf", str(conf)))
    )
    assert slow > easy
    with pytest.raises(BadInput, match="cannot read it"):
        rules_of(tmp_path / "none.conf")
