"""What a placement replay finds: one line per overhead, and how good the estimates were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from advisor.decide.backtest import ChosenCutoff
from advisor.predict.fitness import Target
from advisor.replay.hedged import HedgeOutcome, HedgePoint

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one way to decide did for one factor.

    Attributes
    ----------
    cloud_jobs : int
        Jobs sent to the cloud.
    saved_seconds : float
        Sum over them of w + r - s(c)*r.
    fraction_of_optimal : float or None
        Of the clairvoyant's saved seconds; None where he could save nothing.
    """

    cloud_jobs: int
    saved_seconds: float
    fraction_of_optimal: float | None

    @classmethod
    def of(cls, sent: Booleans, saved: Floats, optimum: float) -> Self:
        """Add up the jobs that were sent; `optimum` is the clairvoyant's sum."""
        total = float(saved[sent].sum())
        return cls(
            cloud_jobs=int(np.count_nonzero(sent)),
            saved_seconds=total,
            fraction_of_optimal=total / optimum if optimum > 0 else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorRow:
    """One line of the paper's tables; `hedged` has one entry per budget asked for."""

    factor: float
    optimal: Outcome
    without_cutoff: Outcome
    with_cutoff: Outcome
    advisor: Outcome
    hedged: tuple[HedgeOutcome, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorQuality:
    """How good the estimates of one window were.

    Attributes
    ----------
    mean_absolute_error : float
        Seconds, over the jobs that have an estimate (section V-A).
    interval_coverage : float
        Share of jobs whose truth lies within the stated interval.
    interval : float
        What that share should be.
    without_estimate : float
        Share of jobs with none.
    """

    mean_absolute_error: float
    interval_coverage: float
    interval: float
    without_estimate: float

    @classmethod
    def of(cls, *, seconds: Floats, lower: Floats, upper: Floats, interval: float, truth: Floats) -> Self:
        """Judge estimates (NaN: none) and their intervals by the truth (NaN: unknown), each one per job."""
        known = np.isfinite(truth)
        usable = np.isfinite(seconds) & known
        bounded = np.isfinite(lower) & np.isfinite(upper) & known
        inside = (truth >= lower) & (truth <= upper) & bounded
        return cls(
            mean_absolute_error=_mean(np.abs(seconds - truth)[usable]),
            interval_coverage=_mean(inside[bounded]),
            interval=interval,
            without_estimate=_mean(~np.isfinite(seconds[known])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedParameters:
    """What an estimator ran with."""

    k: int
    omega: float
    s: int
    weights: dict[str, float]
    rmse_before: float | None = None
    rmse_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementReplay:
    """The whole result.

    Attributes
    ----------
    jobs : int
        Of the window that ran.
    quality, published_quality : dict
        Of the advisor's own forecasts, and of the published k-NN estimators.
    parameters : dict
        What the k-NN estimators ran with, by target.
    cutoff : ChosenCutoff
        Of the published rule.
    rows : tuple of FactorRow
        One per overhead.
    hedge_curve : tuple of HedgePoint
        What budgets buy; empty unless asked for.
    """

    jobs: int
    quality: dict[Target, EstimatorQuality]
    published_quality: dict[Target, EstimatorQuality]
    parameters: dict[str, TunedParameters]
    cutoff: ChosenCutoff
    rows: tuple[FactorRow, ...]
    hedge_curve: tuple[HedgePoint, ...] = ()


def _mean(values: NDArray[np.float64] | NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else float("nan")
