"""Live is the replay: the same log, seen by looks at Slurm and by accounting, gives the same features."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.model import Estimate, JobTable
from advisor.predict.forecast.calibration import cut_interval
from advisor.predict.forecast.forecast_rows import ForecastColumns, forecast_rows
from advisor.predict.forecast.placement_replay import features_of
from advisor.predict.forecast.rolling import TARGETS, RollingForests
from advisor.predict.forecast.submission_features import FEATURES
from advisor.service.submit.live_placement import LivePlacement
from tests.service.placement_world import BOUNDS, OPTIONS, ORIGIN, Site, job_of, make_log


@pytest.fixture(scope="module")
def table() -> JobTable:
    return make_log()


@pytest.fixture(scope="module")
def replayed(table: JobTable) -> tuple[RollingForests, dict[str, ForecastColumns]]:
    rolling = RollingForests(OPTIONS)
    return rolling, forecast_rows(table, np.arange(len(table)), OPTIONS, rolling=rolling)


def differing(found: np.ndarray, expected: np.ndarray) -> set[str]:
    return {name for name, a, b in zip(FEATURES, found, expected, strict=True) if a != pytest.approx(b)}


def test_features_and_forecasts_are_the_replays(
    table: JobTable, replayed: tuple[RollingForests, dict[str, ForecastColumns]]
) -> None:
    forests, columns = replayed
    expected = features_of(table)
    site = Site(table, forests)
    last = len(table) - (len(table) - OPTIONS.first) % OPTIONS.retrain_jobs
    assert last < len(table) - 30
    for row in range(len(table)):
        site.look(float(table.submit[row]))
        site.follow()
        job = job_of(table, row)
        assert differing(site.live.features(job), expected[row]) == set()
        if row >= last:  # the rows of the newest forests
            found = site.live.forecast(job)
            for number, target in enumerate(TARGETS):
                estimate = columns[target].estimate(row)
                asked = math.inf if job.requested_time is None else job.requested_time
                interval, where = np.empty(2), np.array(BOUNDS[target])
                cut_interval(columns[target].mass[row], expected[row], number, asked, where, interval)
                assert (found[target].lower, found[target].upper) == pytest.approx(interval, rel=1e-9)
                assert found[target].seconds == pytest.approx(estimate.seconds, rel=1e-9)
                assert found[target].quantiles == pytest.approx(estimate.quantiles, rel=1e-9, abs=1e-9)
        site.live.advised(job, 1)  # what the next look shows replaces it


def test_between_two_looks_only_what_they_miss_differs(
    table: JobTable, replayed: tuple[RollingForests, dict[str, ForecastColumns]]
) -> None:
    """Looks every ten minutes: the request is exact; starts and ends since the look are not known yet."""
    expected = features_of(table)
    site = Site(table, replayed[0])
    looked, exact = -1.0, 0
    for row in range(len(table)):
        now = float(table.submit[row])
        if now - looked >= 600.0:
            looked = now
            site.look(now)
            site.follow()
        job = job_of(table, row)
        found = dict(zip(FEATURES, site.live.features(job).tolist(), strict=True))
        truth = dict(zip(FEATURES, expected[row].tolist(), strict=True))
        missed = _changes(table, looked, now, row)
        if not missed:
            assert differing(np.array([*found.values()]), expected[row]) == set()
            exact += 1
        assert {name for name in FEATURES[:10] if found[name] != truth[name]} == set()
        jobs = found["waiting_jobs"] + found["running_jobs"]
        assert abs(jobs - truth["waiting_jobs"] - truth["running_jobs"]) <= missed
        site.live.advised(job, 1)
    assert exact > 40


def _changes(table: JobTable, looked: float, now: float, row: int) -> int:
    """Starts, ends and submissions in (looked, now] that the last look cannot show."""
    times = np.concatenate([table.start[:row], table.end[:row], table.submit[:row]])
    return int(((times > looked) & (times <= now)).sum()) + int((table.submit[:row] == looked).sum())


def test_submissions_since_the_look_are_met(
    table: JobTable, replayed: tuple[RollingForests, dict[str, ForecastColumns]]
) -> None:
    site = Site(table, replayed[0])
    now = float(table.submit[200])
    site.look(now)
    site.follow()
    first, second = job_of(table, 200), replace(job_of(table, 201), submit_time=ORIGIN + now)
    before = named(site.live, second)
    site.live.advised(first, 3)
    after = named(site.live, second)
    added = after["waiting_jobs"] + after["running_jobs"] - before["waiting_jobs"] - before["running_jobs"]
    assert added == 3
    site.look(now + 60.0)  # they were refused by slurmctld: no look shows them
    site.follow()
    assert site.live._advised == type(site.live._advised)()


def test_a_forecast_is_kept_for_a_second_for_jobs_that_say_the_same(
    table: JobTable, replayed: tuple[RollingForests, dict[str, ForecastColumns]]
) -> None:
    site = Site(table, replayed[0])
    site.look(float(table.submit[300]))
    site.follow()
    job = job_of(table, 300)

    def asked(later: float, **changed: object) -> dict[str, Estimate]:
        return site.live.forecast(replace(job, submit_time=job.submit_time + later, **changed))

    first = asked(0.0)
    assert asked(0.9) is first
    assert asked(0.9, processors=job.processors + 1) is not first
    assert asked(0.9, name="nobody knows") is asked(0.9, name="nobody knows either")
    assert asked(1.1) is not first
    before = asked(0.2)  # a clock that is set back
    assert before is not first
    site.look(float(table.submit[300]) + 0.5)
    site.follow()
    assert asked(0.3) is not before


def test_no_kept_forecast_outlives_what_happens(
    table: JobTable, replayed: tuple[RollingForests, dict[str, ForecastColumns]]
) -> None:
    site, generator = Site(table, replayed[0]), random.Random(4)
    now = float(table.submit[300])
    site.look(now)
    site.follow()
    live, kept = site.live, 0
    for _ in range(400):
        job = replace(job_of(table, generator.randrange(290, 296)), submit_time=ORIGIN + now)
        kept += len(live._kept)
        fresh = live._forecaster.forecast(live.features(job), job.requested_time, live._bounds)
        assert live.forecast(job) == fresh
        if generator.random() < 0.1:
            live.advised(job, 1)
        elif generator.random() < 0.05:
            now += 5.0
            site.look(now)
            site.follow()
    assert kept > 200


def test_an_empty_machine_starts_a_job_at_once() -> None:
    table = make_log(160)
    rolling = RollingForests(OPTIONS)
    forecast_rows(table, np.arange(len(table)), OPTIONS, rolling=rolling)
    site = Site(table, rolling)
    job = replace(job_of(table, 0), processors=100, submit_time=ORIGIN)
    site.live.advised(job, 1)
    after = named(site.live, replace(job, submit_time=ORIGIN + 1.0))
    assert (after["running_jobs"], after["waiting_jobs"], after["free_processors"]) == (1, 0, 28)
    site.live.advised(replace(job, submit_time=ORIGIN + 1.0), 1)
    after = named(site.live, replace(job, submit_time=ORIGIN + 2.0))
    assert (after["running_jobs"], after["waiting_jobs"]) == (1, 1)
    assert after["recent_wait_mean_5"] == -1, "nobody saw it start"


def named(live: LivePlacement, job) -> dict[str, float]:
    return dict(zip(FEATURES, live.features(job).tolist(), strict=True))
