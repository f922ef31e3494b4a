"""Predictions about a job, each with its uncertainty: `advisor serve` makes them, decisions read them."""

from __future__ import annotations

import math

import msgspec
from msgspec import structs


def holds(lower: float, truth: float, upper: float) -> bool:
    """Whether a closed interval contains the true value: the one definition of coverage."""
    return lower <= truth <= upper


class Estimate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A predicted time and its uncertainty (Cunha et al., Eq. 3 and 4).

    Attributes:
        seconds: The estimate; NaN when there is none (no neighbours, all kernels underflowed).
        variance: Unbiased weighted variance, seconds squared; infinite where the kernel sum is at most 1 and
            Eq. 4 is undefined.
        lower, upper: Bounds of the ``coverage`` interval in seconds; NaN where the estimator has none.
        coverage: Nominal coverage of ``[lower, upper]``, 0 to 1.
        quantiles: Equally likely values of the predictive distribution in seconds, ascending; empty where the
            estimator gives none (the published one).
    """

    seconds: float
    variance: float
    lower: float = math.nan
    upper: float = math.nan
    coverage: float = 0.9
    neighbours: int = 0
    quantiles: tuple[float, ...] = ()

    @property
    def is_usable(self) -> bool:
        """False where there is no estimate."""
        return math.isfinite(self.seconds)

    @property
    def deviation(self) -> float:
        """Standard deviation, seconds."""
        return math.sqrt(self.variance) if self.variance >= 0 else math.nan


NO_ESTIMATE = Estimate(seconds=math.nan, variance=math.inf)


class SizeEstimate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Small or large (Zrigui et al., section 4).

    Attributes:
        is_small: The class at the current probability threshold.
        probability_small: The forest's vote for small, 0 to 1; 0 while there is no forest (first week: all
            jobs are large).
        divider_seconds: The run time that divides small from large; NaN while unknown.
    """

    is_small: bool
    probability_small: float
    divider_seconds: float


NO_SIZE = SizeEstimate(is_small=False, probability_small=0.0, divider_seconds=math.nan)


class PromiseChances(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The forecasts on which a promise to one job is based.

    Attributes:
        confidence: Share of promises to be kept.
        waits, shares: Likely waits from now on, seconds, and how likely each is.
        levels: By row of the price list (`advisor.predict.promised.levels.Kind`): the probability of being
            done in time at which a promise is made.
        strains: By row: how often such promises are broken of late, 0 to 1. The more, the more readily a
            start in the cloud is paid for that may turn out to have been in vain.
        thrift: Factor, 0 to 1, on the share of a start's cost that may be in vain: the mean cost of jobs
            like it over this job's, so that dear starts have to be surer.
    """

    confidence: float
    waits: tuple[float, ...]
    shares: tuple[float, ...]
    levels: tuple[float, ...]
    strains: tuple[float, ...]
    thrift: float = 1.0


class Estimates(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All forecasts of one job that a decision uses.

    Attributes:
        planned_wait: The wait if jobs ran to their time limits, seconds: intervals and promises are learned
            beside it. None: that is the forecast wait itself.
        run_chances: Probabilities of the run time by bin of `advisor.predict.run_times.grid.GRID`; empty
            where it has no such forecast.
        promise: Only of a job that names the time by which it is to be done.
    """

    wait: Estimate = NO_ESTIMATE
    run: Estimate = NO_ESTIMATE
    size: SizeEstimate = NO_SIZE
    run_chances: tuple[float, ...] = ()
    promise: PromiseChances | None = None
    planned_wait: float | None = None

    @property
    def plan(self) -> Estimate:
        """The planned wait, with the interval that was learned beside it."""
        return (
            self.wait if self.planned_wait is None else structs.replace(self.wait, seconds=self.planned_wait)
        )
