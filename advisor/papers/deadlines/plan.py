"""The market with the lowest expected cost, by backward induction over the chances of spot. Pure.

Wu et al. (NSDI 2024) compare the progress with an even pace. This module plans the future. The state is the
time and the slack that are left, whether spot is available, for how long that has been so, and the present
market.
The chances are those of :mod:`advisor.papers.deadlines.spot_spells`.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.papers.deadlines.moment import Market, Moment
from advisor.papers.deadlines.spot_spells import SpotChances

STEPS: Final = 360
"""Number of steps of the plan from a job's beginning to its deadline."""
SLACKS: Final = 72
"""Number of steps of slack."""
_IDLE: Final = int(Market.IDLE)
_SPOT: Final = int(Market.SPOT)
_ON_DEMAND: Final = int(Market.ON_DEMAND)
_WORTH_WAITING: Final = 1.0
"""Waiting has to save this number of seconds on-demand: if both are equal, the job works now."""
_Costs = NDArray[np.float32]


class Terms(NamedTuple):
    """The input of a plan, a tuple that compiled code can read.

    Attributes:
        step: Seconds between two choices.
        unit: Seconds between two values of slack.
        changeover: d, time without work at each start, seconds.
        spot_price: Price of an hour on spot over that of an hour on-demand.
    """

    step: float
    unit: float
    changeover: float
    spot_price: float


class DeadlinePlan(NamedTuple):
    """The expected cost from each state to the job's end.

    Attributes:
        chances: The chances that spot is available in the next steps.
        costs: Seconds on-demand, shape (steps + 1, 2 * classes of age, slacks, 3): by steps left, spell (of
            spot first, then without it), slack, and market that runs.
    """

    chances: SpotChances
    terms: Terms
    costs: _Costs


def step_of(time: float, tick: float) -> float:
    """The plan's step for a job, by the time to its deadline, seconds; no shorter than the market's tick."""
    return max(tick, time / STEPS)


def plan_deadline(
    chances: SpotChances, *, work: float, time: float, changeover: float, spot_price: float
) -> DeadlinePlan:
    """Plan a job.

    Args:
        chances: The chances of spot for a step of :func:`step_of`.
        work: C, run time, seconds.
        time: R, seconds to the deadline.
        changeover: d, seconds.
        spot_price: Price of an hour on spot over that of an hour on-demand.
    """
    terms = Terms(chances.step, max(1.0, (time - work) / SLACKS), float(changeover), spot_price)
    steps = math.ceil(time / chances.step)
    costs = np.zeros((steps + 1, 2 * len(chances.ages), SLACKS + 1, 3), np.float32)
    _induce(costs, chances, terms)
    return DeadlinePlan(chances, terms, costs)


def planned(moment: Moment, age: float, plan: DeadlinePlan) -> Market:
    """The market with the lowest expected cost; `advisor.papers.deadlines.moment.safe` keeps the deadline.

    Args:
        age: How long spot has been available, or unavailable, seconds.
    """
    chances, terms = plan.chances, plan.terms
    after = round(moment.time_left / terms.step) - 1
    after = min(len(plan.costs) - 2, max(0, after))
    row = int(np.searchsorted(chances.ages, age, side="right")) - 1
    state = row if moment.has_spot else len(chances.ages) + row
    expected = np.empty((SLACKS + 1, 3))
    _expect(plan.costs[after], chances, state, expected)
    starting = moment.starting_in(Market.SPOT), moment.starting_in(Market.ON_DEMAND)
    market, _ = _cheapest(expected, terms, moment.slack, moment.work_left, *starting, moment.has_spot)
    return Market(market)


@compiled
def _induce(costs: _Costs, chances: SpotChances, terms: Terms) -> None:
    classes = chances.ages.shape[0]
    expected = np.empty((costs.shape[2], 3))
    for i in range(1, costs.shape[0]):
        for state in range(2 * classes):
            _expect(costs[i - 1], chances, state, expected)
            for s in range(costs.shape[2]):
                slack = s * terms.unit
                left = i * terms.step - slack
                if left <= 0.0:
                    continue
                for m in range(3):
                    on_spot = 0.0 if m == _SPOT else terms.changeover
                    on_demand = 0.0 if m == _ON_DEMAND else terms.changeover
                    _, least = _cheapest(expected, terms, slack, left, on_spot, on_demand, state < classes)
                    costs[i, state, s, m] = least


@compiled
def _expect(after: _Costs, chances: SpotChances, state: int, expected: Floats) -> None:
    """The costs a step later, by slack and market then; a job is not on spot where spot has gone."""
    classes = chances.ages.shape[0]
    is_up = state < classes
    row = state if is_up else state - classes
    changed = classes if is_up else 0
    grown = state + 1 if row + 1 < classes else state
    stays = chances.stays_up[row] if is_up else chances.stays_down[row]
    older = chances.older[row]
    for m in range(3):
        at_same = m if is_up or m != _SPOT else _IDLE
        at_changed = m if not is_up or m != _SPOT else _IDLE
        for s in range(after.shape[1]):
            goes_on = (1.0 - older) * after[state, s, at_same] + older * after[grown, s, at_same]
            expected[s, m] = stays * goes_on + (1.0 - stays) * after[changed, s, at_changed]


@compiled
def _cheapest(
    expected: Floats,
    terms: Terms,
    slack: float,
    left: float,
    on_spot: float,
    on_demand: float,
    has_spot: bool,  # noqa: FBT001 - compiled code has no keyword-only arguments
) -> tuple[int, float]:
    """The best market for a step, and its cost; `on_spot` and `on_demand`: seconds before it works there."""
    step, unit, most = terms.step, terms.unit, slack - terms.changeover
    best = _ON_DEMAND
    least = min(step, left + on_demand) + _at(expected, (slack - on_demand) / unit, _ON_DEMAND)
    if has_spot and on_spot <= most:
        cost = terms.spot_price * min(step, left + on_spot)
        cost += _at(expected, (slack - on_spot) / unit, _SPOT)
        if cost < least:
            best, least = _SPOT, cost
    if step <= most:
        cost = _at(expected, (slack - step) / unit, _IDLE)
        if cost < least - _WORTH_WAITING:
            best, least = _IDLE, cost
    return best, least


@compiled
def _at(expected: Floats, place: float, market: int) -> float:
    """The cost between two values of slack."""
    last = expected.shape[0] - 1
    low = min(last - 1, max(0, int(place)))
    part = min(1.0, max(0.0, place - low))
    return float((1.0 - part) * expected[low, market] + part * expected[low + 1, market])
