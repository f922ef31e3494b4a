"""Section 6 on the simulated cluster."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from advisor.cli.main import application
from advisor.model.errors import BadInput
from advisor.papers.classify.classify import ClassifiedJobs
from advisor.papers.classify.classify_plots import write_classify
from advisor.papers.cluster.demand import DOUBTFUL, LARGE, PROBED, SMALL
from advisor.papers.placement.placement_plots import write_placement
from advisor.papers.schedule.schedule import (
    PROBE,
    RULES,
    VARIANTS,
    bounded_slowdown,
    classes_of,
    prepared,
    report,
)
from advisor.papers.schedule.schedule_plots import write_schedule
from advisor.replay.sources import load_table
from advisor.service.admin.plots import write_page
from advisor.simulate.workload import submissions, workload
from benchmarks import simulate as bench


@pytest.fixture(scope="module")
def jobs():
    return submissions(np.random.default_rng(2), jobs=3_000, processors=64, load=0.9)


@pytest.fixture(scope="module")
def classified(jobs):
    """A classifier that is right nine times in ten; the first week is not judged."""
    divider = np.where(jobs.submit < 7 * 86_400, math.nan, np.median(jobs.run))
    truly_small = jobs.run < divider
    right = np.random.default_rng(3).random(len(jobs)) < 0.9
    probability = np.where(np.isnan(divider), 0.0, np.where(truly_small == right, 0.85, 0.05))
    return ClassifiedJobs(
        probability=probability,
        divider=divider,
        is_small=probability >= 0.5,
        week=(jobs.submit // (7 * 86_400)).astype(np.int64),
        truly_small=truly_small,
        judged=~np.isnan(divider),
        train_seconds=np.empty(0),
    )


@pytest.fixture(scope="module")
def result(jobs, classified):
    return report(jobs, policies=("fcfs", "spf"), variants=(*VARIANTS, PROBE), classified=classified)


def row(result, policy, variant):
    return next(one for one in result["rows"] if (one["policy"], one["variant"]) == (policy, variant))


def test_bounded_slowdown_by_hand():
    submit, start, run = np.array([[0, 0, 10], [120, 0, 70], [30, 30, 120]], np.float64)
    # (120 + 30) / 60, 30 / 60 counts as 1, (60 + 120) / 120
    assert bounded_slowdown(submit, start, run).tolist() == [2.5, 1, 1.5]


def test_contract_fields(result, jobs):
    assert result["jobs"] == len(jobs)
    assert result["cores"] == 64
    assert len(result["rows"]) == 2 * 6 + 1
    for one in result["rows"]:
        for name in ("mean_bounded_slowdown", "mean_wait", "max_wait", "restarts"):
            assert math.isfinite(one[name])
        assert one["small_mean_bounded_slowdown"] > 0
        assert one["large_mean_bounded_slowdown"] > 0
    assert result["jobs_per_second"] > 0


def test_classes_help_and_only_killing_restarts(result):
    base = row(result, "fcfs", "base")
    assert base["improvement_over_easy_fcfs"] == 0
    idempotent = row(result, "fcfs", "classification-idempotent")
    assert idempotent["mean_bounded_slowdown"] < base["mean_bounded_slowdown"]
    assert idempotent["small_mean_bounded_slowdown"] < base["small_mean_bounded_slowdown"]
    assert idempotent["restarts"] > 0
    assert row(result, "fcfs", PROBE)["restarts"] > idempotent["restarts"]
    for variant in ("base", "easy++", "classification", "class-clairvoyant", "runtimes-clairvoyant"):
        assert row(result, "fcfs", variant)["restarts"] == 0


def test_predictions_are_flipped_and_averaged_others_are_not(result):
    assert row(result, "fcfs", "classification")["runs"] == RULES.runs
    assert row(result, "fcfs", "classification")["mean_bounded_slowdown_deviation"] > 0
    assert row(result, "fcfs", "base")["runs"] == 1


def test_same_seed_same_figures(jobs, classified, result):
    again = report(jobs, policies=("fcfs",), variants=("classification-idempotent",), classified=classified)
    first = row(result, "fcfs", "classification-idempotent")["mean_bounded_slowdown"]
    assert again["rows"][0]["mean_bounded_slowdown"] == first


def test_true_classes_need_no_classifier(jobs):
    learned_nothing = report(jobs, policies=("fcfs",), variants=("base", "class-clairvoyant"))
    better = row(learned_nothing, "fcfs", "class-clairvoyant")
    assert better["mean_bounded_slowdown"] < row(learned_nothing, "fcfs", "base")["mean_bounded_slowdown"]


def test_classes_and_limits():
    probability = np.array([0.05, 0.2, 0.5, 0.9])
    divider = np.full(4, 1000.0)
    job_class, limit = classes_of(probability, divider, "classification-idempotent")
    assert job_class.tolist() == [LARGE, DOUBTFUL, SMALL, SMALL]
    assert limit.tolist() == [math.inf, 800, 1000, 1000]
    job_class, limit = classes_of(probability, divider, "classification")
    assert job_class.tolist() == [LARGE, LARGE, SMALL, SMALL]
    assert np.all(np.isinf(limit))
    job_class, limit = classes_of(probability, divider, PROBE)
    assert job_class.tolist() == [PROBED, PROBED, SMALL, SMALL]
    assert limit.tolist() == [180, 180, 1000, 1000]


def test_jobs_larger_than_the_machine_are_left_out_and_counted(jobs):
    small = report(jobs, cores=8, policies=("fcfs",), variants=("base",))
    assert small["jobs"] == np.count_nonzero(jobs.processors <= 8)
    assert small["jobs_left_out"] == len(jobs) - small["jobs"]


def test_machine_of_unknown_size_is_refused(jobs):
    unknown = type(jobs)(**{name: getattr(jobs, name) for name in jobs.__slots__} | {"total_processors": 0})
    with pytest.raises(BadInput, match="--cores"):
        prepared(unknown, None)


@pytest.mark.parametrize("spec", ["synthetic:x", "synthetic:0", "synthetic:1:2:3", "synthetic:99999999999"])
def test_wrong_synthetic_sources_are_refused(spec):
    with pytest.raises(BadInput, match="--trace"):
        load_table(spec)


def test_synthetic_source():
    table = load_table("synthetic:200:7")
    assert len(table) == 200
    expected = workload(np.random.default_rng(7), jobs=200)
    assert table.run.tolist() == expected.run.tolist()


def test_log_out_of_order_is_sorted(tmp_path):
    line = "{0} {1} 0 10 1 -1 -1 1 20 -1 1 1 1 1 1 1 -1 -1\n"
    log = tmp_path / "log.swf"
    log.write_text("; MaxProcs: 4\n" + line.format(1, 50) + line.format(2, 5) + line.format(3, 50))
    assert load_table(log).job_id.tolist() == [2, 1, 3]


@pytest.fixture
def app():
    return application(("replay", "schedule"))


def test_command_prints_one_object_and_writes_the_page(app, tmp_path):
    page = tmp_path / "page.html"
    options = ["--trace", "synthetic:400:3", "--policies", "fcfs,saf", "--variants", "base,easy++"]
    done = CliRunner().invoke(
        app, ["replay", "schedule", *options, "--plot", str(page), "--format", "json"], catch_exceptions=False
    )
    rows = json.loads(done.stdout)["rows"]
    assert [(one["policy"], one["variant"]) for one in rows] == [
        ("fcfs", "base"),
        ("saf", "base"),
        ("fcfs", "easy++"),
    ]
    text = page.read_text()
    assert "Plotly.newPlot" in text
    assert '<script src="http' not in text
    shown = CliRunner().invoke(app, ["replay", "schedule", *options])
    assert "easy++" in shown.stdout


def test_jobs_without_a_request_are_counted_and_told(app, tmp_path):
    line = "{} {} 0 5 2 -1 -1 2 {} -1 1 1 1 1 1 1 -1 -1\n"
    log = tmp_path / "log.swf"
    log.write_text("; MaxProcs: 4\n" + line.format(1, 0, 60) + line.format(2, 1, -1))
    options = ["replay", "schedule", "--trace", str(log), "--variants", "base"]
    found = CliRunner().invoke(app, [*options, "--format", "json"], catch_exceptions=False)
    assert json.loads(found.stdout)["jobs_without_request"] == 1
    assert "1 jobs requested no time" in CliRunner().invoke(app, options).stdout


def test_unknown_words_are_refused(app):
    with pytest.raises(BadInput, match="lifo"):
        CliRunner().invoke(
            app,
            ["replay", "schedule", "--trace", "synthetic:9", "--policies", "lifo"],
            catch_exceptions=False,
        )


def test_names_from_logs_are_escaped_on_the_page(tmp_path, result):
    write_schedule(tmp_path / "page.html", {**result, "trace": "<script>alert(1)</script>"})
    assert "<script>alert" not in (tmp_path / "page.html").read_text()


def test_page_that_cannot_be_written(tmp_path):
    with pytest.raises(BadInput, match="cannot write"):
        write_page(tmp_path / "nowhere" / "page.html", "title", "about", [])


def test_bench_compares_identical_schedules():
    measured = bench.run(trace="synthetic:2000:1", peer_jobs=300)
    assert measured["schedules_identical"]
    assert measured["peer"]["jobs"] == 300
    assert measured["speedup"] > 1


@pytest.mark.traces
@pytest.mark.parametrize(
    ("log", "fcfs", "spf"),
    [
        ("KTH-SP2-1996-2.1", 31.92, 16.41),
        ("CTC-SP2-1996-3.1", 45.14, 25.14),
        ("SDSC-BLUE-2000-4.2", 31.91, 14.07),
        ("SDSC-SP2-1998-4.2", 83.05, 60.83),
        ("HPC2N-2002-2.2", 33.86, 24.92),
    ],
)
def test_plain_rows_equal_an_independent_simulator(traces, log, fcfs, spf):
    table = load_table(traces / f"{log}-cln.swf.gz")
    plain = report(table, policies=("fcfs", "spf"), variants=("base",))
    assert row(plain, "fcfs", "base")["mean_bounded_slowdown"] == pytest.approx(fcfs, rel=0.005)
    assert row(plain, "spf", "base")["mean_bounded_slowdown"] == pytest.approx(spf, rel=0.005)


def test_pages_of_the_other_replays(tmp_path):
    week = {"accuracy": 0.8, "false_small_share": 0.1}
    weeks = [{"week": at, "divider_seconds": 60.0 * at, "modes": {"paper": week}} for at in (1, 2)]
    write_classify(
        tmp_path / "c.html", {"trace": "t", "jobs_judged": 2, "modes": {"paper": {}}, "weeks": weeks}
    )
    ways = {
        way: {"cloud_jobs": 3, "fraction_of_optimal": 0.5} for way in ("optimal", "with_cutoff", "advisor")
    }
    write_placement(tmp_path / "p.html", {"trace": "t", "jobs": 9, "rows": [{"factor": 0.1, **ways}]})
    assert "Divider in force" in (tmp_path / "c.html").read_text()
    assert "with_cutoff" in (tmp_path / "p.html").read_text()
