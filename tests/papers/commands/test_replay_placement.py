"""``advisor replay placement`` as it is typed, and the fields it prints."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from advisor.history.swf import SwfHeader
from advisor.model.errors import BadInput
from advisor.model.job import Job, JobOutcome
from tests.commands import app
from tests.history.swf_writer import write

runner = CliRunner()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "small.swf.gz"
    outcomes = []
    for number in range(1, 301):
        job = Job(
            job_id=number,
            submit_time=30.0 * number,
            processors=1 + number % 4,
            user=str(number % 5),
            requested_time=600.0,
        )
        start = job.submit_time + 100.0 * (number % 5)
        outcomes.append(JobOutcome(job=job, start_time=start, end_time=start + 50.0 * (1 + number % 5)))
    write(path, outcomes, SwfHeader(max_processors=16))
    return path


def call(*arguments):
    return runner.invoke(app, ["replay", "placement", *map(str, arguments)], catch_exceptions=False)


def test_fields_of_the_contract(log):
    options = ("--skip", 150, "--jobs", 100, "--factors", "0.01,0.5", "--no-tune")
    result = call("--trace", log, *options, "--format", "json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["trace"] == "small.swf.gz"
    assert found["jobs"] == 100
    assert set(found["estimator"]) >= {
        "wait_mae",
        "run_mae",
        "wait_interval_coverage",
        "run_interval_coverage",
        "interval",
    }
    assert found["estimator"]["interval"] == 0.9
    published = found["published_estimator"]
    for target in ("wait", "run"):
        months = published[f"{target}_interval_months"]
        assert sum(month["jobs"] for month in months) == found["jobs"]
        held = sum(month["jobs"] * month["coverage"] for month in months)
        assert held / found["jobs"] == pytest.approx(published[f"{target}_interval_coverage"])
        width = published[f"{target}_interval_mean_width"]
        assert 0 < width <= published[f"{target}_interval_score"]
    assert found["seconds"] > 0
    assert [row["factor"] for row in found["rows"]] == [0.01, 0.5]
    for row in found["rows"]:
        for way in ("optimal", "without_cutoff", "with_cutoff", "advisor"):
            assert set(row[way]) >= {"cloud_jobs", "saved_seconds"}
        assert "fraction_of_optimal" in row["advisor"]


def test_a_short_log_is_replayed_untuned_and_says_so(log):
    result = call("--trace", log, "--jobs", 20, "--factors", "0.01", "--format", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["jobs"] == 20
    assert "not tuned: too few jobs are known before row 150" in result.stderr


def test_for_people(log):
    result = call("--trace", log, "--skip", 150, "--jobs", 100, "--factors", "0.01", "--no-tune")
    assert result.exit_code == 0
    assert "without cutoff" in result.stdout
    assert "within the 90%" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    "options",
    [
        ("--factors", "fast"),
        ("--factors", "-1"),
        ("--factors", "nan"),
        ("--baseline", "0"),
        ("--skip", "100000"),
    ],
)
def test_bad_input(log, options):
    with pytest.raises(BadInput):
        call("--trace", log, *options)


def test_an_unreadable_trace(tmp_path):
    with pytest.raises(BadInput, match=r"none\.swf"):
        call("--trace", tmp_path / "none.swf")


def test_day_one_18_by_default_half_of_a_short_log_comes_before_the_window(log):
    found = json.loads(call("--trace", log, "--factors", "0.01", "--no-tune", "--format", "json").stdout)
    assert found["options"]["skip"] == 150
    assert found["jobs"] == 150


def test_day_one_18_a_log_by_its_name_is_found_or_said_how_to_get(log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="advisor traces get kth-sp2"):
        call("--trace", "kth-sp2")
    with pytest.raises(BadInput, match="kth-sp2, lpc-egee"):
        call("--trace", "kth-sp3")
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "KTH-SP2-1996-2.1-cln.swf.gz").write_bytes(log.read_bytes())
    found = json.loads(
        call("--trace", "kth-sp2", "--factors", "0.01", "--no-tune", "--format", "json").stdout
    )
    assert found["trace"] == "KTH-SP2-1996-2.1-cln.swf.gz"
