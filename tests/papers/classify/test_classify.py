"""A log classified week by week."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from advisor.history.swf import read_table
from advisor.model.table import UNKNOWN_CODE, JobTable
from advisor.papers.classify.classify import ClassifiedJobs, classify_table, report
from advisor.predict.size.size_history import WEEK_SECONDS
from advisor.predict.size.size_training import ADVISOR
from advisor.simulate.workload import workload

QUICK = replace(ADVISOR, trees=15, window_jobs=2000)


@pytest.fixture(scope="module")
def table() -> JobTable:
    """Four weeks in which the request says nothing and a user's previous job nearly everything."""
    generator = np.random.default_rng(11)
    count = 1600
    user = generator.integers(0, 12, count)
    long_user = generator.random((12, 20)) < 0.5
    submit = np.sort(generator.random(count)) * 4 * WEEK_SECONDS
    phase = (submit / (4 * WEEK_SECONDS) * 19).astype(int)
    run = np.where(long_user[user, phase], 7200.0, 60.0) * generator.uniform(0.7, 1.3, count)
    unknown = np.full(count, UNKNOWN_CODE)
    return JobTable(
        job_id=np.arange(count) + 1,
        submit=submit,
        wait=np.zeros(count),
        run=run,
        processors=np.ones(count, np.int64),
        requested_time=np.full(count, 36000.0),
        user=user,
        group=unknown,
        queue=unknown,
        status=np.ones(count, np.int64),
        name="made",
    )


@pytest.fixture(scope="module")
def classified(table: JobTable) -> ClassifiedJobs:
    return classify_table(table, parameters=QUICK)


def test_the_first_week_is_large_and_not_judged(table, classified):
    first = table.submit < table.submit[0] + WEEK_SECONDS
    assert not classified.is_small[first].any()
    assert not classified.judged[first].any()
    assert np.isnan(classified.divider[first]).all()
    assert classified.judged[~first].all()


def test_right_means_below_the_median_of_the_weeks_before(table, classified):
    for week in (1, 2, 3):
        now = table.submit[0] + week * WEEK_SECONDS
        divider = np.median(table.run[table.end < now])
        jobs = classified.week == week
        assert jobs.any()
        np.testing.assert_allclose(classified.divider[jobs], divider, rtol=1e-9)
        np.testing.assert_array_equal(classified.truly_small[jobs], table.run[jobs] < divider)


def test_online_lags_see_what_last_weeks_cannot(table, classified):
    score = classified.score()
    published = classify_table(table, "paper").score()
    assert score["accuracy"] > 0.8
    assert score["accuracy"] > published["accuracy"] + 0.1


def test_scores_are_equations_1_to_3():
    jobs = ClassifiedJobs(
        probability=np.zeros(7),
        divider=np.ones(7),
        is_small=np.array([1, 1, 1, 0, 0, 1, 0], bool),
        week=np.zeros(7, np.int64),
        truly_small=np.array([1, 1, 0, 1, 0, 0, 1], bool),
        judged=np.array([1, 1, 1, 1, 1, 1, 0], bool),
        train_seconds=np.zeros(0),
    )
    assert jobs.score() == pytest.approx(
        {"accuracy": 0.5, "precision": 0.5, "recall": 2 / 3, "false_small_share": 2 / 6}
    )


def test_nothing_of_a_week_depends_on_later_weeks(table, classified):
    """Cut the log after week 2: what week 1 and 2 were told stays the same, to the bit."""
    cut = table.select(classified.week <= 2)
    again = classify_table(cut, parameters=QUICK)
    np.testing.assert_array_equal(again.probability, classified.probability[classified.week <= 2])


def test_rows_out_of_order_come_back_in_their_own_order(table, classified):
    shuffled = np.random.default_rng(1).permutation(len(table))
    again = classify_table(table.select(shuffled), parameters=QUICK)
    np.testing.assert_array_equal(again.probability, classified.probability[shuffled])


def test_a_softer_cut_classes_more_jobs_small(table, classified):
    soft = classify_table(table, parameters=QUICK, probability_cut=0.1)
    assert soft.is_small.sum() > classified.is_small.sum()
    assert soft.score()["recall"] >= classified.score()["recall"]


def test_the_report_has_the_contracts_fields():
    ticks: list[tuple[str, int, int]] = []
    result = report(
        workload(np.random.default_rng(5), jobs=1500, processors=64),
        progress=lambda *tick: ticks.append(tick),
    )
    assert {"trace", "jobs_judged", "modes", "weeks", "train_seconds_per_week", "seconds"} <= result.keys()
    for mode in ("paper", "advisor"):
        assert {"accuracy", "precision", "recall", "false_small_share", "divider_seconds"} <= result["modes"][
            mode
        ].keys()
    assert result["jobs_judged"] == sum(week["jobs"] for week in result["weeks"])
    accuracy = sum(week["jobs"] * week["modes"]["advisor"]["accuracy"] for week in result["weeks"])
    assert accuracy / result["jobs_judged"] == pytest.approx(result["modes"]["advisor"]["accuracy"])
    assert ticks[-1][1] == ticks[-1][2]
    json.dumps(result)


@pytest.mark.traces
@pytest.mark.slow
def test_kth_reaches_its_bar(traces):
    found = classify_table(read_table(traces / "KTH-SP2-1996-2.1-cln.swf.gz"))
    assert found.score()["accuracy"] >= 0.850
