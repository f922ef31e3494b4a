"""What a placement replay finds: one line per overhead, and how good the estimates were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Bools, Floats
from advisor.papers.placement.hedged import HedgeOutcome, HedgePoint
from advisor.predict.knn.known import Target
from advisor.replay.cutoff_choice import ChosenCutoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one way to decide did for one factor.

    Attributes:
        cloud_jobs: Jobs sent to the cloud.
        saved_seconds: Sum over them of w + r - s(c)*r.
        fraction_of_optimal: Of the clairvoyant's saved seconds; None where there was nothing to save.
    """

    cloud_jobs: int
    saved_seconds: float
    fraction_of_optimal: float | None

    @classmethod
    def of(cls, sent: Bools, saved: Floats, optimum: float) -> Self:
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
class MonthCoverage:
    """How often the intervals of one month's jobs held.

    Attributes:
        month: ``2026-11``, by the site's clock.
        jobs: With an interval and a truth.
        coverage: Share of them whose truth lies within it.
    """

    month: str
    jobs: int
    coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorQuality:
    """How good the estimates of one window were.

    Attributes:
        mean_absolute_error: Seconds, over the jobs that have an estimate (section V-A).
        interval_coverage: Share of jobs whose truth lies within the stated interval.
        interval_mean_width, interval_score: Seconds: how wide intervals are on average; and that with what
            they missed by added, times twenty where they promise 90 % (Gneiting and Raftery, "Strictly proper
            scoring rules", 2007, equation 43). Smaller is better, and neither width nor coverage alone makes
            it small.
        months: The same by month of submission.
        interval: What that share should be.
        without_estimate: Share of jobs with none.
    """

    mean_absolute_error: float
    interval_coverage: float
    interval: float
    without_estimate: float
    interval_mean_width: float
    interval_score: float
    months: tuple[MonthCoverage, ...]

    @classmethod
    def of(
        cls,
        *,
        seconds: Floats,
        lower: Floats,
        upper: Floats,
        interval: float,
        truth: Floats,
        epoch: Floats,
    ) -> Self:
        """Judge estimates (NaN: none) and their intervals by the truth (NaN: unknown), each one per job.

        ``epoch`` says when each was submitted, seconds since 1970 by the site's clock.
        """
        known = np.isfinite(truth)
        usable = np.isfinite(seconds) & known
        bounded = np.isfinite(lower) & np.isfinite(upper) & known
        low, high, times = lower[bounded], upper[bounded], truth[bounded]
        inside = (times >= low) & (times <= high)
        missed_by = np.maximum(low - times, 0.0) + np.maximum(times - high, 0.0)
        return cls(
            mean_absolute_error=_mean(np.abs(seconds - truth)[usable]),
            interval_coverage=_mean(inside),
            interval=interval,
            without_estimate=_mean(~np.isfinite(seconds[known])),
            interval_mean_width=_mean(high - low),
            interval_score=_mean(high - low + 2.0 / (1.0 - interval) * missed_by),
            months=_by_month(inside, epoch[bounded]),
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

    Attributes:
        jobs: Of the window that ran.
        quality, published_quality: Of the advisor's own forecasts, and of the published k-NN estimators.
        parameters: What the k-NN estimators ran with, by target.
        cutoff: Of the published rule.
        rows: One per overhead.
        hedge_curve: What budgets buy; empty unless asked for.
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


def _by_month(inside: Bools, epoch: Floats) -> tuple[MonthCoverage, ...]:
    months = np.floor(epoch).astype("datetime64[s]").astype("datetime64[M]")
    return tuple(
        MonthCoverage(
            month=str(month),
            jobs=int(np.count_nonzero(months == month)),
            coverage=_mean(inside[months == month]),
        )
        for month in np.unique(months)
    )
