"""Levels follow how often promises are kept."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.predict.promised.levels import THIRDS, Kind, PromiseLevels, most_in_vain


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("bias", [0.5, 1.0, 1.5])
def test_promises_are_kept_as_often_as_said_though_forecasts_are_biased(
    confidence: float, bias: float
) -> None:
    levels, draw = PromiseLevels(confidence, 1), np.random.default_rng(3)
    kept = []
    for _ in range(6_000):
        # the forecaster's quantile of an exponential truth whose mean is `bias` times what it thinks
        ready = -np.log(1.0 - levels.level(0, 1))
        kept.append(draw.exponential(bias) <= ready)
        levels.learn(0, 1, is_kept=bool(kept[-1]))
    tail = 1.0 - confidence
    assert confidence <= np.mean(kept[1_000:]) <= confidence + 0.25 * tail


def test_each_kind_and_third_has_its_own_level() -> None:
    levels = PromiseLevels(0.95, 2)
    for _ in range(20):
        levels.learn(1, 2, is_kept=False, by_run=True)
    assert levels.level(1, 2) > levels.level(1, 1)
    assert levels.level(0, 2) == levels.level(0, 1)


def test_thirds_are_those_of_the_jobs_seen() -> None:
    levels, draw = PromiseLevels(0.95, 1), np.random.default_rng(4)
    found = []
    for size in np.exp(draw.normal(8.0, 3.0, 6_000)):
        found.append(levels.third_of(size))
        levels.learn_size(size)
    assert np.bincount(found[1_000:], minlength=THIRDS) / 5_000 == pytest.approx([1 / 3] * 3, abs=0.05)


def test_promises_to_one_user_that_are_open_together_are_spread() -> None:
    levels = PromiseLevels(0.95, 1)
    spread = {levels.level(0, 0, alike) for alike in range(50)}
    assert len(spread) == 50
    assert min(spread) < 0.9
    assert max(spread) > 0.97
    assert levels.level(0, 0, 0) == levels.level(0, 0)


def test_a_late_end_in_the_cloud_raises_the_level_as_well_as_the_strain() -> None:
    late, left_out = PromiseLevels(0.95, len(Kind)), PromiseLevels(0.95, len(Kind))
    for levels in (late, left_out):
        for _ in range(200):
            levels.learn(Kind.SOONEST, 0, is_kept=True, by_run=True)
    level, strain = late.level(Kind.SOONEST, 0), late.strain(Kind.SOONEST, 0)
    for _ in range(2):
        late.learn(Kind.SOONEST, 0, is_kept=False, by_run=True)
        left_out.learn(Kind.SOONEST, 0, is_kept=False)
    assert late.level(Kind.SOONEST, 0) > level > left_out.level(Kind.SOONEST, 0)
    assert strain < late.strain(Kind.SOONEST, 0) == left_out.strain(Kind.SOONEST, 0)
    higher = late.strain(Kind.SOONEST, 0)
    for _ in range(200):
        late.learn(Kind.SOONEST, 0, is_kept=True, by_run=True)
    assert late.strain(Kind.SOONEST, 0) < higher


def test_dear_jobs_have_higher_levels_than_others_of_their_third() -> None:
    levels = PromiseLevels(0.95, len(Kind))
    assert levels.level(Kind.SOONEST, 1, core_seconds=1e9) == levels.level(Kind.SOONEST, 1)
    levels.learn(Kind.SOONEST, 1, is_kept=True, core_seconds=1e5)
    cheap, usual, dear = (levels.level(Kind.SOONEST, 1, core_seconds=size) for size in (1e2, 1e5, 1e6))
    assert cheap == usual < dear
    assert levels.level(Kind.FREE, 1, core_seconds=1e6) == levels.level(Kind.FREE, 1)  # it costs nothing


def test_a_burst_is_promised_little_less_when_its_short_jobs_end_first() -> None:
    """Hundreds of like jobs are open: that the first of them are kept says little about the rest."""
    burst, single = PromiseLevels(0.95, 1), PromiseLevels(0.95, 1)
    for _ in range(400):
        burst.made_one(0, 0)
    for levels in (burst, single):
        for _ in range(300):
            levels.learn(0, 0, is_kept=True)
    assert burst.level(0, 0) > 0.8
    assert single.level(0, 0) < 0.2


@pytest.mark.parametrize("burst", [30, 300])
def test_what_a_burst_has_broken_is_made_up_for(burst: int) -> None:
    """A quarter of the promises come in bursts that are kept or broken as one, judged after all were made."""
    levels, draw, kept = PromiseLevels(0.95, 1), np.random.default_rng(5), []
    while len(kept) < 40_000:
        ready = [-np.log(1.0 - levels.level(0, 0, alike)) for alike in range(burst)]
        for _ in range(burst):
            levels.made_one(0, 0)
        run = draw.exponential()
        kept += [run <= one for one in ready]
        for is_kept in kept[-burst:]:
            levels.learn(0, 0, is_kept=bool(is_kept))
        for _ in range(3 * burst):
            kept.append(draw.exponential() <= -np.log(1.0 - levels.level(0, 0)))
            levels.learn(0, 0, is_kept=bool(kept[-1]))
    assert 0.94 <= np.mean(kept) <= 0.97


def test_a_level_comes_back_only_when_what_was_broken_is_made_up_for() -> None:
    levels = PromiseLevels(0.95, 1)
    for _ in range(100):
        levels.learn(0, 0, is_kept=False)
    for _ in range(1_000):
        levels.learn(0, 0, is_kept=True)
    assert levels.level(0, 0) > 0.999
    for _ in range(6_000):
        levels.learn(0, 0, is_kept=True)
    assert levels.level(0, 0) < 0.95


def test_a_start_that_is_paid_whole_may_be_in_vain_more_often() -> None:
    for kind in Kind:
        assert 0.0 < most_in_vain(kind, keeps_place=True) < most_in_vain(kind, keeps_place=False) < 1.0


def test_dear_starts_may_be_in_vain_less_often() -> None:
    levels = PromiseLevels(0.95, len(Kind))
    for _ in range(200):
        levels.learn(Kind.BETWEEN, 1, is_kept=False, core_seconds=1_000.0)
    assert levels.thrift(1, 500.0) == 1.0
    assert levels.thrift(1, 10_000.0) == pytest.approx(0.1)
    assert levels.thrift(0, 10_000.0) == 1.0  # none is known


def test_the_strain_rises_with_broken_promises_and_falls_with_kept_ones() -> None:
    levels = PromiseLevels(0.95, len(Kind))
    for _ in range(500):
        for kind in (Kind.SOONEST, Kind.BETWEEN):
            levels.learn(kind, 0, is_kept=False)
    assert levels.strain(Kind.SOONEST, 0) > 0.99
    assert levels.strain(Kind.BETWEEN, 0) > 0.99
    for _ in range(20_000):
        levels.learn(Kind.SOONEST, 0, is_kept=True)
    assert levels.strain(Kind.SOONEST, 0) < 0.05
