"""Run times learned online: what a forecast always holds, and how fast it learns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.predict.run_times.grid import BINS, GRID, bin_of, quantile
from advisor.predict.run_times.job_numbers import JobNumbers
from advisor.predict.run_times.run_times import RunTimes

HOUR = 3600.0


def random_jobs(count: int, seed: int = 1) -> list[tuple[JobNumbers, float]]:
    """Jobs of few users, some without a request, and their run times."""
    generator = np.random.default_rng(seed)
    jobs = []
    for _ in range(count):
        user, executable = (int(number) for number in generator.integers(0, 9, 2))
        requested = float(generator.choice([600.0, HOUR, 86400.0, math.nan]))
        run = float(generator.lognormal(3.0 + user, 0.5))
        job = JobNumbers(user, user % 3, executable, user % 2, int(generator.integers(1, 65)), requested)
        jobs.append((job, run if math.isnan(requested) else min(run, requested)))
    return jobs


def test_a_forecast_sums_to_one_and_leaves_nothing_above_the_request() -> None:
    model = RunTimes(slots=512)
    for job, run in random_jobs(1500):
        given = model.forecast(job)
        top = BINS - 1 if math.isnan(job.requested_seconds) else bin_of(job.requested_seconds)
        assert given.shape == (BINS,)
        assert abs(given.sum() - 1.0) < 1e-9
        assert np.all(given[: top + 1] > 0.0)
        assert not np.any(given[top + 1 :])
        model.learn(job, run)


@pytest.mark.parametrize("requested", [1.0, 59.0, HOUR, 5e6, 1e9, math.nan, math.inf, 0.0, -1.0])
def test_the_first_job_has_a_wide_forecast_up_to_its_request(requested: float) -> None:
    given = RunTimes().forecast(JobNumbers(1, 2, 3, 4, 8, requested))
    assert abs(given.sum() - 1.0) < 1e-9
    if requested > 1.0:
        assert given.max() < 0.5


def test_a_larger_request_means_a_longer_run_before_anything_is_known() -> None:
    model = RunTimes()
    medians = [
        quantile(model.forecast(JobNumbers(1, 1, 1, 1, 1, limit)), 0.5) for limit in (600.0, HOUR, 86400.0)
    ]
    assert medians == sorted(medians)
    assert medians[0] * 5 < medians[-1]


def test_the_same_jobs_give_the_same_forecasts() -> None:
    def forecasts() -> NDArray[np.float64]:
        model = RunTimes(slots=512)
        given = []
        for job, run in random_jobs(300):
            given.append(model.forecast(job))
            model.learn(job, run)
        return np.array(given)

    assert np.array_equal(forecasts(), forecasts())


def test_asking_teaches_nothing() -> None:
    model, quiet = RunTimes(slots=512), RunTimes(slots=512)
    for job, run in random_jobs(200):
        for _ in range(3):
            model.forecast(job)
        model.learn(job, run)
        quiet.learn(job, run)
    for name, array in model.to_arrays().items():
        assert np.array_equal(array, quiet.to_arrays()[name]), name


def test_a_repeated_run_time_is_learned_within_few_jobs() -> None:
    model = RunTimes()
    for job, run in random_jobs(500):
        model.learn(job, run)
    job = JobNumbers(77, 1, 5, 1, 16, 86400.0)
    place = bin_of(5000.0)
    chances = []
    for _ in range(5):
        chances.append(float(model.forecast(job)[place - 1 : place + 2].sum()))
        model.learn(job, 5000.0)
    assert chances[0] < 0.25
    assert chances[2] > 2 * chances[0]
    assert model.forecast(job)[place - 1 : place + 2].sum() > 0.6


def test_jobs_that_run_to_their_limit_are_expected_to_do_so_under_another_limit() -> None:
    model = RunTimes()
    for limit in np.random.default_rng(1).uniform(HOUR, 40 * HOUR, 500).tolist():
        model.learn(JobNumbers(5, 1, 1, 1, 4, limit), limit + 60.0)
    limit = 60 * HOUR
    given = model.forecast(JobNumbers(5, 1, 1, 1, 4, limit))
    assert given[bin_of(limit) - 1 :].sum() > 0.5, given


def test_a_user_s_new_habit_outweighs_the_old_one() -> None:
    model = RunTimes()
    job = JobNumbers(1, 1, 1, 1, 1, 86400.0)
    for run in [100.0] * 200 + [20_000.0] * 10:
        model.learn(job, run)
    assert quantile(model.forecast(job), 0.5) > 10_000.0


def test_what_was_learned_least_recently_is_forgotten_and_the_size_stays() -> None:
    model = RunTimes(slots=256)
    before = {name: array.shape for name, array in model.to_arrays().items()}
    job = JobNumbers(1000, 1, 1, 1, 1, HOUR)
    for _ in range(30):
        model.learn(job, 7.0)
    assert quantile(model.forecast(job), 0.5) < 10.0
    for other, run in random_jobs(3000):
        model.learn(other, run)
    assert {name: array.shape for name, array in model.to_arrays().items()} == before
    assert quantile(model.forecast(job), 0.5) > 10.0


def test_what_was_learned_can_be_saved_and_loaded() -> None:
    model = RunTimes(slots=512)
    jobs = random_jobs(300)
    for job, run in jobs[:200]:
        model.learn(job, run)
    again = RunTimes.from_arrays(model.to_arrays())
    for job, run in jobs[200:]:
        assert np.array_equal(model.forecast(job), again.forecast(job))
        model.learn(job, run)
        again.learn(job, run)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", np.array([99], np.int64)),
        ("power", np.full((2, 2), 1.0)),
        ("squares", None),
        ("mass", np.full((512, BINS), np.nan, np.float32)),
        ("last", np.full((512, 2), 100, np.int8)),
    ],
)
def test_damaged_arrays_are_refused(name: str, value: NDArray[np.float64] | None) -> None:
    arrays = RunTimes(slots=512).to_arrays()
    if value is None:
        del arrays[name]
    else:
        arrays[name] = value
    with pytest.raises(BadInput, match="damaged"):
        RunTimes.from_arrays(arrays)


def test_a_run_beyond_the_grid_is_learned_in_its_last_bin() -> None:
    model = RunTimes()
    job = JobNumbers(1, 1, 1, 1, 1, math.nan)
    for _ in range(20):
        model.learn(job, 10 * float(GRID[-1]))
    assert model.forecast(job)[-1] > 0.5


def test_a_job_teaches_what_followed_the_run_times_known_at_its_submission() -> None:
    """The place of a submission stays what it was, however much is learned meanwhile."""
    job = JobNumbers(1, 1, 1, 1, 1, 86400.0)
    model = RunTimes(slots=512)
    model.learn(job, 10.0)
    place = model.look_up(job)
    kept = place.copy()
    model.learn(job, 5000.0, place=place)
    assert np.array_equal(place, kept)
    assert not np.array_equal(model.look_up(job), kept)
    without = RunTimes(slots=512)
    without.learn(job, 10.0)
    without.learn(job, 5000.0, place=without.look_up(job))
    assert np.array_equal(model.forecast(job), without.forecast(job))
