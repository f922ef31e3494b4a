"""s(c) = o*c + i learned from jobs that ran on both sides (Cunha et al. 2017, section V-C).

Runs of the same work (one user, application and number of processors) on-premise and in the cloud give one
observation: the log of the ratio of their median run times. Observations follow

    log ratio = log(o*c + i) + partition + application + noise

with o and i drawn to the configured ones, and each partition and application to 0, that is to the site's
value. How far partitions and applications lie apart is learned with them, so that one that was seen little
stays near the site's value (a random-effects model, solved as Henderson's mixed-model equations). Medians,
and Huber's weights on what remains, keep single odd runs from counting. No I/O.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.model.site import PerformanceRatios, Ratio

Floats: TypeAlias = NDArray[np.float64]

MIN_JOBS: Final = 3
"""Cloud runs from which on anything is learned, and a partition or application has a value of its own."""
_ROUNDS: Final = 25
_HUBER: Final = 1.345
_MEDIAN_SHARE: Final = math.pi / 2.0  # its variance beside a mean's, for normal noise
_MAD: Final = 1.4826
_WITHIN: Final = 0.3
"""Deviation of the log of run times of the same work, until runs have shown it; counts as four runs."""
_WITHIN_WEIGHT: Final = 4.0
_APART: Final = 0.2
"""Deviation of applications from each other, until they have shown it; counts as two of them."""
_APART_WEIGHT: Final = 2.0
_BASELINE: Final = 0.5
"""Deviation of the log of the configured i from the truth: it is believed to within a factor of 1.6 or so."""
_OVERHEAD: Final = 0.05
"""Deviation of the configured o, at least; o itself, where that is more."""
_MAX_EFFECTS: Final = 400


@dataclass(frozen=True, slots=True)
class BothSides:
    """Runs of the same work on both sides.

    Attributes
    ----------
    processors : int
        c.
    partition, application : hashable
        Where its user had submitted it, and what it is; None: not known.
    here, cloud : sequence of float
        Run times on-premise and in the cloud, seconds, at least one of each.
    """

    processors: int
    partition: str | None
    application: str | None
    here: Sequence[float]
    cloud: Sequence[float]


def learn_ratios(work: Sequence[BothSides], overhead: float, baseline: float) -> PerformanceRatios | None:
    """Learn o and i, and by how much partitions and applications differ.

    Parameters
    ----------
    work : sequence of BothSides
        What ran on both sides.
    overhead, baseline : float
        o and i as configured: where the site's value is drawn to.

    Returns
    -------
    PerformanceRatios or None
        None where too little ran on both sides.
    """
    if sum(len(one.cloud) for one in work) < MIN_JOBS:
        return None
    sight = _Sight.of(work)
    partitions = _effects([one.partition for one in work])
    if len(partitions) < 2:  # the one there is cannot be told from the site
        partitions = {}
    applications = _effects([one.application for one in work])
    return _fit(sight, work, partitions, applications, overhead, baseline)


@dataclass(frozen=True, slots=True)
class _Sight:
    """Observations: log ratios with their variances."""

    log_ratio: Floats
    variance: Floats
    processors: Floats
    jobs: Floats

    @classmethod
    def of(cls, work: Sequence[BothSides]) -> _Sight:
        here, cloud = ([np.log(np.maximum(side, 1.0)) for side in sides] for sides in _sides(work))
        steps = [np.concatenate([_steps(a), _steps(b)]) for a, b in zip(here, cloud, strict=True)]
        # how much runs of the same work differ, drawn to what they do on the whole
        pooled = _variance(np.concatenate(steps), _WITHIN**2, _WITHIN_WEIGHT)
        within = [_variance(own, pooled, _WITHIN_WEIGHT) for own in steps]
        return cls(
            log_ratio=np.array([np.median(b) - np.median(a) for a, b in zip(here, cloud, strict=True)]),
            variance=np.array(
                [one * (_share(a) + _share(b)) for one, a, b in zip(within, here, cloud, strict=True)]
            ),
            processors=np.array([float(one.processors) for one in work]),
            jobs=np.array([float(len(one.cloud)) for one in work]),
        )


def _sides(work: Sequence[BothSides]) -> tuple[list[Floats], list[Floats]]:
    return (
        [np.asarray(one.here, dtype=np.float64) for one in work],
        [np.asarray(one.cloud, dtype=np.float64) for one in work],
    )


def _steps(runs: Floats) -> Floats:
    """From one run to the next: as far apart as runs are from their mean, whatever that is."""
    return np.diff(runs) / math.sqrt(2.0)


def _variance(steps: Floats, expected: float, weight: float) -> float:
    """Robust variance of runs, drawn to an expected one that counts as `weight` of them."""
    if not len(steps):
        return expected
    seen = (_MAD * float(np.median(np.abs(steps)))) ** 2
    return (weight * expected + len(steps) * seen) / (weight + len(steps))


def _share(runs: Floats) -> float:
    """Variance of the median, as a share of that of one run."""
    return (_MEDIAN_SHARE if len(runs) > 2 else 1.0) / len(runs)


def _effects(names: Sequence[Hashable]) -> dict[Hashable, int]:
    """The commonest names, numbered."""
    counts: dict[Hashable, int] = {}
    for name in names:
        if name is not None:
            counts[name] = counts.get(name, 0) + 1
    common = sorted(counts, key=lambda name: (-counts[name], str(name)))[:_MAX_EFFECTS]
    return {name: number for number, name in enumerate(common)}


def _design(
    work: Sequence[BothSides], partitions: Mapping[Hashable, int], applications: Mapping[Hashable, int]
) -> Floats:
    """Which effects each observation has; the first two columns are those of o and log i, filled in later."""
    found = np.zeros((len(work), 2 + len(partitions) + len(applications)))
    for row, one in enumerate(work):
        if one.partition in partitions:
            found[row, 2 + partitions[one.partition]] = 1.0
        if one.application in applications:
            found[row, 2 + len(partitions) + applications[one.application]] = 1.0
    return found


def _fit(
    sight: _Sight,
    work: Sequence[BothSides],
    partitions: Mapping[Hashable, int],
    applications: Mapping[Hashable, int],
    overhead: float,
    baseline: float,
) -> PerformanceRatios:
    """Gauss-Newton on o, log i and the effects together; the effects' deviations by EM between the steps."""
    prior = np.array([overhead, math.log(baseline)])
    prior_variance = np.array([max(overhead, _OVERHEAD) ** 2, _BASELINE**2])
    design = _design(work, partitions, applications)
    kinds = [slice(2, 2 + len(partitions)), slice(2 + len(partitions), design.shape[1])]
    apart = [_APART**2, _APART**2]
    found = np.concatenate([prior, np.zeros(design.shape[1] - 2)])
    weights = np.ones(len(work))
    covariance = np.eye(len(found))
    for _ in range(_ROUNDS):
        line = found[0] * sight.processors + math.exp(found[1])
        design[:, 0], design[:, 1] = sight.processors / line, math.exp(found[1]) / line
        left = sight.log_ratio - np.log(line) - design[:, 2:] @ found[2:]
        scaled = left / np.sqrt(sight.variance)
        spread = max(1.0, _MAD * float(np.median(np.abs(scaled)))) if len(work) > 4 else 1.0
        weights = np.minimum(1.0, _HUBER / np.maximum(np.abs(scaled) / spread, 1e-9))
        precision = weights / (sight.variance * spread**2)
        draw = np.concatenate(
            [
                1.0 / prior_variance,
                *(np.full(k.stop - k.start, 1.0 / a) for k, a in zip(kinds, apart, strict=True)),
            ]
        )
        pulled = np.concatenate([prior - found[:2], -found[2:]])
        covariance = np.linalg.inv((design.T * precision) @ design + np.diag(draw))
        found = found + covariance @ (design.T @ (precision * left) + draw * pulled)
        found[0] = max(0.0, found[0])
        apart = [
            (_APART_WEIGHT * _APART**2 + float((found[kind] ** 2 + np.diag(covariance)[kind]).sum()))
            / (_APART_WEIGHT + kind.stop - kind.start)
            for kind in kinds
        ]
    return _told(sight, work, found, covariance, partitions, applications, apart)


