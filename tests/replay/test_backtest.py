"""Old and new size model judged on the last week."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.model.job import Job, JobOutcome
from advisor.predict.size.size_features import FEATURE_NAMES
from advisor.predict.size.size_history import WEEK_SECONDS, SizeHistory
from advisor.predict.size.size_model import SizeModel
from advisor.predict.size.size_training import constant
from advisor.replay.backtest import backtest

NOW = 3 * WEEK_SECONDS


@pytest.fixture(scope="module")
def history() -> SizeHistory:
    """The request tells the run time exactly; 45 in 100 are small."""
    generator = np.random.default_rng(2)
    outcomes = []
    for i, submit in enumerate(np.sort(generator.random(900)) * NOW):
        request = float(generator.choice([600, 36000], p=[0.45, 0.55]))
        job = Job(job_id=i + 1, submit_time=float(submit), processors=1, user="ann", requested_time=request)
        outcomes.append(JobOutcome(job=job, start_time=float(submit), end_time=float(submit) + request / 10))
    return SizeHistory.from_outcomes(outcomes)


def constant_model(probability: float, trained_at: float = 0.0) -> SizeModel:
    trees = constant(probability, len(FEATURE_NAMES))
    return SizeModel(trees=trees, divider_seconds=3600.0, trained_at=trained_at)


def test_a_better_candidate_is_seen_as_better(history):
    got = backtest(history, constant_model(0.0), now=NOW)
    week = (history.submit >= NOW - WEEK_SECONDS) & (history.end < NOW)
    assert got.jobs == week.sum()
    assert got.candidate_accuracy == 1.0
    assert got.current_accuracy == np.mean(history.run[week] >= 3600.0)
    assert not got.is_worse


def test_without_a_model_in_force_the_candidate_is_judged_alone(history):
    got = backtest(history, None, now=NOW)
    assert got.jobs > 100
    assert got.candidate_accuracy == 1.0
    assert math.isnan(got.current_accuracy)
    assert not got.is_worse


def test_jobs_the_model_in_force_was_trained_on_are_left_out(history):
    got = backtest(history, constant_model(0.0, NOW - 3600.0), now=NOW)
    assert got.jobs == 0
    assert not got.is_worse


def test_a_history_too_short_compares_nothing(history):
    assert backtest(history, None, now=float(history.submit[60])).jobs == 0


@pytest.mark.parametrize(("cut", "calls_small"), [(0.5, True), (0.7, False)])
def test_models_are_judged_at_the_vote_that_jobs_are_classed_at(history, cut, calls_small):
    got = backtest(history, constant_model(0.6), now=NOW, probability_cut=cut)
    week = (history.submit >= NOW - WEEK_SECONDS) & (history.end < NOW)
    small = history.run[week] < 3600.0
    assert got.current_accuracy == np.mean(small == calls_small)
