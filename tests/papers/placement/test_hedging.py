"""The hedged start: hand-computed cases, and the definition in plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.papers.placement import _hedge_curves, hedging
from advisor.papers.placement._hedge_curves import spent
from advisor.papers.placement.hedging import PRICES, STOPS, choose_stop

PROCESSORS = 4


@dataclass(frozen=True)
class Plan:
    stop_seconds: float
    expected_gain_seconds: float
    expected_core_seconds: float


@dataclass(frozen=True)
class Case:
    """Forecast probabilities of a job's wait and run time, and the seconds they belong to."""

    slowdown: float
    wait_mass: np.ndarray
    run_mass: np.ndarray
    waits: np.ndarray
    runs: np.ndarray

    def stays(self, elapsed: float) -> bool:
        return bool(_hedge_curves.stays(self.run_mass, self.runs, self.slowdown, elapsed))


def plan(case: Case, price: float) -> Plan:
    gain, seconds = np.empty(len(STOPS)), np.empty(len(STOPS))
    masses = (case.wait_mass, case.waits, case.run_mass, case.runs)
    _hedge_curves.expected_curves(*masses, case.slowdown, STOPS, gain, seconds)
    best = choose_stop(gain, seconds, price * PROCESSORS)
    return Plan(float(STOPS[best]), float(gain[best]), float(PROCESSORS * seconds[best]))


def make_case(waits: dict[float, float], runs: dict[float, float], *, slowdown: float = 2.0) -> Case:
    return Case(
        slowdown=slowdown,
        wait_mass=np.array(list(waits.values())),
        run_mass=np.array(list(runs.values())),
        waits=np.array(list(waits)),
        runs=np.array(list(runs)),
    )


@pytest.fixture(params=["compiled", "as Python"])
def both_ways(request: pytest.FixtureRequest, interpreted: Callable[[ModuleType], None]) -> None:
    if request.param == "as Python":
        interpreted(_hedge_curves)
        request.getfixturevalue("monkeypatch").setattr(hedging, "best_stop", _hedge_curves.best_stop)


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


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    ("wait", "run", "stop", "stay", "expected"),
    [
        (1000.0, 100.0, 0.0, False, 0.0),  # not hedged
        (1000.0, 100.0, 200.0, False, 200.0),  # it has ended
        (1000.0, 100.0, 199.0, False, 199.0),  # stopped
        (150.0, 100.0, 500.0, False, 150.0),  # restarted on its slot
        (150.0, 100.0, 500.0, True, 200.0),  # it stays
        (50.0, 100.0, 500.0, True, 200.0),
        (0.0, 100.0, 500.0, False, 0.0),
    ],
)
def test_seconds_in_the_cloud_by_hand(wait, run, stop, stay, expected) -> None:
    assert _hedge_curves.spent(wait, run, 2.0, stop, stay) == expected


masses = st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(any)


@settings(deadline=None)  # the first call compiles
@given(masses, masses, st.floats(0.5, 5.0), st.floats(0.0, 10.0))
def test_a_plan_s_numbers_are_the_expected_outcome(wait_mass, run_mass, slowdown, price) -> None:
    waits, runs = (0.0, 60.0, 900.0, 20_000.0), (5.0, 80.0, 2_000.0, 30_000.0)
    case = make_case(
        dict(zip(waits, np.array(wait_mass) / sum(wait_mass), strict=True)),
        dict(zip(runs, np.array(run_mass) / sum(run_mass), strict=True)),
        slowdown=slowdown,
    )
    found = plan(case, price)
    gain = seconds = 0.0
    for wait, p in zip(waits, case.wait_mass, strict=True):
        for run, q in zip(runs, case.run_mass, strict=True):
            in_cloud = spent(wait, run, slowdown, found.stop_seconds, case.stays(wait))
            if found.stop_seconds > 0.0 and in_cloud == slowdown * run:
                gain += p * q * (wait + run - in_cloud)
            seconds += p * q * in_cloud
    assert found.expected_gain_seconds == pytest.approx(gain, abs=1e-6)
    assert found.expected_core_seconds == pytest.approx(4 * seconds, abs=1e-6)
    assert gain - price * 4 * seconds >= -1e-6  # no hedge is always possible