def _told(
    sight: _Sight,
    work: Sequence[BothSides],
    found: Floats,
    covariance: Floats,
    partitions: Mapping[Hashable, int],
    applications: Mapping[Hashable, int],
    apart: Sequence[float],
) -> PerformanceRatios:
    """What is told of it: a value where there are enough jobs, with the deviation of its logarithm."""
    between_partitions = apart[0] if partitions else 0.0

    def deviation(rows: Floats, effects: Sequence[int], more: float) -> float:
        """Of the log ratio of a job of the usual size there."""
        usual = float(np.median(sight.processors[rows]))
        line = found[0] * usual + math.exp(found[1])
        wanted = np.zeros(len(found))
        wanted[0], wanted[1] = usual / line, math.exp(found[1]) / line
        wanted[list(effects)] = 1.0
        return math.sqrt(max(0.0, float(wanted @ covariance @ wanted)) + more)

    def told(
        names: Mapping[Hashable, int], first: int, of: Sequence[Hashable], more: float
    ) -> dict[str, Ratio]:
        ratios = {}
        for name, number in names.items():
            rows = np.array([one == name for one in of])
            jobs = int(sight.jobs[rows].sum())
            if jobs >= MIN_JOBS:
                effect = first + number
                ratios[str(name)] = Ratio(
                    factor=math.exp(found[effect]),
                    deviation=deviation(rows, [effect], more),
                    jobs=jobs,
                )
        return ratios

    everywhere = np.ones(len(work), dtype=bool)
    return PerformanceRatios(
        overhead=float(found[0]),
        baseline=math.exp(found[1]),
        deviation=deviation(everywhere, [], between_partitions + apart[1]),
        jobs=int(sight.jobs.sum()),
        partitions=told(partitions, 2, [one.partition for one in work], apart[1]),
        applications=told(
            applications, 2 + len(partitions), [one.application for one in work], between_partitions
        ),
    )
