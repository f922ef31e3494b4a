"""s(c) = o*c + i learned from work that ran on both sides (Cunha et al. 2017, section V-C).

The learn loop does so as jobs end, and `advisor serve` gets the result with each snapshot.

Runs of the same work (user, application and number of processors) on-premise and in the cloud give one
observation: the log of the ratio of their median run times. Observations follow

    log ratio = log(o*c + i) + partition + application + noise

with o and i shrunk towards the configured ones, and the effects of partitions and applications towards 0. The
variances of the effects are learned too, so that rarely seen partitions and applications stay near the site's
value (a random-effects model, solved as Henderson's mixed-model equations). Medians, and Huber's weights on
the residuals, limit the influence of single odd runs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.model.site import PerformanceRatios, Ratio

MIN_JOBS: Final = 3
"""Minimum of cloud runs to learn anything, and for a value of a partition or application."""
_ROUNDS: Final = 25
_HUBER: Final = 1.345
_MEDIAN_SHARE: Final = math.pi / 2.0  # its variance beside a mean's, for normal noise
_MAD: Final = 1.4826
_WITHIN: Final = 0.3
"""Prior deviation of the log of run times of the same work; counts as four runs."""
_WITHIN_WEIGHT: Final = 4.0
_EFFECT_DEVIATION: Final = 0.2
"""Prior deviation of the applications' effects; counts as two applications."""
_EFFECT_WEIGHT: Final = 2.0
_BASELINE: Final = 0.5
"""Prior deviation of the log of the configured i: a factor of about 1.6."""
_OVERHEAD: Final = 0.05
"""Prior deviation of the configured o; the configured o itself where that is more."""
_WIDEST: Final = 2.0
"""The most that this deviation makes of the widest work's ratio: chance in narrow work is no slope."""
_MAX_EFFECTS: Final = 400


@dataclass(frozen=True, slots=True)
class BothSides:
    """Runs of the same work on both sides.

    Attributes:
        partition, application: Partition of the submission and application; None: unknown.
        here, cloud: Run times on-premise and in the cloud, seconds, at least one of each.
    """

    processors: int
    partition: str | None
    application: str | None
    here: Sequence[float]
    cloud: Sequence[float]


def learn_ratios(work: Sequence[BothSides], overhead: float, baseline: float) -> PerformanceRatios | None:
    """Learn o, i and the effects of partitions and applications; None where too little ran on both sides.

    ``overhead`` and ``baseline`` are the configured o and i, towards which the site's values are shrunk.
    """
    if sum(len(group.cloud) for group in work) < MIN_JOBS:
        return None
    observations = _Observations.of(work)
    partitions = _effects([group.partition for group in work])
    if len(partitions) < 2:  # a single partition's effect is the site's
        partitions = {}
    applications = _effects([group.application for group in work])
    return _fit(observations, work, partitions, applications, overhead, baseline)


@dataclass(frozen=True, slots=True)
class _Observations:
    """Log ratios with their variances."""

    log_ratio: Floats
    variance: Floats
    processors: Floats
    jobs: Floats

    @classmethod
    def of(cls, work: Sequence[BothSides]) -> _Observations:
        here, cloud = ([np.log(np.maximum(side, 1.0)) for side in sides] for sides in _sides(work))
        steps = [np.concatenate([_steps(a), _steps(b)]) for a, b in zip(here, cloud, strict=True)]
        # variance of runs of the same work, shrunk towards that of all work
        pooled = _variance(np.concatenate(steps), _WITHIN**2, _WITHIN_WEIGHT)
        within = [_variance(own, pooled, _WITHIN_WEIGHT) for own in steps]
        drift = _drift(here, cloud, within)
        return cls(
            log_ratio=np.array([np.median(b) - np.median(a) for a, b in zip(here, cloud, strict=True)]),
            variance=np.array(
                [
                    variance * (_share(a) + _share(b)) + more
                    for variance, more, a, b in zip(within, drift, here, cloud, strict=True)
                ]
            ),
            processors=np.array([float(group.processors) for group in work]),
            jobs=np.array([float(len(group.cloud)) for group in work]),
        )


