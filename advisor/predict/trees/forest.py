"""Tree ensembles as arrays: trained by scikit-learn, evaluated by a compiled function, stored without pickle.

The size model has one, which `advisor serve` asks at each submission.

scikit-learn's own prediction takes milliseconds for one row; this takes microseconds.
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

Link = Literal["identity", "logistic"]
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
    """Sum of the leaves of one row."""
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
    """Decision trees whose leaves are added: ``link(baseline + scale * sum of leaves)``.

    A forest's mean has ``scale = 1 / trees``; boosting has 1, and its initial prediction as baseline.

    Attributes:
        roots: int32, shape (trees,): Root node of each tree.
        feature: int32, shape (nodes,): Column that a node compares; ``LEAF`` in a leaf.
        threshold: float64, shape (nodes,): ``x <= threshold`` goes to the first child.
        children: int32, shape (nodes, 3): Next nodes: at or below the threshold, above it, value unknown
            (NaN).
        value: float64, shape (nodes,): Value of a leaf.
        link: {"identity", "logistic"}: From the sum to the prediction.
        single_precision: Values are rounded to 32 bits before they are compared, as in scikit-learn's
            forests.
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
        """Number of trees."""
        return len(self.roots)

    def predict_one(self, row: NDArray[np.float32] | NDArray[np.float64]) -> float:
        """Prediction for one row of shape (features,), NaN where unknown; the shape is not checked."""
        total = _walk(
            row, self.roots, self.feature, self.threshold, self.children, self.value, self.single_precision
        )
        raw = self.baseline + self.scale * total
        return raw if self.link == "identity" else _logistic(raw)

    def predict(self, rows: ArrayLike) -> NDArray[np.float64]:
        """Predictions for rows of shape (n, features); raises ValueError for another width."""
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
            return 1.0 / (1.0 + np.exp(-raw))

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
        """Rebuild the trees from :meth:`to_arrays`, checked so that no walk leaves the arrays or loops.

        Raises BadInput for incomplete or damaged arrays and for other formats.
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
                mend="Run `advisor retrain`",
                code="forest.arrays",
            ) from None
        return ensemble

    def _check(self, form: int) -> None:
        nodes = len(self.feature)
        inner = np.flatnonzero(self.feature >= 0)
        children = self.children[inner] if self.children.shape == (nodes, 3) else np.empty((0, 3))
        is_consistent = (
            form == FORMAT
            and self.children.shape == (nodes, 3)
            and self.threshold.shape == self.value.shape == (nodes,)
            and bool(np.all((self.roots >= 0) & (self.roots < nodes)))
            and bool(np.all((self.feature >= LEAF) & (self.feature < self.features)))
            # children come after their parents: every walk ends
            and bool(np.all((children > inner[:, None]) & (children < nodes)))
        )
        if not is_consistent:
            msg = "the arrays do not fit together"
            raise ValueError(msg)


def _logistic(raw: float) -> float:
    """1 / (1 + exp(-raw)), without overflow."""
    return 1.0 / (1.0 + math.exp(-raw)) if raw > -700.0 else 0.0
