"""The advisor's own rule on hand-computed cases (docs/designs/0009-placement-rule.md)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.wording import explanation, sentence
from advisor.decide.submission.placement import as_case
from advisor.decide.submission.proven import candidate_chance, proven, win_probability, worst_seconds
from advisor.decide.submission.record import RecordKeeper, record_of
from advisor.model import Earned, Estimate, Estimates, Placement, SiteState, TrackRecord, Verdict
from advisor.model.settings import PlacementSettings
from tests.decide.cases import CLUSTER, make_job, make_settings

SETTINGS = PlacementSettings(
    rule="advisor",
    overhead_per_processor=0.05,
    boot_seconds=100.0,
    margin=1.5,
    win_probability=0.5,
    record_deviations=0.0,
    record_discount=0.0,
    stake_share=0.01,
    exposure_share=0.02,
)


def won(saved_seconds: float, *, at_risk_seconds: float = 0.0) -> TrackRecord:
    """What jobs that are likely to be faster have brought."""
    return record_of(Earned(saved_seconds=saved_seconds), SETTINGS, at_risk_seconds=at_risk_seconds)


RICH = won(1e6)


def estimate(*times: float) -> Estimate:
    return Estimate(seconds=sum(times) / len(times), variance=1.0, quantiles=times)


def make_case(waits, runs=(1000.0, 1000.0), *, record=RICH, requested_time=2000.0, settings=SETTINGS):
    """10 processors: s = 1.5; the cloud costs 100 + run / 2 seconds."""
    return as_case(
        processors=10,
        requested_time=requested_time,
        estimates=Estimates(wait=estimate(*waits), run=estimate(*runs)),
        boot=settings.boot_seconds,
        settings=settings,
        record=record,
    )


def test_the_probability_counts_the_pairs() -> None:
    # penalties 600 and 1100; waits above: (601, 5000) and (5000,); a tie is not faster
    assert win_probability(make_case((0.0, 600.0, 601.0, 5000.0), (1000.0, 2000.0))) == 3 / 8


def test_the_worst_is_no_wait_and_all_the_time_the_user_allows() -> None:
    assert worst_seconds(make_case((1.0,))) == 100 + 1000
    assert worst_seconds(make_case((1.0,), (10.0, 3000.0), requested_time=None)) == 100 + 1500
    fast = SETTINGS.model_copy(update={"baseline": 0.25, "overhead_per_processor": 0.0, "boot_seconds": 0.0})
    assert worst_seconds(make_case((1.0,), settings=fast)) == 0.0


@pytest.mark.parametrize(
    ("waits", "reason"),
    [
        ((900.0, 900.0), Reason.CLOUD_NOT_FASTER),  # 900 is not more than 1.5 * 600
        ((901.0, 901.0), Reason.CLOUD_FASTER),
        ((0.0, 0.0, 0.0, 1e5), Reason.UNLIKELY),  # a mean carried by a thin tail
    ],
)
def test_expected_gain_and_its_probability(waits, reason) -> None:
    case = make_case(waits)
    found = proven(case)
    assert found.reason == reason
    assert (found.verdict is Verdict.YES) == (reason is Reason.CLOUD_FASTER)
    assert (candidate_chance(case) is not None) == (reason is not Reason.CLOUD_NOT_FASTER)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, Reason.CLOUD_FASTER),  # nobody keeps a record
        (TrackRecord(), Reason.UNPROVEN),
        (won(-5.0), Reason.UNPROVEN),
        (won(1.09e5), Reason.STAKE_TOO_LARGE),  # the stake is 1100
        (won(1.1e5), Reason.CLOUD_FASTER),
        (won(1.1e5, at_risk_seconds=1101.0), Reason.EXPOSURE_TOO_LARGE),
        (won(1.1e5, at_risk_seconds=1100.0), Reason.CLOUD_FASTER),
    ],
)
def test_stakes_only_from_winnings(record, reason) -> None:
    found = proven(make_case((5000.0,), record=record))
    assert found.reason == reason
    assert found.verdict is (Verdict.YES if reason is Reason.CLOUD_FASTER else Verdict.UNSURE)


def test_the_tasks_of_an_array_are_one_stake() -> None:
    four = replace(make_case((5000.0,), record=won(4 * 1.1e5)), tasks=4)
    assert proven(four).reason == Reason.CLOUD_FASTER
    assert dict(proven(four).numbers)["stake"].value == 1100.0  # a task's, as each task's AdminComment says
    assert proven(replace(four, tasks=5)).reason == Reason.STAKE_TOO_LARGE
    much = replace(make_case((5000.0,), record=won(4 * 1.1e5, at_risk_seconds=4401.0)), tasks=4)
    assert proven(much).reason == Reason.EXPOSURE_TOO_LARGE
    assert proven(replace(much, tasks=3)).reason == Reason.CLOUD_FASTER


@pytest.mark.parametrize(
    ("saved", "likely_saved", "reason"),
    [
        (0.0, 1e6, Reason.UNLIKELY),  # what likely jobs won is not lent
        (-1.0, 0.0, Reason.UNLIKELY),
        (1.09e5, -1e9, Reason.STAKE_TOO_LARGE),
        (1.1e5, -1e9, Reason.CLOUD_FASTER),
    ],
)
def test_unlikely_jobs_must_pay_for_themselves(saved, likely_saved, reason) -> None:
    keeper = RecordKeeper(SETTINGS.win_probability)
    keeper.ended("likely", likely_saved, 0.9)
    keeper.ended("likelier than ours", saved / 2, 0.4)
    keeper.ended("as likely as ours", saved / 2, 0.25)
    keeper.ended("less likely", -1e9, 0.24)
    case = make_case((0.0, 0.0, 0.0, 1e5), record=keeper.record)
    assert candidate_chance(case) == 0.25
    assert proven(case).reason == reason


def test_a_job_that_can_lose_nothing_needs_no_record() -> None:
    free = SETTINGS.model_copy(update={"overhead_per_processor": 0.0, "boot_seconds": 0.0})
    found = proven(make_case((5000.0,), record=TrackRecord(), settings=free))
    assert found.reason == Reason.CLOUD_FASTER


@pytest.mark.parametrize("times", [(math.nan,), (math.inf,)])
def test_doubt_means_on_premise(times) -> None:
    assert proven(make_case((5000.0,), times)).verdict is not Verdict.YES
    assert proven(make_case((math.nan,))).verdict is not Verdict.YES


def test_without_distributions_the_published_rule_decides() -> None:
    case = as_case(
        processors=10,
        requested_time=2000.0,
        estimates=Estimates(
            wait=Estimate(seconds=700.0, variance=0.0), run=Estimate(seconds=1000.0, variance=0.0)
        ),
        boot=100.0,
        settings=SETTINGS,
        record=TrackRecord(),
    )
    found = proven(case)
    assert found.reason == Reason.CLOUD_FASTER  # 700 > 600: the published rule knows no margin
    assert "(Decided by the published rule" in sentence(found), "`advisor why` says so"
    assert "published" not in sentence(proven(make_case((5000.0,))))


def test_g18_what_all_moves_may_lose_bounds_every_stake() -> None:
    """However much was won long ago: the worst of all jobs in the cloud counts against what may be lost."""
    rich = won(1e9, at_risk_seconds=900.0)
    stake = dict(proven(make_case((5000.0,), record=rich)).numbers)["stake"].value
    for may_lose, verdict in ((900.0 + stake, Verdict.YES), (899.0 + stake, Verdict.UNSURE)):
        found = proven(make_case((5000.0,), record=replace(rich, may_lose_seconds=may_lose)))
        assert found.verdict is verdict
    assert found.reason == Reason.EXPOSURE_TOO_LARGE


@pytest.mark.parametrize(
    ("waits", "record", "words"),
    [
        ((0.0, 0.0, 0.0, 1e5), RICH, "25"),
        ((5000.0,), TrackRecord(), "have not saved time"),
        ((5000.0,), won(1e3), "could lose"),
        ((5000.0,), won(1.1e5, at_risk_seconds=1e6), "already there"),
    ],
)
def test_each_refusal_is_explained(waits, record, words) -> None:
    from advisor.decide.submission.advise import advise

    placement = SETTINGS.model_dump()
    advice = advise(
        make_job(processors=10, requested_time=2000.0),
        SiteState(time=1000.0, cluster=CLUSTER, record=record),
        Estimates(wait=estimate(*waits), run=estimate(1000.0)),
        make_settings(placement=placement),
        advice_id="a",
    )
    assert advice.placement is Placement.ON_PREMISE
    assert words in explanation(advice)


@given(
    waits=st.lists(st.floats(0, 1e6), min_size=1, max_size=20).map(sorted),
    runs=st.lists(st.floats(0, 1e6), min_size=1, max_size=20).map(sorted),
    boot=st.floats(0, 600),
    ratio=st.sampled_from([0.5, 1.0, 1.2, 1.64]),
)
def test_the_chance_is_the_share_of_pairs_in_which_the_cloud_is_faster(
    waits: list[float], runs: list[float], boot: float, ratio: float
) -> None:
    case = replace(make_case(waits, runs), boot_seconds=boot, performance_ratio=ratio)
    faster = sum(wait > case.penalty_seconds(run) for wait in waits for run in runs)
    assert win_probability(case) == faster / (len(waits) * len(runs))
