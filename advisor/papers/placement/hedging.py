"""The hedged start: a job starts in the cloud and keeps its place in the on-premise queue.

When its slot comes it stays in the cloud, if it is expected to end sooner there, or starts again on-premise,
no later than if it had only waited; a stop-loss bounds what it may cost until then. So a wrong forecast costs
money and hardly ever time. Forecasts make hedges cheap: a job's stop-loss is the one with the largest
expected gain less a *price of time* times its expected core-seconds. The price is the same for all jobs and
set by what the site may spend (:mod:`advisor.papers.placement.pacing`; docs/designs/0013-hedged-start.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.model.estimate import Estimates
from advisor.papers.placement._hedge_curves import (
    at_prices,
    best_stop,
    expected_curves,
    expected_optimum,
    stays,
)

Floats = NDArray[np.float64]

STOPS: Final[Floats] = np.concatenate([[0.0], np.geomspace(10.0, 3e6, 36)])
"""Stop-losses looked at, seconds in the cloud; 0 is no hedge, the last no stop-loss to speak of."""
PRICES: Final[Floats] = np.concatenate([np.geomspace(1e-5, 1e4, 91), [1e30]])
"""Prices of a core-second in seconds of turnaround, ascending; at the last nobody is hedged."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HedgeCase:
    """What a hedge of one job rests on.

    Attributes:
        processors: c.
        slowdown: s(c) = o*c + i.
        boot_seconds: Until a cloud node is up.
        wait_mass, run_mass: float64, shape (bins,): Forecast probabilities of the wait and the run time.
        waits, runs: float64, shape (bins,): Seconds they belong to; run times are not above the requested
            time.
    """

    processors: int
    slowdown: float
    boot_seconds: float
    wait_mass: Floats
    run_mass: Floats
    waits: Floats
    runs: Floats

    def stays(self, elapsed_seconds: float) -> bool:
        """Whether the job is expected to end sooner in the cloud, if its slot comes after so many seconds."""
        return bool(stays(self.run_mass, self.runs, self.slowdown, self.boot_seconds, elapsed_seconds))

    def expected_optimum(self) -> float:
        """Core-seconds a clairvoyant is expected to spend on the job."""
        seconds = expected_optimum(
            self.wait_mass, self.waits, self.run_mass, self.runs, self.slowdown, self.boot_seconds
        )
        return self.processors * seconds


def case_of(
    estimates: Estimates,
    *,
    processors: int,
    slowdown: float,
    boot_seconds: float,
    requested_time: float | None,
) -> HedgeCase | None:
    """Build a job's case from its forecasts' equally likely values; None without forecasts.

    ``requested_time`` is in seconds: no run is longer.
    """
    waits, runs = np.array(estimates.wait.quantiles), np.array(estimates.run.quantiles)
    if not (len(waits) and len(runs)):
        return None
    longest = np.inf if requested_time is None else requested_time
    return HedgeCase(
        processors=processors,
        slowdown=slowdown,
        boot_seconds=boot_seconds,
        wait_mass=np.full(len(waits), 1.0 / len(waits)),
        run_mass=np.full(len(runs), 1.0 / len(runs)),
        waits=np.maximum(waits, 0.0),
        runs=np.minimum(runs, longest),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hindsight:
    """What a job teaches when it has ended.

    Attributes:
        cost: float64, shape (prices,): Core-seconds its hedge would have cost at each of `PRICES`.
        optimal, expected_optimal: Core-seconds a clairvoyant would have spent on it, and what was forecast of
            them.
    """

    cost: Floats
    optimal: float
    expected_optimal: float


def hindsight(case: HedgeCase, wait_seconds: float, run_seconds: float) -> Hindsight:
    """Evaluate a job's hedge now that its wait and its run time on-premise are known."""
    shape = len(PRICES)
    saved, seconds, expected = np.empty(shape), np.empty(shape), np.empty(shape)
    expected_optimal = at_prices(
        case.wait_mass,
        case.waits,
        case.run_mass,
        case.runs,
        case.slowdown,
        case.boot_seconds,
        float(case.processors),
        wait_seconds,
        run_seconds,
        STOPS,
        PRICES,
        saved,
        seconds,
        expected,
        np.empty(shape, np.int8),
        np.empty(len(STOPS)),
        np.empty(len(STOPS)),
    )
    in_cloud = case.boot_seconds + case.slowdown * run_seconds
    is_faster = wait_seconds + run_seconds > in_cloud
    return Hindsight(
        cost=case.processors * seconds,
        optimal=case.processors * in_cloud if is_faster else 0.0,
        expected_optimal=expected_optimal,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgePlan:
    """One job's hedge at one price.

    Attributes:
        stop_seconds: Longest stay in the cloud before the slot comes; 0: no hedge.
        expected_gain_seconds: Of turnaround.
        expected_core_seconds: In the cloud.
    """

    stop_seconds: float
    expected_gain_seconds: float
    expected_core_seconds: float


def choose_stop(
    gain: Floats, seconds: Floats, price: float, *, longest: float = np.inf, most: float = np.inf
) -> int:
    """Choose a stop-loss that can be paid for.

    Args:
        gain, seconds: float64, shape (stops,): Expected for each of `STOPS`.
        price: Seconds of turnaround that a second in the cloud must bring.
        longest: Seconds the job can be in the cloud at most, by its time limit: no stop-loss takes longer.
        most: Seconds that can be paid for.

    Returns:
        Index into `STOPS`; 0: no hedge.
    """
    count = len(STOPS) if longest <= most else int(np.searchsorted(STOPS, most, side="right"))
    return int(best_stop(gain, seconds, price, count))


def plan(case: HedgeCase, price: float, most_seconds: float = np.inf) -> HedgePlan:
    """Choose a job's stop-loss.

    Args:
        case: What the hedge rests on.
        price: Seconds of turnaround that a core-second in the cloud must bring.
        most_seconds: In the cloud that can be paid for.
    """
    gain, seconds = np.empty(len(STOPS)), np.empty(len(STOPS))
    expected_curves(
        case.wait_mass,
        case.waits,
        case.run_mass,
        case.runs,
        case.slowdown,
        case.boot_seconds,
        STOPS,
        gain,
        seconds,
    )
    best = choose_stop(gain, seconds, price * case.processors, most=most_seconds)
    return HedgePlan(
        stop_seconds=float(STOPS[best]),
        expected_gain_seconds=float(gain[best]),
        expected_core_seconds=float(case.processors * seconds[best]),
    )


def warm_plan() -> None:
    """Compile, or load from the cache, what :func:`plan` needs, before the first job waits for it."""
    one = np.ones(1)
    case = HedgeCase(
        processors=1, slowdown=1.0, boot_seconds=0.0, wait_mass=one, run_mass=one, waits=one, runs=one
    )
    plan(case, 1.0)
