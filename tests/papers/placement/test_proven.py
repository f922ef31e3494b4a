"""The placement rule of 2026 on hand-computed cases (docs/designs/0009-placement-rule.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from advisor.model.estimate import Estimate
from advisor.model.settings_decision import PlacementSettings
from advisor.papers.placement.proven import (
    ProvenCase,
    candidate_chance,
    proven,
    win_probability,
    worst_seconds,
)
from advisor.papers.placement.record import Earned, RecordKeeper, RuleTerms, TrackRecord, bands

TERMS = RuleTerms(
    margin=1.5,
    win_probability=0.5,
    record_deviations=0.0,
    record_discount=0.0,
    stake_share=0.01,
    exposure_share=0.02,
)


def won(saved_seconds: float, *, at_risk_seconds: float = 0.0) -> TrackRecord:
    """What jobs that are likely to be faster have brought."""
    edges, likely = bands(TERMS.win_probability)
    earned = (Earned(saved_seconds) if band == likely else Earned() for band in range(len(edges)))
    return TrackRecord(bands=tuple(earned), at_risk_seconds=at_risk_seconds)


RICH = won(1e6)


def estimate(*times: float) -> Estimate:
    return Estimate(seconds=sum(times) / len(times), variance=1.0, quantiles=times)


def make_case(
    waits: Any,
    runs: Any = (1000.0, 1000.0),
    *,
    record: TrackRecord = RICH,
    requested_time: float | None = 2000.0,
    boot_seconds: float = 100.0,
    slowdown: float = 1.5,
) -> ProvenCase:
    """The cloud costs 100 + run / 2 seconds."""
    return ProvenCase(
        processors=10,
        requested_time=requested_time,
        wait=estimate(*waits),
        run=estimate(*runs),
        boot_seconds=boot_seconds,
        performance_ratio=slowdown,
        settings=PlacementSettings(),
        record=record,
        terms=TERMS,
    )


def test_the_probability_counts_the_pairs() -> None:
    # penalties 600 and 1100; waits above: (601, 5000) and (5000,); a tie is not faster
    assert win_probability(make_case((0.0, 600.0, 601.0, 5000.0), (1000.0, 2000.0))) == 3 / 8


def test_the_worst_is_no_wait_and_all_the_time_the_user_allows() -> None:
    assert worst_seconds(make_case((1.0,))) == 100 + 1000
    assert worst_seconds(make_case((1.0,), (10.0, 3000.0), requested_time=None)) == 100 + 1500
    assert worst_seconds(make_case((1.0,), slowdown=0.25, boot_seconds=0.0)) == 0.0


@pytest.mark.parametrize(
    ("waits", "gains", "moves"),
    [
        ((900.0, 900.0), False, False),  # 900 is not more than 1.5 * 600
        ((901.0, 901.0), True, True),
        ((0.0, 0.0, 0.0, 1e5), True, False),  # a mean carried by a thin tail
    ],
)
def test_expected_gain_and_its_probability(waits: tuple[float, ...], *, gains: bool, moves: bool) -> None:
    case = make_case(waits)
    assert proven(case) is moves
    assert (candidate_chance(case) is not None) is gains


@pytest.mark.parametrize(
    ("record", "moves"),
    [
        (TrackRecord(), False),
        (won(-5.0), False),
        (won(1.09e5), False),  # the stake is 1100
        (won(1.1e5), True),
        (won(1.1e5, at_risk_seconds=1101.0), False),
        (won(1.1e5, at_risk_seconds=1100.0), True),
    ],
)
def test_stakes_only_from_winnings(record: TrackRecord, *, moves: bool) -> None:
    assert proven(make_case((5000.0,), record=record)) is moves


@pytest.mark.parametrize(
    ("saved", "likely_saved", "moves"),
    [
        (0.0, 1e6, False),  # what likely jobs won is not lent
        (-1.0, 0.0, False),
        (1.09e5, -1e9, False),
        (1.1e5, -1e9, True),
    ],
)
def test_unlikely_jobs_must_pay_for_themselves(saved: float, likely_saved: float, *, moves: bool) -> None:
    keeper = RecordKeeper(TERMS.win_probability)
    keeper.ended("likely", likely_saved, 0.9)
    keeper.ended("likelier than ours", saved / 2, 0.4)
    keeper.ended("as likely as ours", saved / 2, 0.25)
    keeper.ended("less likely", -1e9, 0.24)
    case = make_case((0.0, 0.0, 0.0, 1e5), record=keeper.record)
    assert candidate_chance(case) == 0.25
    assert proven(case) is moves


def test_a_job_that_can_lose_nothing_needs_no_record() -> None:
    assert proven(make_case((5000.0,), record=TrackRecord(), slowdown=1.0, boot_seconds=0.0))


@pytest.mark.parametrize("times", [(math.nan,), (math.inf,)])
def test_doubt_means_on_premise(times: tuple[float, ...]) -> None:
    assert not proven(make_case((5000.0,), times))
    assert not proven(make_case((math.nan,)))


def test_g18_what_all_moves_may_lose_bounds_every_stake() -> None:
    """However much was won long ago: the worst of all jobs in the cloud counts against what may be lost."""
    rich = won(1e9, at_risk_seconds=900.0)
    for may_lose, moves in ((2000.0, True), (1999.0, False)):
        assert proven(make_case((5000.0,), record=rich._replace(may_lose_seconds=may_lose))) is moves


def test_terms_decide() -> None:
    case = make_case((5000.0,), record=won(1.09e5))
    assert proven(structs.replace(case, terms=replace(TERMS, stake_share=0.02)))


@given(
    waits=st.lists(st.floats(0, 1e6), min_size=1, max_size=20).map(sorted),
    runs=st.lists(st.floats(0, 1e6), min_size=1, max_size=20).map(sorted),
    boot=st.floats(0, 600),
    ratio=st.sampled_from([0.5, 1.0, 1.2, 1.64]),
)
def test_the_chance_is_the_share_of_pairs_in_which_the_cloud_is_faster(
    waits: list[float], runs: list[float], boot: float, ratio: float
) -> None:
    case = make_case(waits, runs, boot_seconds=boot, slowdown=ratio)
    faster = sum(wait > case.penalty_seconds(run) for wait in waits for run in runs)
    assert win_probability(case) == faster / (len(waits) * len(runs))