def _sides(work: Sequence[BothSides]) -> tuple[list[Floats], list[Floats]]:
    return (
        [np.asarray(group.here, dtype=np.float64) for group in work],
        [np.asarray(group.cloud, dtype=np.float64) for group in work],
    )


def _steps(runs: Floats) -> Floats:
    """Differences of successive runs, scaled to the deviation of single runs from their mean."""
    return np.diff(runs) / math.sqrt(2.0)


def _variance(steps: Floats, expected: float, weight: float) -> float:
    """Robust variance of runs, shrunk towards an expected one that counts as ``weight`` runs."""
    if not len(steps):
        return expected
    seen = (_MAD * float(np.median(np.abs(steps)))) ** 2
    return (weight * expected + len(steps) * seen) / (weight + len(steps))


def _drift(here: Sequence[Floats], cloud: Sequence[Floats], within: Sequence[float]) -> list[float]:
    """Variance by which the medians of two times differ for each work, beyond that of single runs.

    What runs under one name changes as time goes by: probes today, and whole runs next week. The older and
    the newer half of one side's runs say how much, for no ratio is between them.
    """
    changes: list[list[float]] = []
    chances: list[float] = []
    for variance, *sides in zip(within, here, cloud, strict=True):
        halves = [np.array_split(runs, 2) for runs in sides if len(runs) > 1]
        changes.append([float(np.median(new) - np.median(old)) ** 2 for old, new in halves])
        chances += [variance * (_share(old) + _share(new)) for old, new in halves]
    if not chances:
        return [0.0] * len(changes)
    seen = _MAD**2 * float(np.median([change for own in changes for change in own]))
    pooled = max(0.0, seen - float(np.median(chances)))
    left = iter(chances)
    drift = []
    for own in changes:
        excess = sum(change - next(left) for change in own)
        drift.append(max(0.0, (_WITHIN_WEIGHT * pooled + excess) / (_WITHIN_WEIGHT + len(own))))
    return drift


def _share(runs: Floats) -> float:
    """Variance of the median as a share of the variance of one run."""
    return (_MEDIAN_SHARE if len(runs) > 2 else 1.0) / len(runs)


def _effects(names: Sequence[Hashable]) -> dict[Hashable, int]:
    """The most frequent names, numbered."""
    counts: dict[Hashable, int] = {}
    for name in names:
        if name is not None:
            counts[name] = counts.get(name, 0) + 1
    common = sorted(counts, key=lambda name: (-counts[name], str(name)))[:_MAX_EFFECTS]
    return {name: number for number, name in enumerate(common)}


def _design(
    work: Sequence[BothSides], partitions: Mapping[Hashable, int], applications: Mapping[Hashable, int]
) -> Floats:
    """Design matrix; its first two columns, of o and log i, are filled in later."""
    design = np.zeros((len(work), 2 + len(partitions) + len(applications)))
    for row, group in enumerate(work):
        if group.partition in partitions:
            design[row, 2 + partitions[group.partition]] = 1.0
        if group.application in applications:
            design[row, 2 + len(partitions) + applications[group.application]] = 1.0
    return design


