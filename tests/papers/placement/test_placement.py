"""The placement replay: the paper's optimum to the job, and what holds on any log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from advisor.history.swf import read_table
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimate, Estimates
from advisor.model.settings_decision import PlacementSettings
from advisor.model.table import JobTable
from advisor.papers.forests.distribution import ForestSettings
from advisor.papers.placement import placement
from advisor.papers.placement.forecast_rows import ForecastOptions
from advisor.papers.placement.placement import PlacementOptions, replay_placement
from advisor.predict.knn.tracker import states_of
from advisor.replay.cutoff_choice import PastJobs

pytestmark = pytest.mark.slow

PHASES: list[str] = []


@contextmanager
def quiet(phase: str, total: int) -> Iterator:
    PHASES.append(phase)
    assert total > 0
    yield lambda _done: None


def make_log(n: int = 1500, seed: int = 0) -> JobTable:
    """Users with habits on a crowded machine: waits and run times that can be learned."""
    generator = np.random.default_rng(seed)
    user = generator.integers(0, 8, n)
    run = np.round(60.0 * (user + 1) * generator.lognormal(0, 0.3, n)) + 1
    run[generator.random(n) < 0.02] = 0.0
    return JobTable(
        job_id=np.arange(1, n + 1),
        submit=np.cumsum(generator.integers(0, 60, n)).astype(np.float64),
        wait=np.round(300.0 * (user % 3) * generator.lognormal(0, 0.3, n)),
        run=run,
        processors=2 ** generator.integers(0, 5, n),
        requested_time=600.0 * (user + 1.0),
        user=user,
        group=user // 4,
        queue=np.zeros(n, np.int64),
        status=np.ones(n, np.int64),
        total_processors=64,
        name="habits",
    )


OPTIONS = PlacementOptions(
    skip=800,
    jobs=700,
    generations=2,
    population=6,
    backtest_jobs=300,
    forecast=ForecastOptions(first=300, retrain_jobs=300, forests=2, forest=ForestSettings(trees=5)),
)


@pytest.fixture(scope="module")
def replayed():
    return make_log(), replay_placement(make_log(), OPTIONS, quiet)


def test_the_window_is_counted_in_rows_and_only_jobs_that_ran_are_advised(replayed):
    table, found = replayed
    assert found.jobs == int((table.run[800:1500] > 0).sum()) < 700


def test_the_optimum_is_the_formula(replayed):
    table, found = replayed
    rows = np.flatnonzero(table.run[800:1500] > 0) + 800
    for row in found.rows:
        saved = table.wait[rows] - row.factor * table.processors[rows] * table.run[rows]
        assert row.optimal.cloud_jobs == int((saved > 0).sum())
        assert row.optimal.saved_seconds == pytest.approx(saved[saved > 0].sum())
        assert row.optimal.fraction_of_optimal == (None if row.optimal.cloud_jobs == 0 else 1.0)


def test_nobody_beats_the_clairvoyant_and_a_slower_cloud_gets_fewer_jobs(replayed):
    _, found = replayed
    for row in found.rows:
        for way in (row.without_cutoff, row.with_cutoff, row.advisor):
            assert way.saved_seconds <= row.optimal.saved_seconds + 1e-6
        assert row.with_cutoff.cloud_jobs <= row.without_cutoff.cloud_jobs
    counts = [row.without_cutoff.cloud_jobs for row in found.rows]
    assert counts == sorted(counts, reverse=True)


def test_habits_are_learned(replayed):
    _, found = replayed
    assert found.rows[0].without_cutoff.fraction_of_optimal > 0.8
    assert found.rows[0].advisor.fraction_of_optimal > 0.8
    for quality in (found.quality, found.published_quality):
        assert quality["wait"].without_estimate == 0.0
        assert quality["run"].mean_absolute_error < 150
        assert 0.5 < quality["run"].interval_coverage <= 1.0
    assert found.quality["run"].interval_coverage == pytest.approx(0.9, abs=0.06)


def test_the_advisor_loses_nowhere(replayed):
    _, found = replayed
    assert all(row.advisor.saved_seconds >= 0 for row in found.rows)


def test_tuning_is_reported_and_the_same_for_the_same_seed(replayed):
    _, found = replayed
    again = replay_placement(make_log(), OPTIONS, quiet)
    assert again == found
    for parameters in found.parameters.values():
        assert parameters.rmse_after <= parameters.rmse_before
    assert PHASES.count("tuning the wait estimator") >= 2


def test_what_was_not_known_when_the_window_began_changes_neither_parameters_nor_cutoff(replayed):
    table, found = replayed
    now, earlier = table.submit[OPTIONS.skip], np.arange(len(table)) < OPTIONS.skip
    waits, runs = earlier & (table.start >= now), earlier & (table.run > 0) & (table.end >= now)
    assert waits.sum() > 0
    assert runs.sum() > waits.sum()
    changed = replace(table, wait=table.wait + 5_000.0 * waits, run=table.run + 9_000.0 * runs)
    again = replay_placement(changed, OPTIONS, quiet)
    assert again.parameters == found.parameters
    assert again.cutoff == found.cutoff


def test_without_tuning(replayed):
    found = replay_placement(make_log(), replace(OPTIONS, tune=False, factors=(0.01,)), quiet)
    assert len(found.rows) == 1
    assert found.parameters["wait"].rmse_after is None
    assert found.rows[0].without_cutoff.cloud_jobs > 0


def test_with_perfect_estimates_the_decision_function_is_the_clairvoyant():
    table = make_log(300)
    states = states_of(table)
    rows = np.flatnonzero(table.run > 0)
    actual = PastJobs(
        processors=table.processors[rows],
        wait=table.wait[rows],
        wait_variance=np.zeros(len(rows)),
        run=table.run[rows],
        actual_wait=table.wait[rows],
        actual_run=table.run[rows],
    )
    nothing = {"wait": _columns(len(rows)), "run": _columns(len(rows))}
    cases = [
        (
            job,
            state,
            Estimates(
                wait=Estimate(seconds=table.wait[row], variance=0.0),
                run=Estimate(seconds=table.run[row], variance=0.0),
            ),
        )
        for row, (job, state, _) in zip(
            rows, placement._cases(table, states, rows, nothing, slice(0, len(rows))), strict=True
        )
    ]
    for factor in (0.01, 0.3):
        settings = PlacementSettings(
            overhead_per_processor=factor,
            boot_seconds=0.0,
            use_cutoff=False,
        )
        np.testing.assert_array_equal(placement._sent(cases, settings), actual.saved_seconds(factor, 1.0) > 0)


def _columns(n: int):
    from advisor.replay.estimates import EstimateColumns

    column = np.full(n, np.nan)
    return EstimateColumns(
        seconds=column,
        variance=column,
        lower=column,
        upper=column,
        neighbours=np.zeros(n, np.int64),
        coverage=0.9,
    )


def test_a_log_that_is_too_short_is_refused():
    with pytest.raises(BadInput, match="hold no job that ran") as caught:
        replay_placement(make_log(), replace(OPTIONS, skip=5000), quiet)
    assert "--skip" in caught.value.mend
    assert "habits" in caught.value.where


def test_estimators_stay_untuned_where_too_few_jobs_come_before_the_window():
    found = replay_placement(make_log(), replace(OPTIONS, skip=300), quiet)
    untuned = replay_placement(make_log(), replace(OPTIONS, skip=300, tune=False), quiet)
    assert found.parameters == untuned.parameters
    assert found.rows == untuned.rows
    assert all(tuned.rmse_after is None for tuned in found.parameters.values())


def test_a_log_without_waits_is_refused():
    table = make_log()
    with pytest.raises(BadInput, match="hold no wait") as caught:
        replay_placement(replace(table, wait=np.full(len(table), -1.0)), OPTIONS, quiet)
    assert "rehearse" in caught.value.mend


def test_no_history_at_all_keeps_everything_on_premise():
    found = replay_placement(
        make_log(60), PlacementOptions(skip=1, jobs=1, tune=False, factors=(0.0,)), quiet
    )
    assert found.rows[0].without_cutoff.cloud_jobs == 0
    assert found.rows[0].advisor.cloud_jobs == 0
    assert found.quality["wait"].without_estimate == 1.0
    assert found.published_quality["wait"].without_estimate == 1.0


QUICK = ForecastOptions(retrain_jobs=4_000, forests=1, forest=ForestSettings(trees=4, most_jobs=3_000))

PRINTED = {
    "HPC2N-2002-2.2-cln": (
        10_000,
        {0.01: (6475, 201.4), 0.05: (5024, 181.2), 0.10: (4316, 164.1)},
    ),
    "SDSC-BLUE-2000-4.2-cln": (9_483, {0.01: (3785, 78.0), 0.05: (2102, 40.2), 0.10: (1424, 27.6)}),
    "SDSC-DS-2004-2.1-cln": (8_981, {}),
}


@pytest.mark.traces
@pytest.mark.parametrize("name", PRINTED)
def test_the_papers_optimum_to_the_job(traces, name):
    """Tables III to V; the paper prints twice these sums."""
    jobs, printed = PRINTED[name]
    table = read_table(traces / f"{name}.swf.gz", keep="all")
    options = PlacementOptions(
        tune=False, factors=(0.01, 0.05, 0.10), backtest_jobs=2_000, record_jobs=2_000, forecast=QUICK
    )
    found = replay_placement(table, options, quiet)
    assert found.jobs == jobs
    for row in found.rows:
        if row.factor in printed:
            assert row.optimal.cloud_jobs == printed[row.factor][0]
            assert row.optimal.saved_seconds / 1e6 == pytest.approx(printed[row.factor][1], abs=0.06)
        assert 0 < row.without_cutoff.cloud_jobs < jobs
        assert row.with_cutoff.cloud_jobs > 0
    assert found.rows[0].with_cutoff.fraction_of_optimal > 0.5
