"""The trees of scikit-learn's boosting as arrays; the tests compare with scikit-learn's predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from advisor.predict.trees.forest import LEAF, TreeEnsemble


def boosted(model: HistGradientBoostingClassifier) -> TreeEnsemble:
    """A fitted model of two classes without categories: it predicts the probability of the second class."""
    rounds = model._predictors  # noqa: SLF001 (there is no public way to the trees)
    return TreeEnsemble(
        **joined([_histogram_tree(trees[0].nodes) for trees in rounds]),
        baseline=float(np.ravel(model._baseline_prediction)[0]),  # noqa: SLF001 (as above)
        scale=1.0,
        link="logistic",
        features=int(model.n_features_in_),
        single_precision=False,
    )


def _histogram_tree(nodes: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """One tree of histogram boosting; nodes are in depth-first order as well."""
    is_leaf = nodes["is_leaf"].astype(bool)
    left = np.where(is_leaf, LEAF, nodes["left"].astype(np.int64))
    right = np.where(is_leaf, LEAF, nodes["right"].astype(np.int64))
    unknown_left = nodes["missing_go_to_left"].astype(bool)
    return {
        "feature": np.where(is_leaf, LEAF, nodes["feature_idx"].astype(np.int64)),
        "threshold": nodes["num_threshold"].astype(np.float64),
        "children": np.column_stack([left, right, np.where(unknown_left, left, right)]),
        "value": nodes["value"].astype(np.float64),
    }


def joined(trees: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """All trees one after the other, with shifted node numbers."""
    sizes = [len(tree["feature"]) for tree in trees]
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    children = [
        np.where(tree["children"] >= 0, tree["children"] + root, LEAF)
        for tree, root in zip(trees, roots, strict=True)
    ]
    return {
        "roots": roots.astype(np.int32),
        "feature": np.concatenate([tree["feature"] for tree in trees]).astype(np.int32),
        "threshold": np.concatenate([tree["threshold"] for tree in trees]),
        "children": np.concatenate(children).astype(np.int32),
        "value": np.concatenate([tree["value"] for tree in trees]),
    }
