"""The best slice, by hand and against an enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.decide.price.slices import CloudOffer, Slice, best_slice, forget_below

EDGES = np.geomspace(1.0, 4096.0, 13)  # powers of two
MIDDLES = np.sqrt(EDGES * np.concatenate([[0.5], EDGES[:-1]]))


def offer(**changes: float) -> CloudOffer:
    said = {"start_seconds": 0.0, "slowdown": 1.0, "cost_per_second": 1, "paid_start_seconds": 0.0}
    return CloudOffer(**{**said, "is_whole": False, **changes})  # type: ignore[arg-type]


def chances(**shares: float) -> np.ndarray:
    found = np.zeros(13)
    for name, share in shares.items():
        found[int(name.removeprefix("b"))] = share
    return found


def slice_of(distribution: np.ndarray, **said: object) -> Slice:
    given_ = {"limit": 4096.0, "elapsed": 0.0, "wait": 1000.0, "offer": offer(), "loss_weight": 1.0, **said}
    return best_slice(distribution, EDGES, **given_)  # type: ignore[arg-type]


def test_a_sure_run_is_bought_whole() -> None:
    found = slice_of(chances(b6=1.0))
    assert found.stop == 4096.0  # no other run time is possible: the limit is never reached
    assert found.saving == pytest.approx(1000.0)
    assert found.cost == pytest.approx(MIDDLES[6])
    assert found.value == pytest.approx(1000.0 / MIDDLES[6])


def test_a_job_that_fails_at_once_or_runs_long_is_tried_shortly() -> None:
    found = slice_of(chances(b2=0.5, b12=0.5))
    assert found.stop == EDGES[2]
    assert found.chance == pytest.approx(0.5)


def test_a_job_that_may_not_be_requeued_gets_no_slice() -> None:
    found = slice_of(chances(b2=0.5, b12=0.5), offer=offer(is_whole=True))
    assert (found.stop, found.chance) == (4096.0, pytest.approx(1.0))


def test_the_best_slice_is_chosen_among_those_that_the_money_pays_for() -> None:
    runs = chances(b2=0.05, b5=0.65, b12=0.3)
    best = slice_of(runs)
    assert best.stop == EDGES[5]
    assert slice_of(runs, longest=EDGES[5]) == best
    shorter = slice_of(runs, longest=EDGES[5] - 1.0)
    assert (shorter.stop, shorter.chance) == (EDGES[2], pytest.approx(0.05))
    assert shorter.value < best.value
    assert slice_of(runs, longest=EDGES[2] - 1.0).value < 0.0
    later = slice_of(runs, elapsed=EDGES[2], longest=EDGES[5] - EDGES[2])
    assert later.stop == EDGES[5]


def test_a_sure_run_that_the_money_does_not_cover_to_its_limit_has_a_stop() -> None:
    assert slice_of(chances(b6=1.0), longest=4095.0).stop == EDGES[6]


def test_what_has_run_counts_against_a_restart() -> None:
    ready = slice_of(chances(b6=0.5, b8=0.5), elapsed=64.0, wait=0.0)
    assert ready.value > 0.0  # on-premise it would begin anew
    assert slice_of(chances(b6=0.5, b8=0.5), elapsed=0.0, wait=0.0).saving == pytest.approx(0.0)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_job_that_is_in_the_last_part_of_its_last_bin_is_worth_the_rest(*, is_whole: bool) -> None:
    """It ends by its limit; here it would begin anew."""
    for elapsed in (MIDDLES[10] - 1.0, MIDDLES[10] + 1.0, 960.0):
        found = slice_of(chances(b10=1.0), elapsed=elapsed, limit=1020.0, offer=offer(is_whole=is_whole))
        assert found.stop == 1020.0
        assert 0.0 < found.cost < 1020.0 - elapsed + 1e-9
        assert found.saving > 1500.0


def test_a_boot_longer_than_the_wait_is_not_worth_it() -> None:
    assert slice_of(chances(b6=1.0), wait=60.0, offer=offer(start_seconds=120.0)).value < 0.0


def test_a_lost_hour_weighs_more_than_a_saved_one() -> None:
    slow = {"wait": 100.0, "offer": offer(slowdown=1.5)}
    mixed = chances(b3=0.5, b9=0.5)
    assert slice_of(mixed, **slow, loss_weight=5.0).value <= slice_of(mixed, **slow).value
    whole = {"wait": 100.0, "offer": offer(slowdown=1.5, is_whole=True)}
    assert slice_of(mixed, **whole, loss_weight=5.0).saving < slice_of(mixed, **whole).saving


@given(
    st.lists(st.floats(0.0, 1.0), min_size=13, max_size=13).filter(lambda shares: sum(shares) > 0.01),
    st.floats(0.0, 5000.0),
    st.floats(0.0, 300.0),
    st.floats(1.0, 2.0),
)
def test_no_other_stop_has_a_higher_value(
    shares: list[float], wait: float, start: float, slowdown: float
) -> None:
    distribution = np.array(shares) / sum(shares)
    found = slice_of(distribution, wait=wait, offer=offer(start_seconds=start, slowdown=slowdown))
    for last in range(13):
        saved = wait + MIDDLES - start - slowdown * MIDDLES
        saving = float(np.sum((distribution * saved)[: last + 1]))
        cost = float(np.sum(distribution * slowdown * np.where(np.arange(13) <= last, MIDDLES, EDGES[last])))
        if cost > 0.0 and distribution[last] > 0.0:
            assert found.value >= saving / cost - 1e-6 * abs(saving / cost) - 1e-9


def test_conditioning_forgets_shorter_runs_and_keeps_a_distribution() -> None:
    known = chances(b2=0.5, b6=0.25, b9=0.25)
    forget_below(known, EDGES, EDGES[2])
    assert known.tolist() == chances(b6=0.5, b9=0.5).tolist()


def test_a_job_that_outruns_its_forecast_may_end_in_the_next_bin() -> None:
    known = chances(b2=1.0)
    forget_below(known, EDGES, 100.0)
    assert math.isclose(known.sum(), 1.0)
    assert EDGES[int(np.argmax(known))] > 100.0


def test_a_long_job_with_checkpoints_saves_what_it_keeps_until_its_turn() -> None:
    long = chances(b12=1.0)
    assert slice_of(long, wait=300.0).stop == 4096.0  # without them only its end saves time
    found = slice_of(
        chances(b3=0.01, b8=0.0001, b12=0.9899), wait=300.0, offer=offer(checkpoint_seconds=16.0)
    )
    assert found.stop == EDGES[8]
    kept = 256.0 - 16.0  # its turn comes after 300 seconds
    assert found.saving == pytest.approx(0.01 * 300.0 + 0.0001 * 300.0 + 0.9899 * kept, rel=1e-3)
    assert found.value > 0.9


def test_a_checkpoint_that_comes_after_its_turn_saves_nothing() -> None:
    runs, terms = chances(b3=0.01, b8=0.1, b12=0.89), {"wait": 300.0}
    never = slice_of(runs, **terms, offer=offer(checkpoint_seconds=301.0))
    assert never == slice_of(runs, **terms)


def test_a_job_with_checkpoints_stays_at_its_turn_only_for_a_rest_that_a_restart_would_cost() -> None:
    terms = {"elapsed": 1024.0, "wait": 0.0}
    near, far = chances(b11=1.0), chances(b12=1.0)
    slow = offer(slowdown=1.1, checkpoint_seconds=110.0, is_whole=True)  # it does not come back later
    # it is at 1024 of some 1448 or 2896 seconds: a restart costs 100, a tenth of the rest 42 or 187
    assert slice_of(near, **terms, offer=slow).saving == pytest.approx(100.0 - 0.1 * (MIDDLES[11] - 1024.0))
    assert slice_of(far, **terms, offer=slow).value < 0.0
    assert slice_of(far, **terms, offer=offer(slowdown=1.1)).saving > 0.0  # begun anew there
    unsure = chances(b11=0.4, b12=0.6)  # 58 seconds won, or 87 lost
    assert slice_of(unsure, **terms, offer=slow).value < 0.0


@given(
    st.lists(st.floats(0.0, 1.0), min_size=13, max_size=13).filter(lambda shares: sum(shares) > 0.01),
    st.floats(0.0, 5000.0),
    st.floats(0.0, 300.0),
    st.floats(1.0, 2.0),
    st.floats(1.0, 500.0),
)
def test_with_checkpoints_no_other_stop_has_a_higher_value(
    shares: list[float], wait: float, start: float, slowdown: float, checkpoint: float
) -> None:
    """Each stop is played: a job that has not ended by its stop or turn goes on here with what it kept."""
    distribution = np.array(shares) / sum(shares)
    terms = offer(start_seconds=start, slowdown=slowdown, checkpoint_seconds=checkpoint)
    found = slice_of(distribution, wait=wait, offer=terms)
    turn = max(0.0, wait - start) / slowdown

    def kept_at(seconds: float) -> float:
        return max(0.0, min(seconds, turn) - checkpoint / slowdown)

    for last in range(13):
        saved = 0.0
        for share, run, number in zip(distribution, MIDDLES, range(13), strict=True):
            there = wait + run - start - slowdown * run
            if number > last:
                saved += share * kept_at(EDGES[last])
            elif run <= turn:
                saved += share * there
            else:
                saved += share * max(there, kept_at(turn))
        cost = float(np.sum(distribution * slowdown * np.where(np.arange(13) <= last, MIDDLES, EDGES[last])))
        if cost > 0.0 and distribution[last] > 0.0:
            assert found.value >= saved / cost - 1e-6 * abs(saved / cost) - 1e-9
