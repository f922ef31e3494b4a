"""The hedged start: hand-computed cases, and the definition in plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.model import Estimate, Estimates
from advisor.papers.placement import _hedge_curves, hedging
from advisor.papers.placement._hedge_curves import FINISHED, NOT_HEDGED, RESTARTED, STAYED, STOPPED, outcome
from advisor.papers.placement.hedging import PRICES, STOPS, HedgeCase, case_of, hindsight, plan


def make_case(
    waits: dict[float, float], runs: dict[float, float], *, slowdown: float = 2.0, boot: float = 0.0
) -> HedgeCase:
    return HedgeCase(
        processors=4,
        slowdown=slowdown,
        boot_seconds=boot,
        wait_mass=np.array(list(waits.values())),
        run_mass=np.array(list(runs.values())),
        waits=np.array(list(waits)),
        runs=np.array(list(runs)),
    )


@pytest.fixture(params=["compiled", "as Python"])
def both_ways(request: pytest.FixtureRequest, interpreted: Callable[[ModuleType], None]) -> None:
    if request.param == "as Python":
        interpreted(_hedge_curves)
        for name in ("best_stop", "expected_curves", "expected_optimum", "stays"):
            request.getfixturevalue("monkeypatch").setattr(hedging, name, getattr(_hedge_curves, name))


@pytest.mark.usefixtures("both_ways")
def test_a_sure_gain_is_hedged_until_it_is_won() -> None:
    # 100 s of work take 200 s in the cloud, the slot comes after 1000 s: 900 s are won for 800 core-seconds
    found = plan(make_case({1000.0: 1.0}, {100.0: 1.0}), price=0.1)
    assert found.expected_gain_seconds == 900.0
    assert found.expected_core_seconds == 4 * 200.0
    assert found.stop_seconds == STOPS[STOPS >= 200.0][0]


@pytest.mark.usefixtures("both_ways")
def test_the_price_decides() -> None:
    case = make_case({1000.0: 1.0}, {100.0: 1.0})
    assert plan(case, price=900 / 800 - 1e-6).stop_seconds > 0
    refused = plan(case, price=900 / 800 + 1e-6)
    assert (refused.stop_seconds, refused.expected_core_seconds) == (0.0, 0.0)
    assert plan(case, price=float(PRICES[-1])).stop_seconds == 0.0


@pytest.mark.usefixtures("both_ways")
def test_a_stop_loss_cuts_off_the_long_ones() -> None:
    """Half the jobs end at once, half run for days: pay for the first, not for the second."""
    found = plan(make_case({1e5: 1.0}, {10.0: 0.5, 5e5: 0.5}), price=0.01)
    assert 20.0 <= found.stop_seconds < 60.0
    assert found.expected_gain_seconds == pytest.approx(0.5 * (1e5 - 10.0))


@pytest.mark.usefixtures("both_ways")
def test_staying_or_restarting_when_the_slot_comes() -> None:
    # after 300 s the job has done 150 s of work: 100 s would have ended, 400 s remains likely
    case = make_case({300.0: 1.0}, {100.0: 0.9, 400.0: 0.1})
    assert not case.stays(300.0)  # staying ends at 800, restarting at 700
    assert case.stays(401.0)  # staying still ends at 800, restarting at 801
    assert not case.stays(1000.0)  # by the forecast it has ended: nothing is known, the slot is certain
    assert not make_case({300.0: 1.0}, {400.0: 1.0}, boot=200.0).stays(401.0)


@pytest.mark.usefixtures("both_ways")
def test_boot_time_counts() -> None:
    found = plan(make_case({1000.0: 1.0}, {100.0: 1.0}, boot=50.0), price=0.1)
    assert found.expected_gain_seconds == 850.0
    assert make_case({1000.0: 1.0}, {100.0: 1.0}, boot=50.0).expected_optimum() == 4 * 250.0
    assert make_case({240.0: 0.5, 260.0: 0.5}, {200.0: 1.0}, boot=50.0).expected_optimum() == 0.5 * 4 * 450.0


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    ("wait", "run", "stop", "stay", "expected"),
    [
        (1000.0, 100.0, 0.0, False, (0.0, 0.0, NOT_HEDGED)),
        (1000.0, 100.0, 200.0, False, (900.0, 200.0, FINISHED)),
        (1000.0, 100.0, 199.0, False, (0.0, 199.0, STOPPED)),
        (150.0, 100.0, 500.0, False, (0.0, 150.0, RESTARTED)),
        (150.0, 100.0, 500.0, True, (50.0, 200.0, STAYED)),
        (50.0, 100.0, 500.0, True, (-50.0, 200.0, STAYED)),
        (0.0, 100.0, 500.0, False, (0.0, 0.0, RESTARTED)),
    ],
)
def test_endings_by_hand(wait, run, stop, stay, expected) -> None:
    assert _hedge_curves.outcome(wait, run, 2.0, 0.0, stop, stay) == expected


masses = st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(any)


@settings(deadline=None)  # the first call compiles
@given(masses, masses, st.floats(0.5, 5.0), st.floats(0.0, 100.0), st.floats(0.0, 10.0))
def test_a_plan_s_numbers_are_the_expected_outcome(wait_mass, run_mass, slowdown, boot, price) -> None:
    waits, runs = (0.0, 60.0, 900.0, 20_000.0), (5.0, 80.0, 2_000.0, 30_000.0)
    case = make_case(
        dict(zip(waits, np.array(wait_mass) / sum(wait_mass), strict=True)),
        dict(zip(runs, np.array(run_mass) / sum(run_mass), strict=True)),
        slowdown=slowdown,
        boot=boot,
    )
    found = plan(case, price)
    gain = seconds = 0.0
    for wait, p in zip(waits, case.wait_mass, strict=True):
        for run, q in zip(runs, case.run_mass, strict=True):
            won, spent, _ = outcome(wait, run, slowdown, boot, found.stop_seconds, case.stays(wait))
            gain += p * q * won
            seconds += p * q * spent
    assert found.expected_gain_seconds == pytest.approx(gain, abs=1e-6)
    assert found.expected_core_seconds == pytest.approx(4 * seconds, abs=1e-6)
    assert gain - price * 4 * seconds >= -1e-6  # no hedge is always possible


@pytest.mark.parametrize(("wait", "run"), [(1000.0, 100.0), (50.0, 100.0), (1000.0, 5000.0)])
def test_hindsight_is_what_each_price_would_have_cost(wait: float, run: float) -> None:
    case = make_case({200.0: 0.5, 2000.0: 0.5}, {50.0: 0.5, 500.0: 0.5})
    found = hindsight(case, wait, run)
    for level in (0, 30, 45, 60, len(PRICES) - 1):
        stop = plan(case, float(PRICES[level])).stop_seconds
        _, seconds, _ = outcome(wait, run, case.slowdown, case.boot_seconds, stop, case.stays(wait))
        assert found.cost[level] == case.processors * seconds
    is_faster = wait + run > case.slowdown * run
    assert found.optimal == (case.processors * case.slowdown * run if is_faster else 0.0)
    assert found.expected_optimal == pytest.approx(case.expected_optimum())


def test_a_case_of_forecasts_is_made_of_equally_likely_values() -> None:
    estimates = Estimates(
        wait=Estimate(seconds=5.0, variance=1.0, quantiles=(-1.0, 11.0)),
        run=Estimate(seconds=5.0, variance=1.0, quantiles=(10.0, 20.0, 60.0)),
    )
    case = case_of(estimates, processors=3, slowdown=1.5, boot_seconds=7.0, requested_time=30.0)
    assert case is not None
    assert (case.waits.tolist(), case.runs.tolist()) == ([0.0, 11.0], [10.0, 20.0, 30.0])
    assert (case.wait_mass.sum(), case.run_mass.sum()) == (1.0, pytest.approx(1.0))
    nothing = case_of(Estimates(), processors=3, slowdown=1.5, boot_seconds=7.0, requested_time=None)
    assert nothing is None