def _fit(
    observations: _Observations,
    work: Sequence[BothSides],
    partitions: Mapping[Hashable, int],
    applications: Mapping[Hashable, int],
    overhead: float,
    baseline: float,
) -> PerformanceRatios:
    """Gauss-Newton steps on o, log i and the effects; the variances of the effects by EM between them."""
    prior = np.array([overhead, math.log(baseline)])
    widest = float(observations.processors.max())
    prior_variance = np.array([max(overhead, min(_OVERHEAD, _WIDEST / widest)) ** 2, _BASELINE**2])
    design = _design(work, partitions, applications)
    kinds = [slice(2, 2 + len(partitions)), slice(2 + len(partitions), design.shape[1])]
    effect_variances = [_EFFECT_DEVIATION**2, _EFFECT_DEVIATION**2]
    solution = np.concatenate([prior, np.zeros(design.shape[1] - 2)])
    weights = np.ones(len(work))
    covariance = np.eye(len(solution))
    for _ in range(_ROUNDS):
        line = solution[0] * observations.processors + math.exp(solution[1])
        design[:, 0], design[:, 1] = observations.processors / line, math.exp(solution[1]) / line
        residual = observations.log_ratio - np.log(line) - design[:, 2:] @ solution[2:]
        scaled = residual / np.sqrt(observations.variance)
        spread = max(1.0, _MAD * float(np.median(np.abs(scaled)))) if len(work) > 4 else 1.0
        weights = np.minimum(1.0, _HUBER / np.maximum(np.abs(scaled) / spread, 1e-9))
        precision = weights / (observations.variance * spread**2)
        prior_precision = np.concatenate(
            [
                1.0 / prior_variance,
                *(np.full(k.stop - k.start, 1.0 / a) for k, a in zip(kinds, effect_variances, strict=True)),
            ]
        )
        prior_residual = np.concatenate([prior - solution[:2], -solution[2:]])
        covariance = np.linalg.inv((design.T * precision) @ design + np.diag(prior_precision))
        solution = solution + covariance @ (
            design.T @ (precision * residual) + prior_precision * prior_residual
        )
        solution[0] = max(0.0, solution[0])
        effect_variances = [
            (
                _EFFECT_WEIGHT * _EFFECT_DEVIATION**2
                + float((solution[kind] ** 2 + np.diag(covariance)[kind]).sum())
            )
            / (_EFFECT_WEIGHT + kind.stop - kind.start)
            for kind in kinds
        ]
    return _ratios_of(observations, work, solution, covariance, partitions, applications, effect_variances)


def _ratios_of(
    observations: _Observations,
    work: Sequence[BothSides],
    solution: Floats,
    covariance: Floats,
    partitions: Mapping[Hashable, int],
    applications: Mapping[Hashable, int],
    effect_variances: Sequence[float],
) -> PerformanceRatios:
    """The result: a value where there are enough jobs, with the deviation of its logarithm."""
    between_partitions = effect_variances[0] if partitions else 0.0

    def deviation(rows: Floats, effects: Sequence[int], more: float) -> float:
        """Of the log ratio of a job of the usual size there."""
        median_processors = float(np.median(observations.processors[rows]))
        line = solution[0] * median_processors + math.exp(solution[1])
        direction = np.zeros(len(solution))
        direction[0], direction[1] = median_processors / line, math.exp(solution[1]) / line
        direction[list(effects)] = 1.0
        return math.sqrt(max(0.0, float(direction @ covariance @ direction)) + more)

    def named_ratios(
        names: Mapping[Hashable, int], first: int, of: Sequence[Hashable], more: float
    ) -> dict[str, Ratio]:
        ratios = {}
        for name, number in names.items():
            rows = np.array([group == name for group in of])
            jobs = int(observations.jobs[rows].sum())
            if jobs >= MIN_JOBS:
                effect = first + number
                ratios[str(name)] = Ratio(
                    factor=math.exp(solution[effect]),
                    deviation=deviation(rows, [effect], more),
                    jobs=jobs,
                )
        return ratios

    everywhere = np.ones(len(work), dtype=bool)
    return PerformanceRatios(
        overhead=float(solution[0]),
        baseline=math.exp(solution[1]),
        deviation=deviation(everywhere, [], between_partitions + effect_variances[1]),
        jobs=int(observations.jobs.sum()),
        partitions=named_ratios(partitions, 2, [group.partition for group in work], effect_variances[1]),
        applications=named_ratios(
            applications, 2 + len(partitions), [group.application for group in work], between_partitions
        ),
    )
