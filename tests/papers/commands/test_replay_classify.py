"""`advisor replay classify`, as an admin runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def advisor(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from advisor.cli.main import run; run()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_json_object_with_the_contracts_fields():
    done = advisor("replay", "classify", "--trace", "synthetic:1200:3", "--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {"trace", "jobs_judged", "modes", "weeks", "train_seconds_per_week", "seconds"} <= result.keys()
    for mode in ("paper", "advisor"):
        row = result["modes"][mode]
        assert {"accuracy", "precision", "recall", "false_small_share", "divider_seconds"} <= row.keys()
        assert 0.5 < row["accuracy"] <= 1.0


def test_one_classifier_as_a_table():
    done = advisor("replay", "classify", "--trace", "synthetic:1200:3", "--mode", "advisor")
    assert done.returncode == 0, done.stderr
    assert "advisor" in done.stdout
    assert "paper" not in done.stdout
    assert "Weeks of seven days" in done.stdout


def test_a_log_without_a_second_week_says_so():
    done = advisor("replay", "classify", "--trace", "synthetic:60:1")
    assert done.returncode == 0, done.stderr
    assert "nan" not in done.stdout
    assert "no second week" in done.stdout


def test_a_trace_that_is_not_there_is_bad_input(tmp_path):
    done = advisor("replay", "classify", "--trace", tmp_path / "none.swf")
    assert done.returncode == 2
    assert "none.swf" in done.stderr
    assert "Traceback" not in done.stderr


def test_bench_retrain_tells_jobs_seconds_and_memory():
    done = advisor("bench", "retrain", "--trace", "synthetic:900", "--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["jobs"] == 900
    assert result["seconds"] > 0
    assert 20 < result["peak_rss_mb"] < 4000
