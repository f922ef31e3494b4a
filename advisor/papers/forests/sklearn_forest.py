"""The trees of scikit-learn's random forests as arrays; the tests compare with scikit-learn's predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from advisor.predict.trees.boosting import joined
from advisor.predict.trees.forest import LEAF, TreeEnsemble


def grown(model: RandomForestClassifier | RandomForestRegressor) -> TreeEnsemble:
    """A fitted forest of one value, or of two classes: then it predicts the probability of the second one."""
    classifies = isinstance(model, RandomForestClassifier)
    trees = [_plain_tree(estimator.tree_, classifies=classifies) for estimator in model.estimators_]
    return TreeEnsemble(
        **joined(trees),
        baseline=0.0,
        scale=1.0 / len(trees),
        link="identity",
        features=int(model.n_features_in_),
        single_precision=True,
    )


def _plain_tree(tree: Any, *, classifies: bool) -> dict[str, NDArray[Any]]:
    """One tree of ``sklearn.tree``; nodes are in depth-first order, children after their parent."""
    is_leaf = tree.children_left < 0
    left = np.where(is_leaf, LEAF, tree.children_left)
    right = np.where(is_leaf, LEAF, tree.children_right)
    votes = tree.value[:, 0, :]
    value = votes[:, 1] / votes.sum(axis=1) if classifies else votes[:, 0]
    unknown_left = tree.missing_go_to_left.astype(bool)
    return {
        "feature": np.where(is_leaf, LEAF, tree.feature),
        "threshold": tree.threshold,
        "children": np.column_stack([left, right, np.where(unknown_left, left, right)]),
        "value": value,
    }
