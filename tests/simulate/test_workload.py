"""The synthetic workload: the published distributions, and users one can learn from."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest
from scipy import special

from advisor.simulate import lublin
from advisor.simulate.lublin import BATCH
from advisor.simulate.workload import MONDAY, ROUND_TIMES, submissions, workload


@pytest.fixture
def generator():
    return np.random.default_rng(11)


def test_sizes_have_the_published_shares(generator):
    sizes = lublin.sizes(generator, 200_000, 128)
    assert sizes.min() == 1
    assert sizes.max() == 128
    assert np.mean(sizes == 1) == pytest.approx(BATCH.serial_probability, abs=0.005)
    powers = np.isin(sizes, 2 ** np.arange(1, 8))
    # jobs that may be anything are rounded to a power of two now and then
    drawn = BATCH.power_of_two_probability
    assert drawn - 0.005 < powers.mean() < 1 - BATCH.serial_probability + 0.005
    # two stages: 12.5 % of the parallel jobs in the upper one, from 2^5 on
    parallel = sizes[sizes > 1]
    assert np.mean(parallel > 2**5.5) == pytest.approx(0.125 * 0.75, abs=0.01)


@pytest.mark.parametrize("machine", [1, 2, 3, 100, 1152])
def test_no_job_is_larger_than_the_machine(generator, machine):
    sizes = lublin.sizes(generator, 5_000, machine)
    assert sizes.min() >= 1
    assert sizes.max() <= machine


def _cut_gamma_mean(shape: float, scale: float) -> float:
    """Mean of a gamma variate below the longest logarithm."""
    limit = BATCH.longest_log_run / scale
    return shape * scale * special.gammainc(shape + 1, limit) / special.gammainc(shape, limit)


@pytest.mark.parametrize("processors", [1, 32, 128])
def test_run_times_have_the_published_mean_logarithm(generator, processors):
    run = lublin.run_times(generator.random(200_000), np.full(200_000, processors))
    short = BATCH.short_slope * processors + BATCH.short_intercept
    inside_short = special.gammainc(BATCH.short_shape, BATCH.longest_log_run / BATCH.short_scale)
    inside_long = special.gammainc(BATCH.long_shape, BATCH.longest_log_run / BATCH.long_scale)
    weights = np.array([short * inside_short, (1 - short) * inside_long])
    means = [
        _cut_gamma_mean(BATCH.short_shape, BATCH.short_scale),
        _cut_gamma_mean(BATCH.long_shape, BATCH.long_scale),
    ]
    assert np.log(run).mean() == pytest.approx(np.average(means, weights=weights), rel=0.01)


def test_larger_jobs_run_longer(generator):
    few = lublin.run_times(generator.random(50_000), np.full(50_000, 1))
    many = lublin.run_times(generator.random(50_000), np.full(50_000, 128))
    assert np.median(many) > 5 * np.median(few)


def test_gaps_have_the_published_gamma(generator):
    logarithm = np.log(lublin.gaps(generator, 200_000))
    assert logarithm.max() <= BATCH.longest_log_gap
    assert logarithm.mean() == pytest.approx(BATCH.gap_shape * BATCH.gap_scale, rel=0.02)


def test_day_has_its_peak_in_the_afternoon_and_its_trough_before_dawn():
    weights = lublin.day_weights()
    assert weights.mean() == pytest.approx(1)
    assert 22 <= np.argmax(weights) <= 32  # 11:00 to 16:00
    assert np.argmin(weights) in range(8, 14)  # 4:00 to 7:00


def test_arrivals_follow_the_day(generator):
    arrivals = lublin.arrival_times(generator.exponential(200.0, 300_000))
    assert np.all(np.diff(arrivals) >= 0)
    hours = np.bincount((arrivals % 86_400 // 1800).astype(int), minlength=48)
    assert np.corrcoef(hours, lublin.day_weights())[0, 1] > 0.99
    # the cycle moves arrivals within the day, and does not add or lose days
    assert arrivals[-1] == pytest.approx(300_000 * 200, rel=0.02)


@pytest.mark.parametrize("load", [0.3, 0.9])
def test_offered_load_is_the_one_asked_for(load):
    table = submissions(np.random.default_rng(3), jobs=20_000, processors=128, load=load)
    offered = (table.run @ table.processors) / (128 * table.submit[-1])
    assert offered == pytest.approx(load, rel=0.02)


def test_repetition_keeps_the_published_run_times():
    table = submissions(np.random.default_rng(5), jobs=100_000)
    fresh = lublin.run_times(np.random.default_rng(6).random(100_000), table.processors)
    for quantile in (0.1, 0.25, 0.75, 0.9):
        ours, theirs = (np.log(np.quantile(run, quantile)) for run in (table.run, fresh))
        assert ours == pytest.approx(theirs, abs=0.4)


def test_users_repeat_themselves():
    table = submissions(np.random.default_rng(5), jobs=20_000)
    order = np.argsort(table.user, kind="stable")
    follows = table.user[order][1:] == table.user[order][:-1]
    same_size = (table.processors[order][1:] == table.processors[order][:-1])[follows].mean()
    shuffled = np.random.default_rng(0).permutation(table.processors)
    by_chance = np.mean(shuffled[1:] == shuffled[:-1])
    assert same_size > 2 * by_chance
    distance = np.abs(np.diff(np.log(table.run[order])))[follows]
    anybody = np.abs(np.diff(np.log(table.run)))
    assert np.median(distance) < 0.6 * np.median(anybody)


def test_few_users_submit_most_jobs():
    table = submissions(np.random.default_rng(5), jobs=20_000)
    jobs = np.sort(np.bincount(table.user))[::-1]
    active = np.count_nonzero(jobs)
    assert active > 50
    assert jobs[: active // 5].sum() > 0.5 * len(table)


def test_requests_are_round_and_generous():
    table = submissions(np.random.default_rng(5), jobs=20_000)
    assert set(table.requested_time.tolist()) <= set(ROUND_TIMES.tolist())
    assert np.all(table.run <= table.requested_time)
    assert np.median(table.run / table.requested_time) < 0.5
    assert 0 < np.mean(table.run == table.requested_time) < 0.05
    assert np.all((table.status == 0) == (table.run == table.requested_time))


def test_table_is_a_log():
    table = submissions(np.random.default_rng(5), jobs=500, processors=64)
    assert len(table) == 500
    assert table.job_id.tolist() == list(range(1, 501))
    assert table.total_processors == 64
    assert table.start_of_log == MONDAY
    assert np.all(np.diff(table.submit) >= 0)
    assert set(table.queue.tolist()) <= {1, 2, 3}
    assert table.user.min() >= 1
    assert not table.wait.any()


def test_same_generator_state_same_jobs():
    one, other, third = (workload(np.random.default_rng(seed), jobs=300) for seed in (4, 4, 5))
    for column in fields(one):
        assert np.array_equal(getattr(one, column.name), getattr(other, column.name)), column.name
    assert not np.array_equal(one.run, third.run)


def test_history_has_the_waits_of_a_loaded_machine():
    idle = workload(np.random.default_rng(4), jobs=3_000, load=0.05)
    busy = workload(np.random.default_rng(4), jobs=3_000, load=0.9)
    assert np.all(busy.wait >= 0)
    assert np.median(idle.wait) == 0
    assert busy.wait.mean() > 10 * idle.wait.mean() > 0


@pytest.mark.parametrize(
    "wrong", [{"jobs": 0}, {"processors": 0}, {"load": 0.0}, {"load": math.nan}, {"load": math.inf}]
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="must be positive"):
        submissions(np.random.default_rng(1), **{"jobs": 10, "processors": 8, **wrong})


def test_one_job_is_a_workload():
    assert len(workload(np.random.default_rng(1), jobs=1, processors=1)) == 1
