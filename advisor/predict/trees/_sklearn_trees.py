"""Arrays of the trees of fitted scikit-learn models; the tests compare with scikit-learn's predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor

LEAF = -1


def flatten(model: Any) -> dict[str, Any]:
    """Fields of a :class:`advisor.predict.trees.forest.TreeEnsemble` equal to a fitted model."""
    is_boosting = isinstance(model, HistGradientBoostingClassifier)
    classifies = is_boosting or isinstance(model, RandomForestClassifier)
    if not classifies and not isinstance(model, RandomForestRegressor):
        msg = f"{type(model).__name__} is not a supported tree ensemble"
        raise TypeError(msg)
    if classifies and len(model.classes_) != 2:
        msg = f"the model has {len(model.classes_)} classes, not 2"
        raise TypeError(msg)
    return _histogram_boosting(model) if is_boosting else _forest(model, classifies=classifies)


def _forest(model: Any, *, classifies: bool) -> dict[str, Any]:
    if model.n_outputs_ != 1:
        msg = f"the model has {model.n_outputs_} outputs, not 1"
        raise TypeError(msg)
    trees = [_plain_tree(estimator.tree_, classifies=classifies) for estimator in model.estimators_]
    return _joined(trees) | {
        "baseline": 0.0,
        "scale": 1.0 / len(trees),
        "link": "identity",
        "features": int(model.n_features_in_),
        "single_precision": True,
    }


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


def _histogram_boosting(model: Any) -> dict[str, Any]:
    if model.is_categorical_ is not None:
        msg = "splits on categories are not supported: encode them as numbers"
        raise TypeError(msg)
    rounds = model._predictors  # noqa: SLF001 (there is no public way to the trees)
    return _joined([_histogram_tree(trees[0].nodes) for trees in rounds]) | {
        "baseline": float(np.ravel(model._baseline_prediction)[0]),  # noqa: SLF001 (as above)
        "scale": 1.0,
        "link": "logistic",
        "features": int(model.n_features_in_),
        "single_precision": False,
    }


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


def _joined(trees: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
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
