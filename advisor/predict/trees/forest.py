"""Tree ensembles as arrays: trained by scikit-learn, walked by a compiled kernel, stored without pickle.

scikit-learn's own prediction needs milliseconds for one row; this one a few microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advisor.compiled import compiled
from advisor.model.errors import BadInput

Link = Literal["identity", "logistic", "exponential"]
LEAF: Final = -1
FORMAT: Final = 1


@compiled
def _walk(
    row: NDArray[np.float32] | NDArray[np.float64],
    roots: NDArray[np.int32],
    feature: NDArray[np.int32],
    threshold: NDArray[np.float64],
    children: NDArray[np.int32],
    value: NDArray[np.float64],
    single_precision: bool,  # noqa: FBT001 (compiled functions take positions only)
) -> float:
    """Sum of the leaves one row falls into."""
    total = 0.0
    for root in roots:
        node = root
        while feature[node] >= 0:
            x = row[feature[node]]
            if np.isnan(x):
                node = children[node, 2]
            else:
                if single_precision:
                    x = np.float64(np.float32(x))
                node = children[node, 0] if x <= threshold[node] else children[node, 1]
        total += value[node]
    return total


@compiled
def _walk_many(
    rows: NDArray[np.float64],
    roots: NDArray[np.int32],
    feature: NDArray[np.int32],
    threshold: NDArray[np.float64],
    children: NDArray[np.int32],
    value: NDArray[np.float64],
    single_precision: bool,  # noqa: FBT001 (as above)
) -> NDArray[np.float64]:
    sums = np.empty(len(rows))
    for i in range(len(rows)):
        sums[i] = _walk(rows[i], roots, feature, threshold, children, value, single_precision)
    return sums


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeEnsemble:
    """Decision trees whose leaves are added up: ``link(baseline + scale * sum of leaves)``.

    A forest's mean of votes has ``scale = 1 / trees``; boosting has 1 and its initial prediction as baseline.

    Attributes
    ----------
    roots : int32, shape (trees,)
        Node of each tree's root.
    feature : int32, shape (nodes,)
        Column a node asks; ``LEAF`` in a leaf.
    threshold : float64, shape (nodes,)
        ``x <= threshold`` goes to the first child.
    children : int32, shape (nodes, 3)
        Nodes for: at or below the threshold, above it, value unknown (NaN).
    value : float64, shape (nodes,)
        What a leaf adds.
    baseline, scale : float
        See above.
    link : {"identity", "logistic", "exponential"}
        From the sum to the prediction.
    features : int
        Columns a row must have.
    single_precision : bool
        Values are rounded to 32 bits before they are compared (scikit-learn's forests do so).
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    children: NDArray[np.int32]
    value: NDArray[np.float64]
    baseline: float
    scale: float
    link: Link
    features: int
    single_precision: bool

    @property
    def trees(self) -> int:
        """How many trees."""
        return len(self.roots)

    @classmethod
    def from_sklearn(cls, model: Any) -> Self:
        """Flatten a fitted scikit-learn model.

        Parameters
        ----------
        model : fitted estimator
            ``RandomForest*``, ``ExtraTrees*``, ``HistGradientBoosting*`` or ``GradientBoosting*``; classifier
            of two classes (the prediction is the probability of the second) or regressor of one value.

        Raises
        ------
        TypeError
            Another model, more than two classes, or splits on categories.
        """
        from advisor.predict.trees._sklearn_trees import flatten  # noqa: PLC0415 (scikit-learn: training only)

        return cls(**flatten(model))

    def predict_one(self, row: NDArray[np.float32] | NDArray[np.float64]) -> float:
        """Prediction for one row of shape (features,); NaN is unknown.

        The row is trusted to be of that shape: this is the submit path.
        """
        total = _walk(
            row, self.roots, self.feature, self.threshold, self.children, self.value, self.single_precision
        )
        raw = self.baseline + self.scale * total
        if self.link == "identity":
            return raw
        return _logistic(raw) if self.link == "logistic" else math.exp(raw)

    def predict(self, rows: ArrayLike) -> NDArray[np.float64]:
        """Predictions for many rows, shape (n, features).

        Raises
        ------
        ValueError
            Rows of another width.
        """
        table = np.ascontiguousarray(rows, dtype=np.float64)
        if table.ndim != 2 or table.shape[1] != self.features:
            msg = f"rows of shape {table.shape}, not (n, {self.features})"
            raise ValueError(msg)
        raw = self.baseline + self.scale * _walk_many(
            table, self.roots, self.feature, self.threshold, self.children, self.value, self.single_precision
        )
        if self.link == "identity":
            return raw
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + np.exp(-raw)) if self.link == "logistic" else np.exp(raw)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for the model store."""
        return {
            "format": np.array([FORMAT], np.int64),
            "roots": self.roots,
            "feature": self.feature,
            "threshold": self.threshold,
            "children": self.children,
            "value": self.value,
            "numbers": np.array([self.baseline, self.scale]),
            "shape": np.array(
                [self.features, get_args(Link).index(self.link), int(self.single_precision)], np.int64
            ),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild what :meth:`to_arrays` gave, and check that no walk can leave the arrays or go in a circle.

        Raises
        ------
        BadInput
            Incomplete, damaged or of another format.
        """
        try:
            features, link, single_precision = (int(number) for number in arrays["shape"])
            baseline, scale = (float(number) for number in arrays["numbers"])
            ensemble = cls(
                roots=np.ascontiguousarray(arrays["roots"], np.int32),
                feature=np.ascontiguousarray(arrays["feature"], np.int32),
                threshold=np.ascontiguousarray(arrays["threshold"], np.float64),
                children=np.ascontiguousarray(arrays["children"], np.int32),
                value=np.ascontiguousarray(arrays["value"], np.float64),
                baseline=baseline,
                scale=scale,
                link=get_args(Link)[link],
                features=features,
                single_precision=bool(single_precision),
            )
            ensemble._check(int(arrays["format"][0]))
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise BadInput(
                f"damaged trees: {error!r}",
                where="tree ensemble",
                mend="Run `advisor retrain`.",
                code="forest.arrays",
            ) from None
        return ensemble

    def _check(self, form: int) -> None:
        nodes = len(self.feature)
        inner = np.flatnonzero(self.feature >= 0)
        children = self.children[inner] if self.children.shape == (nodes, 3) else np.empty((0, 3))
        sound = (
            form == FORMAT
            and self.children.shape == (nodes, 3)
            and self.threshold.shape == self.value.shape == (nodes,)
            and bool(np.all((self.roots >= 0) & (self.roots < nodes)))
            and bool(np.all((self.feature >= LEAF) & (self.feature < self.features)))
            # children come after their parents: every walk ends
            and bool(np.all((children > inner[:, None]) & (children < nodes)))
        )
        if not sound:
            msg = "not trees of this format"
            raise ValueError(msg)


def _logistic(raw: float) -> float:
    """1 / (1 + exp(-raw)), without overflow."""
    return 1.0 / (1.0 + math.exp(-raw)) if raw > -700.0 else 0.0
