"""The record: what moves brought, how likely they were to, what is at risk, and how much of it counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.papers.placement.proven import trusted_seconds
from advisor.papers.placement.record import Earned, RecordKeeper, RuleTerms, TrackRecord, bands

FLOOR = 0.4
PLAIN = RuleTerms(win_probability=FLOOR, record_discount=0.0, record_deviations=0.0)


def kept(*jobs: tuple[float, float]) -> TrackRecord:
    """A record of jobs: what each saved, and how likely it was to be faster."""
    keeper = RecordKeeper(FLOOR)
    for key, (saved, chance) in enumerate(jobs):
        keeper.ended(key, saved, chance)
    return keeper.record


def test_by_hand() -> None:
    keeper = RecordKeeper(FLOOR)
    keeper.moved("a", 50.0)
    keeper.moved("b", 70.0)
    assert keeper.record.at_risk_seconds == 120.0
    keeper.ended("a", 30.0, 0.41)
    keeper.ended("never moved", -10.0, 0.42)
    _, likely = bands(FLOOR)
    assert keeper.record.bands[likely] == Earned(20.0, 40.0, 1000.0)
    assert keeper.record.at_risk_seconds == 70.0
    settings = RuleTerms(record_discount=0.1, record_deviations=2.0)
    assert trusted_seconds(keeper.record, settings, 0.4) == pytest.approx(20 - 4 - 2 * math.sqrt(1000))


def test_one_lucky_job_counts_for_nothing() -> None:
    keeper = RecordKeeper(FLOOR)
    keeper.ended("lucky", 1e6, 0.5)
    assert trusted_seconds(keeper.record, RuleTerms()) <= 0
    for job in range(100):
        keeper.ended(job, 1e5, 0.5)
    assert trusted_seconds(keeper.record, RuleTerms()) > 0


@pytest.mark.parametrize(
    ("chance", "trusted"),
    [
        (1.0, 100.0),  # the best rule moves only what is at least 0.8 likely
        (0.8, 100.0),
        (0.74, 70.0),  # the best that would move it
        (0.4, 70.0),
        (0.39, 6.0),  # nothing is lent by likelier ones; the best reaches down to 0.05
        (0.04, 6.0),
    ],
)
def test_the_best_rule_that_would_move_the_job_is_asked(chance: float, trusted: float) -> None:
    record = kept((100.0, 0.83), (-30.0, 0.7), (0.0, 0.4), (-5.0, 0.37), (11.0, 0.05))
    assert trusted_seconds(kept((100.0, 0.83), (-5.0, 0.37), (-9.0, 0.1)), PLAIN, 0.39) == -5.0
    assert trusted_seconds(record, PLAIN, chance) == trusted


@pytest.mark.parametrize("floor", [0.0, 0.02, 0.05, 0.4, 0.333, 0.95, 1.0])
def test_bands_cover_all_probabilities_and_begin_at_the_floor(floor: float) -> None:
    edges, likely = bands(floor)
    assert edges[0] == 0.0
    assert edges[likely] == floor
    assert list(edges) == sorted(set(edges))
    assert (
        max(later - earlier for earlier, later in zip(edges, (*edges[1:], 1.0), strict=True)) <= 0.05 + 1e-9
    )


chances = st.integers(0, 400).map(lambda pairs: pairs / 400)


@given(
    jobs=st.lists(st.tuples(st.integers(-1000, 1000).map(float), chances), max_size=30),
    chance=chances,
    deviations=st.sampled_from([0.0, 2.0]),
    floor=st.sampled_from([0.0, 0.2, 0.4, 0.5]),
)
def test_it_is_the_plain_definition(jobs, chance: float, deviations: float, floor: float) -> None:
    settings = RuleTerms(win_probability=floor, record_discount=0.1, record_deviations=deviations)
    keeper = RecordKeeper(floor)
    for key, (saved, likely) in enumerate(jobs):
        keeper.ended(key, saved, likely)
    edges, _ = bands(floor)
    found = list[float]()
    for edge in edges:
        if not (edge <= chance and (edge >= floor) == (chance >= floor)):
            continue
        until = math.inf if chance >= floor else floor
        gains = [saved for saved, likely in jobs if edge <= likely < until]
        discounted = sum(gains) - 0.1 * sum(abs(gain) for gain in gains)
        found.append(discounted - deviations * math.sqrt(sum(gain * gain for gain in gains)))
    assert trusted_seconds(keeper.record, settings, chance) == pytest.approx(max(found), abs=1e-6)


@given(st.lists(st.floats(0, 1e9), max_size=30), st.randoms())
def test_nothing_is_at_risk_when_all_have_ended(stakes: list[float], order) -> None:
    keeper = RecordKeeper(FLOOR)
    for key, stake in enumerate(stakes):
        keeper.moved(key, stake)
    keys = list(range(len(stakes)))
    order.shuffle(keys)
    for key in keys:
        assert keeper.record.at_risk_seconds >= 0
        keeper.ended(key, 1.0, 0.5)
    assert keeper.record.at_risk_seconds == 0.0
