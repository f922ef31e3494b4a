"""Training of the size classifier with scikit-learn: in `advisor retrain` and replays, never in a daemon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from advisor.predict.size._size_state import State
from advisor.predict.size.size_features import replay_features
from advisor.predict.size.size_history import SizeHistory, WeeklyDividers
from advisor.predict.trees.boosting import boosted
from advisor.predict.trees.forest import TreeEnsemble

MIN_JOBS: Final = 100
"""With fewer finished jobs there are no trees, and every job is large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTraining:
    """Parameters of the training. The defaults are the product's; no log has its own.

    Attributes:
        window_jobs: Number of newest jobs trained on: bounds time and memory, and drops obsolete jobs.
        learns_running: Whether a job that still runs is learned as large once it has run for the divider.
        trees: Rounds of boosting: shallow, slow and strongly regularised, because a week's classes are noisy
            and drift.
        learning_rate, leaves, min_leaf_jobs, l2, feature_share: Of boosting: step, leaves per tree, minimum
            of jobs per leaf, penalty, share of the features tried for each split.
        threads: Maximum number of processors.
    """

    window_jobs: int = 30_000
    learns_running: bool = True
    trees: int = 80
    learning_rate: float = 0.06
    leaves: int = 15
    min_leaf_jobs: int = 40
    l2: float = 5.0
    feature_share: float = 0.3
    threads: int = 1
    seed: int = 0

    def trees_on(self, rows: NDArray[np.float32], small: NDArray[np.bool_]) -> TreeEnsemble:
        """Train on rows (n, features) and classes (n,), of which there are both."""
        model = HistGradientBoostingClassifier(
            max_iter=self.trees,
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=self.min_leaf_jobs,
            l2_regularization=self.l2,
            max_features=self.feature_share,
            max_bins=127,
            early_stopping=False,
            random_state=self.seed,
        )
        return boosted(model.fit(rows, small))


ADVISOR: Final = SizeTraining()


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSet:
    """The training jobs of one moment: their rows of the history, and which were small."""

    jobs: NDArray[np.int64]
    small: NDArray[np.bool_]


def training_set(history: SizeHistory, now: float, divider: float, parameters: SizeTraining) -> TrainingSet:
    """Jobs whose class is known at ``now``: those that have ended, or have run for the divider.

    The second kind is large in any case; without it the newest weeks, which matter most, would be biased
    towards small jobs.
    """
    known = history.ran & (history.end < now)
    if parameters.learns_running:
        known |= (history.end >= now) & (now - history.start >= divider)
    jobs = np.flatnonzero(known & (history.submit < now))[-parameters.window_jobs :]
    with np.errstate(invalid="ignore"):
        small = history.run[jobs] < divider  # False for a job that still runs
    small &= history.end[jobs] < now
    return TrainingSet(jobs, small)


def fit(rows: NDArray[np.float32], small: NDArray[np.bool_], parameters: SizeTraining) -> TreeEnsemble | None:
    """Train on rows (n, features) and classes (n,); None where there are too few jobs.

    With one class only, the ensemble is that class.
    """
    if len(rows) < MIN_JOBS:
        return None
    if small.all() or not small.any():
        return constant(float(small[0]), rows.shape[1])
    # scikit-learn 1.9 cannot bin a feature that is always NaN; a constant is never split on
    known = np.where(np.isnan(rows).all(axis=0), np.float32(0.0), rows)
    with threadpool_limits(limits=parameters.threads):
        return parameters.trees_on(known, small)


def constant(probability: float, features: int) -> TreeEnsemble:
    """An ensemble of one leaf: the same answer for every row."""
    return TreeEnsemble(
        roots=np.zeros(1, np.int32),
        feature=np.full(1, -1, np.int32),
        threshold=np.zeros(1),
        children=np.full((1, 3), -1, np.int32),
        value=np.full(1, probability),
        baseline=0.0,
        scale=1.0,
        link="identity",
        features=features,
        single_precision=False,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """Result of a training; ``trees`` is None where there were too few jobs."""

    trees: TreeEnsemble | None
    divider_seconds: float
    state: State


def train(history: SizeHistory, *, now: float) -> Trained:
    """Replay a history up to ``now`` and train on it, like the replay of a log at the start of a week."""
    known = history.until(now)
    dividers = WeeklyDividers.of(known)
    replayed = replay_features(known, dividers)
    divider = float(np.median(known.run[known.ran])) if known.ran.any() else np.nan
    examples = training_set(known, now, divider, ADVISOR)
    trees = fit(replayed.rows[examples.jobs], examples.small, ADVISOR)
    return Trained(trees, divider, replayed.state)
