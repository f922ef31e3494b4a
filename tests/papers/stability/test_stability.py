"""Replays of changing nodes: their laws, their inputs, and the figures they are made for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.papers.stability import stability as replay
from advisor.papers.stability.node_traces import csv_changes, load_nodes, spot_changes
from advisor.papers.stability.stability_plots import write_stability
from advisor.papers.stability.stability_run import (
    CAPACITY,
    CAPACITY_LEAST_LOST,
    MATCHED,
    MATCHED_ACQUIRER,
    MATCHED_OLDEST,
    ORACLE,
    REPLICATION,
    run,
)
from advisor.papers.stability.survival_scores import (
    _KnownRate,
    all_intervals,
    known_at,
    scores,
    survival_scores,
)
from advisor.papers.stability.task_files import load_tasks
from advisor.papers.stability.world.harvest import DAY, harvest_nodes
from advisor.papers.stability.world.tasks import TaskMix, draw_runtimes, draw_tasks
from tests.history.swf_lines import LINE, log
from tests.papers.stability.world.harvest_figures import harvest_figures

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small():
    """Three days of a busy cluster of twenty nodes, forty that could be had, and a few hundred tasks."""
    changes = harvest_nodes(np.random.default_rng(5), "C2", nodes=60, until=2.5 * DAY)
    work = draw_tasks(
        np.random.default_rng(6),
        TaskMix(tasks_per_job=20),
        cores=350,
        load=0.5,
        begin=DAY,
        until=2 * DAY,
        most=800,
    )
    return changes.repeated(2), work


@pytest.mark.parametrize(
    "scheduler",
    [CAPACITY, CAPACITY_LEAST_LOST, MATCHED, MATCHED_OLDEST, MATCHED_ACQUIRER, ORACLE, REPLICATION],
    ids=lambda s: s.name,
)
def test_every_task_ends_and_all_work_is_accounted_for(small, scheduler):
    changes, work = small
    outcome = run(changes, work, scheduler, np.random.default_rng(1), rented=20)
    assert np.all(outcome.end >= work.submit + work.duration - 1e-6)
    assert outcome.useful == pytest.approx(float((work.duration * work.cores).sum()))
    assert outcome.preemptions == outcome.attempts - len(work) or scheduler is REPLICATION
    again = run(changes, work, scheduler, np.random.default_rng(1), rented=20)
    np.testing.assert_array_equal(outcome.end, again.end)


def test_the_clairvoyant_is_never_preempted_and_never_worse_than_the_others(small):
    changes, work = small
    oracle, *others = (
        run(changes, work, scheduler, np.random.default_rng(1), rented=20)
        for scheduler in (ORACLE, CAPACITY, MATCHED)
    )
    assert oracle.preemptions == 0
    assert oracle.wasted == pytest.approx(0.0, abs=1.0)
    for other in others:
        assert oracle.end.mean() <= other.end.mean()


@pytest.mark.parametrize(("ours", "published"), [(MATCHED, MATCHED_OLDEST), (CAPACITY_LEAST_LOST, CAPACITY)])
def test_ending_what_loses_the_least_wastes_less(small, ours, published):
    changes, work = small
    least, oldest = (
        run(changes, work, scheduler, np.random.default_rng(1), rented=20) for scheduler in (ours, published)
    )
    assert least.wasted < 0.8 * oldest.wasted
    assert least.end.mean() < oldest.end.mean()


def test_who_gives_way_is_no_question_where_nodes_vanish(tmp_path):
    path = tmp_path / "spot.json"
    alive = np.random.default_rng(4).integers(0, 5, 200).tolist()
    path.write_text(json.dumps({"metadata": {"gap_seconds": 1800}, "data": alive}))
    result = replay.report(str(path), schedulers=["matched", "matched-oldest-first"], most_tasks=200)
    _, matched, oldest = result["rows"]
    assert (matched["gives_way"], oldest["gives_way"]) == ("least-lost", "oldest")
    assert matched["preemptions"] > 0
    same = ("mean_jct", "p90_jct", "geomean_njct", "wasted_work_share", "preemptions")
    assert [matched[name] for name in same] == [oldest[name] for name in same]


def test_no_node_is_given_back_where_no_other_can_be_had(small):
    changes, work = small
    with_acquirer, without = (
        run(changes, work, scheduler, np.random.default_rng(1)) for scheduler in (MATCHED_ACQUIRER, MATCHED)
    )
    np.testing.assert_array_equal(with_acquirer.end, without.end)


def test_matching_shortens_jobs_and_wastes_less():
    result = replay.report("synthetic:C4:1", schedulers=["matched", "matched+acquirer"], most_tasks=2500)
    capacity, matched, acquired = result["rows"]
    assert matched["geomean_njct"] < 0.95
    assert matched["wasted_work_share"] < 0.7 * capacity["wasted_work_share"]
    assert acquired["wasted_work_share"] < matched["wasted_work_share"]
    assert result["survival"]["brier"] < result["survival"]["brier_base_rate"]
    assert result["survival"]["brier"] < result["survival"]["published_brier"]


PUBLISHED = {
    "C1": {"within_hour": 0.93, "mean_minutes": 26.0, "p95_hours": 1.2},
    "C2": {
        "within_minute": 0.16,
        "within_10_minutes": 0.40,
        "within_hour": 0.84,
        "steady_confidence": 0.70,
    },
    "C6": {"within_hour": 0.72, "mean_minutes": 224.0, "p95_hours": 11.2},
    "C8": {"within_hour": 0.55, "mean_minutes": 600.0},
}


@pytest.mark.parametrize("cluster", PUBLISHED)
def test_synthetic_nodes_have_the_published_figures(cluster):
    changes = harvest_nodes(np.random.default_rng(2), cluster, nodes=300, until=15 * DAY)
    measured = harvest_figures(changes)
    for name, published in PUBLISHED[cluster].items():
        tolerance = {"mean_minutes": {"rel": 0.35}, "p95_hours": {"rel": 0.2}}.get(name, {"abs": 0.05})
        assert getattr(measured, name) == pytest.approx(published, **tolerance), name
    assert measured.median_count <= 1 or cluster == "C1"
    assert 4.5 <= measured.mean_size <= 13.5
    assert measured.most >= 20


def test_figures_of_nodes_by_hand():
    nodes = csv_changes("node,time,cores\na,0,8\na,30,4\na,60,8\na,3600,6\nb,0,8\nb,1800,4\nb,7200,8\n")
    found = harvest_figures(nodes)
    assert found.within_minute == pytest.approx(1 / 3)
    assert found.within_hour == pytest.approx(2 / 3)
    assert found.mean_minutes == pytest.approx((0.5 + 59 + 90) / 3)
    assert found.mean_size == pytest.approx((4 + 4 + 2 + 4 + 4) / 5)
    assert (found.median_count, found.most) == (1.0, 2.0)


def test_spot_trace_becomes_one_node_for_each_instance():
    changes = spot_changes(json.dumps({"metadata": {"gap_seconds": 10}, "data": [0, 2, 2, 1, 0]}))
    assert changes.nodes == 2
    assert changes.cores.tolist() == [0, 0]
    assert list(zip(changes.time, changes.node, changes.after, strict=True)) == [
        (10, 0, 16),
        (10, 1, 16),
        (30, 1, 0),
        (40, 0, 0),
    ]


def test_csv_nodes_start_at_their_first_row():
    changes = csv_changes("node,time,cores\na,100,8\nb,150,4\na,160,2\na,170,2\nb,200,0\n")
    assert changes.cores.tolist() == [8, 0]
    assert changes.time.tolist() == [50, 60, 100]
    assert changes.until == 100


@pytest.mark.parametrize(
    "text",
    [
        "node,time\na,1\n",
        "node,time,cores\na,x,1\n",
        "node,time,cores\n",
        "node,time,cores\na,0,-4\n",
        pytest.param(f"node,time,cores\na,0,{10**30}\n", id="more cores than a number holds"),
        "node,time,cores\na,0,2000000000\na,9,4\n",
        pytest.param(f"node,time,cores\n{'a' * 200_000},0,8\n", id="long name"),
        pytest.param('{"a":' + "[" * 200_000, id="deep"),
        "{}",
        '{"metadata": {"gap_seconds": 0}, "data": [1, 0]}',
        '{"metadata": {"gap_seconds": 5}, "data": [1, 0.5]}',
        '{"metadata": {"gap_seconds": 5}, "data": "abc"}',
        '{"metadata": {"gap_seconds": 5}, "data": [0, 0]}',
    ],
)
def test_malformed_nodes_are_refused(tmp_path, text):
    path = tmp_path / "nodes"
    path.write_text(text)
    with pytest.raises(BadInput):
        load_nodes(str(path))


@pytest.mark.parametrize("spec", ["synthetic:C9:1", "synthetic:C2:x", "synthetic", "absent.csv", ""])
def test_unknown_nodes_are_refused(spec):
    with pytest.raises(BadInput):
        load_nodes(spec)


def test_tasks_of_a_file(tmp_path):
    path = tmp_path / "tasks.csv"
    path.write_text("job,submit,duration,cores,estimate\nb,5,60,2,90\na,0,30,1,\na,0,30,99,\n")
    work = load_tasks(str(path), most_cores=4)
    assert work.submit.tolist() == [0, 5]
    assert work.estimate.tolist() == [30, 90]
    assert len(set(work.job)) == 2
    path.write_bytes(b"job,submit,duration,cores\ra,0,30,1\rb,9,30,1\r")
    assert load_tasks(str(path), most_cores=4).submit.tolist() == [0, 9]


@pytest.mark.parametrize(
    "text",
    [
        "job,submit,cores\na,0,1\n",
        "job,submit,duration,cores\na,0,nan,1\n",
        "job,submit,duration,cores\na,0,30,1.5\n",
        "job,submit,duration,cores\na,0,30,1e300\nb,0,30,1\n",
        pytest.param(f"job,submit,duration,cores\n{'a' * 200_000},0,30,1\n", id="long name"),
    ],
)
def test_malformed_tasks_are_refused(tmp_path, text):
    path = tmp_path / "tasks.csv"
    path.write_text(text)
    with pytest.raises(BadInput):
        load_tasks(str(path), most_cores=4)


def test_tasks_of_a_log_begin_with_the_nodes(tmp_path):
    path = log(tmp_path, LINE.replace("1 10", "1 1700000010"), LINE.replace("1 10", "2 1700000070"))
    assert load_tasks(str(path), most_cores=8).submit.tolist() == [0, 60]


def test_tasks_that_fill_the_memory_are_refused(tmp_path):
    path = log(tmp_path, LINE, LINE.replace("1 10", "2 1000000000"))
    with pytest.raises(BadInput, match="too short, it would have to be repeated") as caught:
        replay.report("synthetic:C2:1", tasks=str(path))
    assert "Give fewer days of tasks" in caught.value.mend


@pytest.mark.parametrize("shape", ["uniform", "gaussian", "pareto"])
def test_run_times_keep_to_their_range(shape):
    drawn = draw_runtimes(np.random.default_rng(1), shape, 5000, 4500.0)
    assert drawn.min() >= 60.0
    assert drawn.max() <= 4500.0 + 1e-6
    assert len(np.unique(drawn)) > 1000


def test_what_was_known_at_a_moment_holds_nothing_later():
    changes = csv_changes("node,time,cores\na,0,8\na,50,4\na,90,8\n")
    everything = all_intervals(changes)
    seen = known_at(everything, 60.0)
    assert seen.end.tolist() == [50.0, 60.0]
    assert seen.completed.tolist() == [True, False]


def test_scores_of_forecasts_by_hand():
    found = scores(np.array([0.8, 0.4, 0.6, 0.2]), np.array([1.0, 1.0, 0.0, 0.0]))
    assert found["auc"] == 0.75
    assert found["brier"] == pytest.approx((0.04 + 0.36 + 0.36 + 0.04) / 4)
    assert found["brier_base_rate"] == 0.25


def test_the_known_rate_holds_no_outcome_before_its_time():
    rate = _KnownRate(100.0)
    rate.note(0.0, np.array([1.0, 1.0]))
    assert rate.at(99.0) == 0.5
    assert rate.at(100.0) == 0.75


def test_rows_are_means_over_draws_of_tasks(tmp_path):
    path = tmp_path / "spot.json"
    alive = np.random.default_rng(4).integers(0, 5, 200).tolist()
    path.write_text(json.dumps({"metadata": {"gap_seconds": 1800}, "data": alive}))

    def rows(**chosen):
        result = replay.report(str(path), schedulers=["no-delay"], most_tasks=150, **chosen)
        return result["draws"], result["rows"][1]

    first, second = rows(draws=1, seed=7)[1], rows(draws=1, seed=8)[1]
    count, both = rows(draws=2, seed=7)
    assert count == 2
    assert both["mean_jct"] == pytest.approx((first["mean_jct"] + second["mean_jct"]) / 2)
    assert both["geomean_njct"] == pytest.approx(np.sqrt(first["geomean_njct"] * second["geomean_njct"]))
    assert both["geomean_njct_of_draws"] == [first["geomean_njct"], second["geomean_njct"]]
    assert both["gives_way"] == first["gives_way"]
    assert rows()[0] == 3
    tasks = tmp_path / "tasks.csv"
    tasks.write_text("job,submit,duration,cores\n1,90000,600,1\n2,91000,600,1\n")
    assert rows(tasks=str(tasks))[0] == 1, "tasks of a file are what they are"
    assert replay.report("synthetic:C2:1", schedulers=["no-delay"], most_tasks=300)["draws"] == 1


def test_the_page_is_whole_and_escapes_names(tmp_path):
    csv = tmp_path / "nodes.csv"
    csv.write_text("node,time,cores\na,0,8\nb,0,8\na,90000,4\nb,100000,8\na,172800,8\n")
    result = replay.report(str(csv), schedulers=["matched"], most_tasks=50)
    result["nodes"] = "<script>"
    write_stability(tmp_path / "page.html", result)
    assert "<h1>Nodes that change: &lt;script&gt;" in (tmp_path / "page.html").read_text()


@pytest.mark.traces
def test_sixteen_spot_nodes(traces):
    path = traces / "spot" / "availability_16-node_aws-08-27-2023_us-west-2a_v100_1.json.gz"
    result = replay.report(str(path), schedulers=["matched"], most_tasks=500)
    survival = result["survival"]
    assert survival["auc"] > 0.78
    assert survival["skill"] > 0.15
    assert survival["skill_over_known_rate"] > survival["skill"]  # hindsight is harder to beat


@pytest.mark.traces
@pytest.mark.parametrize("zone", ["1b", "1d"])
def test_a_dozen_losses_do_not_make_forecasts_worse_than_the_base_rate(traces, zone):
    """Single nodes whose curves alone are 0.06 and 0.08 worse; other traces rank the second the wrong way."""
    path = traces / "spot" / f"preemption_1-node_aws-04-19-2023_us-east-{zone}_intel_64.json.gz"
    assert survival_scores(load_nodes(str(path)).changes)["skill"] > -0.03


@pytest.mark.traces
def test_what_else_is_known_of_spot_nodes_is_worth_its_while(traces):
    """Four zones as one cluster."""
    zones = ",".join(
        str(traces / "spot" / f"availability_1-node_aws-02-15-2023_us-east-{zone}_v100_1.json.gz")
        for zone in ("1a", "1c", "1d", "1f")
    )
    found = survival_scores(load_nodes(zones).changes)
    assert found["auc"] > 0.78
    assert found["skill"] > 0.22
