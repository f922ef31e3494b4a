"""Question 2 on hand-computed cases (Cunha et al. 2017, section IV)."""

from __future__ import annotations

import math

import pytest

from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.wording import explanation
from advisor.decide.submission.advise import advise
from advisor.model.advice import Placement, Verdict
from advisor.model.site import CloudState, Cutoff, SiteState
from tests.decide.cases import (
    CLUSTER,
    NAN,
    NOTHING_KNOWN,
    ask,
    make_cloud,
    make_estimates,
    make_job,
    make_settings,
)


def answer_of(job=None, estimates=None, cloud=None, **placement):
    settings = make_settings(placement=placement)
    advice = ask(job, estimates, cloud=cloud, settings=settings)
    return advice, advice.answers[1]


@pytest.mark.parametrize(
    ("wait", "reason"),
    [
        # 10 processors, o = 0.05, i = 1: s = 1.5. A run of 3600 s takes 1800 s longer, and 120 s to boot.
        (1920.0, Reason.CLOUD_NOT_FASTER),  # a tie is not faster
        (1920.5, Reason.CLOUD_FASTER),
        (1919.5, Reason.CLOUD_NOT_FASTER),
        (0.0, Reason.CLOUD_NOT_FASTER),
    ],
)
def test_turnaround_by_hand(wait, reason):
    _, answer = answer_of(
        make_job(processors=10),
        make_estimates(wait=wait, run=3600.0),
        overhead_per_processor=0.05,
        boot_seconds=120.0,
    )
    assert answer.reason == reason
    numbers = {name: value.value for name, value in answer.numbers}
    assert numbers["predicted_saving"] == pytest.approx(wait - 1920.0)
    assert numbers["performance_ratio"] == pytest.approx(1.5)


def test_a_faster_cloud_core_pays_even_without_a_wait():
    advice, answer = answer_of(
        make_job(processors=1),
        make_estimates(wait=0.0, run=10_000.0),
        overhead_per_processor=0.0,
        baseline=0.5,
        boot_seconds=0.0,
    )
    assert answer.reason == Reason.CLOUD_FASTER
    assert advice.placement is Placement.BURST


def test_the_learned_boot_time_replaces_the_setting():
    estimates = make_estimates(wait=200.0, run=0.0)
    assert answer_of(None, estimates, boot_seconds=120.0)[1].verdict is Verdict.YES
    slow = CloudState(boot_seconds=300.0)
    assert answer_of(None, estimates, slow, boot_seconds=120.0)[1].verdict is Verdict.NO


@pytest.mark.parametrize(("variance", "verdict"), [(36.0, Verdict.YES), (37.0, Verdict.UNSURE)])
def test_cutoff_by_hand(variance, verdict):
    # C = a*exp(-b*o*c) = 100*exp(-2*0.05*10) = 36.788
    _, answer = answer_of(
        make_job(processors=10),
        make_estimates(wait_variance=variance),
        overhead_per_processor=0.05,
        cutoff_minutes=10.0 / 60.0,
        cutoff_decay=2.0,
    )
    assert answer.verdict is verdict
    assert dict(answer.numbers)["tolerated_deviation"].value == pytest.approx(10 * math.exp(-0.5))
    assert dict(answer.numbers)["tolerated_deviation"].unit == "s"


@pytest.mark.parametrize("variance", [math.inf, NAN])
def test_an_unknown_variance_is_doubt_unless_the_cutoff_is_off(variance):
    estimates = make_estimates(wait_variance=variance)
    advice, answer = answer_of(None, estimates)
    assert answer.reason == Reason.TOO_UNCERTAIN
    assert advice.placement is Placement.ON_PREMISE
    assert answer_of(None, estimates, use_cutoff=False)[1].reason == Reason.CLOUD_FASTER


@pytest.mark.parametrize("wait", [NAN, math.inf, -math.inf])
def test_an_unusable_wait_is_doubt(wait):
    for use_cutoff in (True, False):
        advice, answer = answer_of(None, make_estimates(wait=wait), use_cutoff=use_cutoff)
        assert answer.reason == Reason.WAIT_UNKNOWN
        assert advice.placement is Placement.ON_PREMISE


@pytest.mark.parametrize("run", [NAN, math.inf])
def test_an_unusable_run_time_is_doubt_unless_the_cloud_is_as_fast(run):
    assert answer_of(None, make_estimates(run=run))[1].reason == Reason.RUN_UNKNOWN
    as_fast = answer_of(None, make_estimates(run=run), overhead_per_processor=0.0)[1]
    assert as_fast.reason == Reason.CLOUD_FASTER


def test_no_picture_of_the_cluster_is_doubt():
    advice = ask(cluster=None)
    assert advice.decisive.reason == Reason.STATE_UNKNOWN
    assert advice.decisive.verdict is Verdict.UNSURE
    assert advice.placement is Placement.ON_PREMISE


def test_nothing_known_is_doubt():
    assert ask(estimates=NOTHING_KNOWN).placement is Placement.ON_PREMISE


def test_seeds_r3_why_shows_only_numbers_that_took_part():
    not_faster = answer_of(None, make_estimates(wait=1.0))[0]
    assert "tolerated_deviation" not in {name for name, _ in not_faster.answers[1].numbers}
    assert "s^2" not in explanation(not_faster)
    assert "tolerated" not in explanation(not_faster)
    assert "tolerated" in explanation(answer_of(None)[0])


def test_g17_14_the_backtested_cutoff_holds_where_nobody_has_set_one():
    learned = Cutoff(scale=99.0, decay=0.0)
    state = SiteState(time=1000.0, cluster=CLUSTER, cloud=make_cloud(), cutoff=learned)
    estimates = make_estimates(wait_variance=100.0)

    def reason_of(**placement):
        settings = make_settings(placement=placement)
        return advise(make_job(), state, estimates, settings, advice_id="a").answers[1].reason

    assert reason_of() == Reason.TOO_UNCERTAIN
    assert reason_of(cutoff_minutes=1.0) == Reason.CLOUD_FASTER
    assert reason_of(use_cutoff=False) == Reason.CLOUD_FASTER
