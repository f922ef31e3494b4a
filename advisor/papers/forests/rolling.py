"""Rolling distribution forests: a new one is grown now and then, and the newest few are averaged.

A replay grows them as it walks through a log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from advisor.arrays import Floats
from advisor.papers.forests.distribution import DistributionForest, Distributions, ForestSettings
from advisor.predict.knn.known import TARGETS, Known, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """Parameters of the forecasts.

    Attributes:
        first: Number of first jobs without a forecast.
        retrain_jobs: Submissions between two forests.
        forests: Number of newest forests that are averaged: as stable as one large forest, but grown in
            steps.
    """

    first: int = 1_000
    retrain_jobs: int = 500
    forests: int = 4
    forest: ForestSettings = field(default_factory=ForestSettings)


class RollingForests:
    """The newest forests of waits and of run times."""

    def __init__(self, options: ForecastOptions) -> None:
        self.options = options
        self._newest = {target: deque[DistributionForest](maxlen=options.forests) for target in TARGETS}

    def grow(
        self, known: Mapping[Target, Known], features: Floats, *, now: float, number: int
    ) -> Iterator[Target]:
        """Grow one more forest per target on the newest jobs known before ``now``; one per step.

        Args:
            known: What the log teaches, per target.
            features: float64, shape (rows, features): Of every row of that log; rows with NaN are left out.
            now: Seconds on the log's clock.
            number: Added to the seed, so that forests also differ in their random choices.

        Yields:
            Each target after its forest was grown.
        """
        forest = self.options.forest
        for target in TARGETS:
            past = known[target].rows[known[target].before(now)]
            past = past[np.isfinite(features[past, 0])][-forest.most_jobs :]
            if len(past):
                settings = replace(forest, seed=forest.seed + number)
                labels = known[target].labels[past]
                self._newest[target].append(DistributionForest.train(features[past], labels, settings))
                yield target

    def predict(self, target: Target, rows: Floats) -> Distributions:
        """Predict jobs; rows of shape (n, features) without NaN."""
        predictions = [forest.predict(rows) for forest in self._newest[target]]
        return Distributions(
            mean=np.mean([one.mean for one in predictions], axis=0),
            mass=np.mean([one.mass for one in predictions], axis=0),
        )
