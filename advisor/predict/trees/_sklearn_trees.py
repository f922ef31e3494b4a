"""Reads the trees out of fitted scikit-learn models (checked by test against scikit-learn's predictions)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

LEAF = -1
_LINKS = {"IdentityLink": "identity", "LogitLink": "logistic", "LogLink": "exponential"}
_FORESTS = (RandomForestClassifier, ExtraTreesClassifier, RandomForestRegressor, ExtraTreesRegressor)
_CLASSIFIERS = (
    RandomForestClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
)


def flatten(model: Any) -> dict[str, Any]:
    """Fields of a :class:`advisor.predict.trees.forest.TreeEnsemble` equal to a fitted model."""
    if isinstance(model, _CLASSIFIERS) and len(model.classes_) != 2:
        msg = f"{len(model.classes_)} classes, not 2"
        raise TypeError(msg)
    if isinstance(model, _FORESTS):
        return _forest(model)
    if isinstance(model, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
        return _histogram_boosting(model)
    if isinstance(model, GradientBoostingClassifier | GradientBoostingRegressor):
        return _boosting(model)
    msg = f"{type(model).__name__}: not a tree ensemble this package knows"
    raise TypeError(msg)


def _forest(model: Any) -> dict[str, Any]:
    if model.n_outputs_ != 1:
        msg = f"{model.n_outputs_} outputs, not 1"
        raise TypeError(msg)
    classifies = isinstance(model, _CLASSIFIERS)
    trees = [_plain_tree(one.tree_, classifies=classifies) for one in model.estimators_]
    return _joined(trees) | {
        "baseline": 0.0,
        "scale": 1.0 / len(trees),
        "link": "identity",
        "features": int(model.n_features_in_),
        "single_precision": True,
    }


def _boosting(model: Any) -> dict[str, Any]:
    first = np.zeros((1, model.n_features_in_))
    start = model._raw_predict_init(first.astype(np.float32))  # noqa: SLF001 (no public way to the baseline)
    trees = [_plain_tree(one.tree_, classifies=False) for one in model.estimators_.ravel()]
    return _joined(trees) | {
        "baseline": float(start[0, 0]),
        "scale": float(model.learning_rate),
        "link": "logistic" if isinstance(model, GradientBoostingClassifier) else "identity",
        "features": int(model.n_features_in_),
        "single_precision": True,
    }


def _plain_tree(tree: Any, *, classifies: bool) -> dict[str, NDArray[Any]]:
    """One tree of ``sklearn.tree``; its nodes are in depth-first order, children after their parent."""
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
    rounds = model._predictors  # noqa: SLF001 (no public way to the trees)
    if any(len(one) != 1 for one in rounds):
        msg = "more than one tree a round: not a model of one value"
        raise TypeError(msg)
    if model.is_categorical_ is not None:
        msg = "splits on categories are not known here: encode them as numbers"
        raise TypeError(msg)
    link = type(model._loss.link).__name__  # noqa: SLF001 (as above)
    if link not in _LINKS:
        msg = f"{link}: not a link this package knows"
        raise TypeError(msg)
    return _joined([_histogram_tree(one[0].nodes) for one in rounds]) | {
        "baseline": float(np.ravel(model._baseline_prediction)[0]),  # noqa: SLF001 (as above)
        "scale": 1.0,
        "link": _LINKS[link],
        "features": int(model.n_features_in_),
        "single_precision": False,
    }


def _histogram_tree(nodes: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """One tree of histogram boosting; its nodes are in depth-first order too."""
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
    """All trees one after another, node numbers moved along."""
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
