"""The cutoff chosen on the past, and the columns' twin of the published rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.model.advice import Placement
from advisor.model.site import Cutoff
from advisor.replay.cutoff_choice import DECAYS, PastJobs, choose_cutoff
from tests.decide.cases import ask, make_estimates, make_job, make_settings
from tests.decide.submission.test_advise import seconds, variances


def past(rows) -> PastJobs:
    """Rows of (processors, wait, wait variance, run, actual wait, actual run)."""
    columns = np.array(rows, np.float64).reshape(-1, 6).T
    return PastJobs(
        processors=columns[0].astype(np.int64),
        wait=columns[1],
        wait_variance=columns[2],
        run=columns[3],
        actual_wait=columns[4],
        actual_run=columns[5],
    )


@given(
    st.lists(st.tuples(st.integers(1, 5000), seconds, variances, seconds), min_size=1, max_size=8),
    st.floats(0, 10),
    st.floats(0.1, 3),
    st.floats(1, 1e12),
    st.floats(0, 5),
    st.floats(0, 1000),
)
def test_the_columns_decide_as_the_decision_function(jobs, o, i, a, b, boot):
    columns = past([(*job, 0.0, 1.0) for job in jobs])
    placement = {
        "overhead_per_processor": o,
        "baseline": i,
        "boot_seconds": boot,
    }
    faster = columns.looks_faster(o, i, boot)
    sure = columns.sure_enough(o, a, b)
    for use_cutoff, sent in ((False, faster), (True, faster & sure)):
        site = make_settings(placement=placement | {"use_cutoff": use_cutoff})
        for (processors, wait, variance, run), goes in zip(jobs, sent, strict=True):
            advice = ask(
                make_job(processors=processors),
                make_estimates(wait=wait, wait_variance=variance, run=run),
                settings=site,
                cutoff=Cutoff(scale=a, decay=b),
            )
            assert (advice.placement is Placement.BURST) == goes


def score_of(jobs: PastJobs, factors, scale: float, decay: float) -> float:
    """The score by its definition."""
    scores = []
    for factor in factors:
        saved = jobs.saved_seconds(factor, 1.0)
        sent = jobs.looks_faster(factor, 1.0) & jobs.sure_enough(factor, scale, decay)
        optimum = saved[saved > 0].sum()
        if optimum > 0:
            scores.append(saved[sent].sum() / optimum)
    return float(np.mean(scores)) if scores else 0.0


def random_past(seed: int, n: int = 200) -> PastJobs:
    generator = np.random.default_rng(seed)
    actual_wait = generator.exponential(3000.0, n)
    actual_run = generator.exponential(3000.0, n)
    noise = generator.lognormal(0.0, 1.5, n)
    return PastJobs(
        processors=generator.integers(1, 64, n),
        wait=actual_wait * noise,
        wait_variance=np.where(generator.random(n) < 0.1, np.inf, (actual_wait * (noise - 1)) ** 2),
        run=actual_run * generator.lognormal(0.0, 0.5, n),
        actual_wait=actual_wait,
        actual_run=actual_run,
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_the_score_is_what_the_definition_says_and_no_decay_does_better(seed):
    jobs, factors = random_past(seed), (0.0, 0.05, 0.5)
    chosen = choose_cutoff(jobs, factors)
    assert chosen.score == pytest.approx(score_of(jobs, factors, chosen.scale, chosen.decay), abs=1e-9)
    assert chosen.score_without == pytest.approx(
        float(
            np.mean(
                [
                    jobs.saved_seconds(o, 1.0)[jobs.looks_faster(o, 1.0)].sum()
                    / np.maximum(jobs.saved_seconds(o, 1.0), 0.0).sum()
                    for o in factors
                ]
            )
        ),
        abs=1e-9,
    )
    for decay in DECAYS:
        assert chosen.score >= score_of(jobs, factors, chosen.scale, decay) - 1e-9


def test_a_cutoff_keeps_out_what_went_wrong():
    # sure and right: saves 900 s; unsure and wrong: loses 10 x 1000 s
    good = (10, 1000.0, 100.0, 100.0, 1000.0, 100.0)
    bad = (10, 5000.0, 1e6, 1000.0, 0.0, 10_000.0)
    chosen = choose_cutoff(past([good, bad]), [0.1])
    assert chosen.score == pytest.approx(1.0)
    assert chosen.score_without < 0
    jobs = past([good, bad])
    assert jobs.sure_enough(0.1, chosen.scale, chosen.decay).tolist() == [True, False]


def test_no_stricter_than_it_needs_be():
    good = (10, 1000.0, 1e6, 100.0, 1000.0, 100.0)
    chosen = choose_cutoff(past([good, good]), [0.1])
    assert chosen.decay == 0.0
    assert chosen.scale > 1e6
    assert chosen.score == chosen.score_without == pytest.approx(1.0)


@pytest.mark.parametrize(
    "rows", [[], [(1, 10.0, math.inf, 10.0, 10.0, 10.0)], [(1, 10.0, 1.0, 10.0, 0.0, 10.0)]]
)
def test_nothing_to_learn_from(rows):
    chosen = choose_cutoff(past(rows), [0.5])
    assert chosen.scale > 0
    assert math.isfinite(chosen.scale)
    assert chosen.score == 0.0
