"""Waits and run times forecast as whole distributions by a rolling forest (Ambati et al., section 3.2).

The paper trains a regression, so that one model decides at any ``b``; a mean cannot do that well, for the
waits of jobs in one state range from minutes to days. Here each leaf keeps the distribution of what was
seen (:mod:`advisor.papers.forests.distribution`), and the chance of a wait longer than ``b`` is read off
it, for any ``b``, without training again. A few new trees grow every week beside the newest of the weeks
before: as steady as one large forest at a fraction of the work, and a change at the site is in a quarter of
the votes within a week.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.papers.forests.distribution import EDGES, DistributionForest, ForestSettings
from advisor.papers.waiting.world._state import Forest
from advisor.papers.waiting.world._trees import chances_of_more

MIN_EXAMPLES: Final = 500
"""With fewer examples nothing is forecast: doubt means waiting, as without a model."""


@dataclass(slots=True, kw_only=True)
class RollingForest:
    """The newest few forests, asked as one.

    Attributes:
        settings: How each is grown.
        kept: How many are asked.

    Examples:
        >>> rows = np.repeat([[0.0], [1.0]], 400, axis=0)
        >>> model = RollingForest()
        >>> model.grow(rows, np.repeat([60.0, 86_000.0], 400), seed=1)
        True
        >>> [round(float(chance), 1) for chance in model.chance_of_more(np.array([[0.0], [1.0]]), 3600.0)]
        [0.0, 1.0]
    """

    settings: ForestSettings = field(default_factory=lambda: ForestSettings(trees=5))
    kept: int = 4
    _newest: deque[DistributionForest] = field(init=False)
    _trees: Forest | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._newest = deque(maxlen=self.kept)

    @property
    def trees(self) -> Forest | None:
        """What the compiled kernels walk; None before anything was learned."""
        return self._trees

    def grow(self, features: Floats, seconds: Floats, *, seed: int) -> bool:
        """Grow another forest on examples in the order they became known; False with too few of them.

        Args:
            features: float64, shape (n, features): Without NaN.
            seconds: float64, shape (n,): What was waited, or run.
            seed: Of this forest's random choices.
        """
        if len(seconds) < MIN_EXAMPLES:
            return False
        self._newest.append(DistributionForest.train(features, seconds, replace(self.settings, seed=seed)))
        self._trees = merged(tuple(self._newest))
        return True

    def chance_of_more(self, features: Floats, seconds: float) -> Floats:
        """Chance that it takes more than so many seconds; 0 before anything was learned.

        Args:
            features: float64, shape (n, features): Jobs.
            seconds: The threshold; any.
        """
        if self._trees is None:
            return np.zeros(len(features))
        return chances_of_more(self._trees, np.ascontiguousarray(features), float(seconds))


def merged(forests: tuple[DistributionForest, ...]) -> Forest:
    """Several forests as one, with tails in the leaves: the chance of more than each edge."""
    nodes = np.cumsum([0, *(len(forest.feature) for forest in forests)])
    leaves = np.cumsum([0, *(len(forest.leaf_mean) for forest in forests)])

    def joined(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
        return np.ascontiguousarray(np.concatenate(parts), np.int32)

    return Forest(
        roots=joined([forest.roots + at for forest, at in zip(forests, nodes, strict=False)]),
        feature=joined([forest.feature for forest in forests]),
        threshold=np.concatenate([forest.threshold for forest in forests]),
        children=joined([forest.children + at for forest, at in zip(forests, nodes, strict=False)]),
        leaf=joined([forest.leaf + at for forest, at in zip(forests, leaves, strict=False)]),
        mean=np.concatenate([forest.leaf_mean for forest in forests]),
        tail=np.ascontiguousarray(np.concatenate([_tails(forest) for forest in forests])),
        edges=EDGES,
    )


def _tails(forest: DistributionForest) -> NDArray[np.float32]:
    below = np.cumsum(forest.leaf_mass.astype(np.float64), axis=1)
    tail = 1.0 - np.concatenate([np.zeros((len(below), 1)), below], axis=1)
    return np.maximum(tail, 0.0).astype(np.float32)
