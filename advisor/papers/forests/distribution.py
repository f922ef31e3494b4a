"""Random forests that predict the whole distribution of a time.

Each leaf keeps the mean and a histogram of its training times; a prediction averages them over the trees
(Meinshausen, "Quantile regression forests", JMLR 2006, with binned times). Trees are grown on log(1 + time),
so that splits are judged by factors and not by the few longest jobs. Means are of the times themselves,
because a wrong placement costs seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.compiled import compiled

Integers = NDArray[np.int32]

BINS: Final = 40
EDGES: Final[Floats] = np.concatenate([[0.0, 1.0], np.geomspace(10.0, 3e6, BINS - 1)])
"""Edges of the bins, seconds; the last bin ends at 35 days and contains longer times."""
LEVELS: Final[Floats] = (np.arange(20) + 0.5) / 20
"""Levels of a forecast's quantiles: twenty equally likely values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestSettings:
    """Parameters of a forest.

    Attributes:
        trees: More trees are slower and vary less.
        leaf_jobs: Minimum of training jobs in a leaf.
        feature_share, job_share: Share of features tried at a split, and of jobs that each tree is grown on.
        most_jobs: Number of newest jobs trained on (named so in the JSON of replays).
    """

    trees: int = 15
    leaf_jobs: int = 5
    feature_share: float = 1 / 3
    job_share: float = 0.6
    most_jobs: int = 15_000
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distributions:
    """Predictions for n jobs.

    Attributes:
        mean: float64, shape (n,): Seconds.
        mass: float64, shape (n, bins): Probability of each bin of `EDGES`; rows sum to 1.
    """

    mean: Floats
    mass: Floats

    def quantiles(self, levels: Floats = LEVELS) -> Floats:
        """Quantiles in seconds, shape (n, levels), ascending."""
        mass = np.ascontiguousarray(self.mass)
        result = np.empty((len(self.mean), len(levels)))
        for row in range(len(result)):
            fill_quantiles(mass[row], levels, EDGES, result[row])
        return result


@compiled
def fill_quantiles(mass: Floats, levels: Floats, edges: Floats, out: Floats) -> None:
    """Write the quantiles of a histogram at ``levels`` (ascending) into ``out``, seconds.

    Args:
        mass: float64, shape (bins,): Probability of each bin; NaN gives NaN.
        levels, out: float64, shape (n,): Probabilities and their quantiles.
        edges: float64, shape (bins + 1,): Edges of the bins, seconds.
    """
    if math.isnan(mass[0]):
        out[:] = np.nan
        return
    within, before = 0, 0.0
    below = mass[0]
    for index in range(len(levels)):
        level = levels[index]
        while below < level - 1e-12 and within < len(mass) - 1:
            within += 1
            before = below
            below += mass[within]
        share = min(1.0, max(0.0, (level - before) / max(mass[within], 1e-12)))
        out[index] = edges[within] + share * (edges[within + 1] - edges[within])


@compiled
def walk(  # noqa: PLR0917 (compiled functions take positions only)
    rows: Floats,
    roots: Integers,
    feature: Integers,
    threshold: Floats,
    children: Integers,
    leaf: Integers,
    leaf_mean: Floats,
    leaf_mass: NDArray[np.float32],
    mean: Floats,
    mass: Floats,
) -> None:
    """Average each row's leaves over the trees."""
    trees = len(roots)
    for i in range(len(rows)):
        mean[i] = 0.0
        mass[i, :] = 0.0
        for root in roots:
            node = root
            while feature[node] >= 0:
                # scikit-learn compares in single precision
                x = np.float64(np.float32(rows[i, feature[node]]))
                node = children[node, 0] if x <= threshold[node] else children[node, 1]
            found = leaf[node]
            mean[i] += leaf_mean[found] / trees
            for b in range(leaf_mass.shape[1]):
                mass[i, b] += leaf_mass[found, b] / trees


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DistributionForest:
    """A trained forest as arrays.

    Attributes:
        roots, feature, threshold, children: As in :class:`advisor.predict.trees.forest.TreeEnsemble`.
        leaf: int32, shape (nodes,): Row of a leaf in the two tables below; 0 for inner nodes.
        leaf_mean: float64, shape (leaves,): Mean training time, seconds.
        leaf_mass: float32, shape (leaves, bins): Share of the training times in each bin.
    """

    roots: Integers
    feature: Integers
    threshold: Floats
    children: Integers
    leaf: Integers
    leaf_mean: Floats
    leaf_mass: NDArray[np.float32]

    @classmethod
    def train(cls, features: Floats, seconds: Floats, settings: ForestSettings | None = None) -> Self:
        """Grow a forest on jobs in the order in which they became known.

        ``features`` have shape (jobs, features), without NaN; ``seconds`` shape (jobs,), at least 0. Raises
        ValueError without jobs.
        """
        from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 (training only)

        from advisor.papers.forests.sklearn_forest import grown  # noqa: PLC0415 (as above)

        chosen = settings or ForestSettings()
        x, y = features[-chosen.most_jobs :], seconds[-chosen.most_jobs :]
        if len(y) == 0:
            msg = "there are no jobs to learn from"
            raise ValueError(msg)
        model = RandomForestRegressor(
            chosen.trees,
            min_samples_leaf=chosen.leaf_jobs,
            max_features=chosen.feature_share,
            max_samples=chosen.job_share if len(y) > 1 else None,
            n_jobs=1,
            random_state=chosen.seed,
        ).fit(x, np.log1p(y))
        flat = grown(model)
        nodes = model.apply(x) + flat.roots
        leaf, means, masses = _leaf_tables(nodes, y, len(flat.feature))
        return cls(
            roots=flat.roots,
            feature=flat.feature,
            threshold=flat.threshold,
            children=np.ascontiguousarray(flat.children[:, :2]),
            leaf=leaf,
            leaf_mean=means,
            leaf_mass=masses,
        )

    def predict(self, rows: Floats) -> Distributions:
        """Predict jobs; rows of shape (n, features) without NaN."""
        table = np.ascontiguousarray(rows, dtype=np.float64)
        mean, mass = np.empty(len(table)), np.empty((len(table), BINS))
        walk(
            table,
            self.roots,
            self.feature,
            self.threshold,
            self.children,
            self.leaf,
            self.leaf_mean,
            self.leaf_mass,
            mean,
            mass,
        )
        return Distributions(mean=mean, mass=mass)


def _leaf_tables(
    nodes: NDArray[np.int64], seconds: Floats, count: int
) -> tuple[Integers, Floats, NDArray[np.float32]]:
    """Node to leaf, and mean (seconds) and histogram of every leaf with a training job.

    ``nodes`` are the leaf of each job in each tree, as node numbers, shape (jobs, trees); ``seconds`` have
    shape (jobs,); ``count`` is the number of nodes of all trees.
    """
    bins = np.clip(np.searchsorted(EDGES, seconds, side="right") - 1, 0, BINS - 1)
    used, index = np.unique(nodes, return_inverse=True)
    index = index.reshape(nodes.shape)
    jobs = np.bincount(index.ravel(), minlength=len(used)).astype(np.float64)
    totals, mass = np.zeros(len(used)), np.zeros((len(used), BINS), np.float32)
    for tree in range(nodes.shape[1]):
        np.add.at(totals, index[:, tree], seconds)
        np.add.at(mass, (index[:, tree], bins), 1.0)
    leaf = np.zeros(count, np.int32)
    leaf[used] = np.arange(len(used), dtype=np.int32)
    return leaf, totals / jobs, (mass / jobs[:, None]).astype(np.float32)
