"""The estimator by its definition (Cunha et al. 2017, section IV-A), one equation per function.

It is slow and plain: the compiled search of ``advisor.predict.knn.estimator`` is tested against it. Where the
paper leaves a case open, the choice is:

- a feature whose known values in the knowledge base are all equal (up to 1e-290, where a quotient would not
  be finite) has no range; it is compared by overlap;
- a feature of weight 0 is left out, however far apart its values are;
- an unknown label teaches nothing; a case with one is no neighbour;
- without neighbours, or when all kernels are 0, the estimate is NaN (section IV-B);
- when the kernels sum to at most 1, Eq. 4 has no meaning and the variance is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Case", "distance", "estimate", "kernel", "nearest", "ranges", "rmse", "variance"]

SMALLEST_RANGE: Final = 1e-290


@dataclass(frozen=True, slots=True)
class Case:
    """One experience: input features (NaN where unknown), its label, when it became known, its job's id."""

    features: Sequence[float]
    label: float
    time: float = 0.0
    job_id: int = 0


def ranges(cases: Sequence[Case]) -> list[tuple[float, float]]:
    """``(min_f, max_f)`` of each feature's known values in the knowledge base; NaN where none is known."""
    found = []
    for column in zip(*(case.features for case in cases), strict=True):
        known = [value for value in column if not math.isnan(value)]
        found.append((min(known), max(known)) if known else (math.nan, math.nan))
    return found


def square(x: float) -> float:
    """Return x times x, infinite where it overflows (``x ** 2`` raises)."""
    return x * x


def overlap(x: float, y: float) -> float:
    """overlap_f: 0 for equal values, else 1."""
    return 0.0 if x == y else 1.0


def difference(x: float, y: float, low: float, high: float) -> float:
    """diff_f: the difference as a share of the feature's range; overlap where there is no range."""
    if not high - low > SMALLEST_RANGE:
        return overlap(x, y)
    return abs(x - y) / (high - low)


def feature_distance(x: float, y: float, *, nominal: bool, low: float, high: float) -> float:
    """d_f: 1 where either value is unknown."""
    if math.isnan(x) or math.isnan(y):
        return 1.0
    return overlap(x, y) if nominal else difference(x, y, low, high)


def distance(
    x: Sequence[float],
    y: Sequence[float],
    *,
    nominal: Sequence[bool],
    limits: Sequence[tuple[float, float]],
    weights: Sequence[float],
) -> float:
    """Eq. 1: HEOM with weights."""
    return math.sqrt(
        sum(
            weight * square(feature_distance(a, b, nominal=kind, low=low, high=high))
            for a, b, kind, (low, high), weight in zip(x, y, nominal, limits, weights, strict=True)
            if weight > 0
        )
    )


def kernel(length: float, omega: float) -> float:
    """Eq. 2: the Gaussian kernel."""
    return math.exp(-square(length / omega))


def nearest(
    query: Sequence[float],
    cases: Sequence[Case],
    *,
    k: int,
    nominal: Sequence[bool],
    weights: Sequence[float],
) -> list[tuple[float, Case]]:
    """The k nearest cases: by distance, then newer first, then the smaller job id."""
    known = [case for case in cases if math.isfinite(case.label)]
    limits = ranges(known)
    measured = [
        (distance(query, case.features, nominal=nominal, limits=limits, weights=weights), case)
        for case in known
    ]
    return sorted(measured, key=lambda pair: (pair[0], -pair[1].time, pair[1].job_id))[:k]


def estimate(neighbours: Sequence[tuple[float, Case]], omega: float) -> float:
    """Eq. 3: the mean of the neighbours' labels, weighted by their kernels; NaN for 0/0."""
    total = sum(kernel(length, omega) for length, _ in neighbours)
    if total == 0:
        return math.nan
    return sum(kernel(length, omega) * case.label for length, case in neighbours) / total


def variance(neighbours: Sequence[tuple[float, Case]], omega: float) -> float:
    """Eq. 4: unbiased weighted variance; infinite where the kernels sum to at most 1."""
    total = sum(kernel(length, omega) for length, _ in neighbours)
    if total <= 1:
        return math.inf
    mean = estimate(neighbours, omega)
    return sum(kernel(length, omega) * (mean - case.label) ** 2 for length, case in neighbours) / (total - 1)


def rmse(predicted: Sequence[float], actual: Sequence[float]) -> float:
    """Eq. 5: root mean squared error."""
    pairs = list(zip(predicted, actual, strict=True))
    return math.sqrt(sum((guess - truth) ** 2 for guess, truth in pairs) / len(pairs))
