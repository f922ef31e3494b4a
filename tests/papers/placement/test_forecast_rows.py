"""Forecasts of a log's jobs, and the advisor's rule on them: nothing is known before it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.model.table import JobTable
from advisor.papers.forests.distribution import ForestSettings
from advisor.papers.placement.calibration import GRACE_SECONDS
from advisor.papers.placement.forecast_rows import ForecastColumns, ForecastOptions, forecast_rows

OPTIONS = ForecastOptions(first=200, retrain_jobs=100, forests=2, forest=ForestSettings(trees=3))


def make_log(n: int = 500, seed: int = 0) -> JobTable:
    generator = np.random.default_rng(seed)
    user = generator.integers(0, 5, n)
    return JobTable(
        job_id=np.arange(n),
        submit=np.cumsum(generator.integers(0, 60, n)).astype(np.float64),
        wait=np.round(400.0 * user * generator.lognormal(0, 0.2, n)),
        run=np.round(100.0 * (user + 1) * generator.lognormal(0, 0.2, n)) + 1.0,
        processors=generator.integers(1, 9, n),
        requested_time=np.where(user == 4, np.nan, 150.0 * (user + 1)),
        user=user,
        group=np.zeros(n, np.int64),
        queue=np.zeros(n, np.int64),
        status=np.ones(n, np.int64),
        total_processors=64,
        name="habits",
    )


@pytest.fixture(scope="module")
def forecast() -> dict[str, ForecastColumns]:
    table = make_log()
    return forecast_rows(table, np.arange(len(table)), OPTIONS)


def test_the_first_jobs_are_only_learned_from(forecast) -> None:
    for columns in forecast.values():
        assert np.isnan(columns.mean[:200]).all()
        assert np.isfinite(columns.mean[200:]).all()


def test_no_run_time_exceeds_the_request(forecast) -> None:
    table, run = make_log(), forecast["run"]
    limited = np.flatnonzero(np.isfinite(table.requested_time) & np.isfinite(run.mean))
    limit = table.requested_time[limited]
    assert np.all(run.mean[limited] <= limit)
    assert np.all(run.quantiles[limited] <= limit[:, None])
    # the site enforces it
    assert np.all(run.upper[limited] <= limit + GRACE_SECONDS)


def test_forecasts_follow_the_users_habits(forecast) -> None:
    table, wait = make_log(), forecast["wait"]
    known = np.isfinite(wait.mean)
    error = np.abs(wait.mean - table.wait)[known].mean()
    assert error < 0.5 * np.abs(table.wait[known] - table.wait[known].mean()).mean()


def test_labels_not_yet_known_change_no_forecast(forecast) -> None:
    table = make_log()
    row = 330
    now = table.submit[300]  # the forests in force at row 330 were grown at row 300
    wait, run = table.wait.copy(), table.run.copy()
    wait[table.start > table.submit[row]] += 5_000.0
    run[table.end > table.submit[row]] += 9_000.0
    changed = forecast_rows(replace(table, wait=wait, run=run), np.arange(len(table)), OPTIONS)
    assert now <= table.submit[row]
    for target in ("wait", "run"):
        for name in ("mean", "quantiles", "lower", "upper"):
            before, after = (getattr(columns[target], name)[:row] for columns in (forecast, changed))
            np.testing.assert_array_equal(before, after)


def test_progress_is_reported() -> None:
    told: list[int] = []
    table = make_log(430)
    forecast_rows(table, np.arange(430), OPTIONS, tick=told.append)
    assert told == [100, 100, 30]
