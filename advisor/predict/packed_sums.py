"""A tree ensemble laid out for one row at a time, as :mod:`advisor.predict.packed_trees` lays out forests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from advisor.predict._compile import compiled
from advisor.predict.forest import TreeEnsemble
from advisor.predict.packed_trees import lay_out, rounded_down

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedSums:
    """Trees whose leaves are added up, for rows of single precision.

    Attributes
    ----------
    roots : int32, shape (trees,)
        First node of each tree; below 0: the tree is one leaf, the complement (``~``) of its place in
        `values`.
    nodes : int32, shape (nodes, 4)
        Twice the feature, one more where unknown values go left; the threshold's bits; left and right child,
        below 0 as in `roots`.
    thresholds : float32, shape (nodes, 4)
        The same memory; column 1 is the threshold rounded down, with which a number of single precision
        compares as with the exact one.
    values : float64, shape (leaves,)
        What each leaf adds.
    places : int32, shape (trees,)
        Room for where each tree's walk is.
    """

    roots: Integers
    nodes: Integers
    thresholds: NDArray[np.float32]
    values: Floats
    places: Integers

    @classmethod
    def of(cls, trees: TreeEnsemble) -> Self:
        """Lay an ensemble out.

        Raises
        ------
        ValueError
            Somewhere an unknown value goes neither left nor right.
        """
        inner = trees.feature >= 0
        unknown_left = trees.children[:, 2] == trees.children[:, 0]
        if not np.all(unknown_left | (trees.children[:, 2] == trees.children[:, 1]) | ~inner):
            msg = "unknown values that go neither left nor right"
            raise ValueError(msg)
        nodes = np.empty((int(np.count_nonzero(inner)), 4), np.int32)
        roots = np.empty(len(trees.roots), np.int32)
        places = np.cumsum(~inner, dtype=np.int32) - np.int32(1)
        lay_out(
            trees.roots,
            np.where(inner, 2 * trees.feature + unknown_left, trees.feature).astype(np.int32),
            rounded_down(trees.threshold).view(np.int32),
            trees.children,
            places,
            0,
            nodes,
            roots,
        )
        return cls(
            roots=roots,
            nodes=nodes,
            thresholds=nodes.view(np.float32),
            values=trees.value[~inner],
            places=np.empty(len(roots), np.int32),
        )


@compiled
def sum_up(
    row: NDArray[np.float32],
    roots: Integers,
    nodes: Integers,
    thresholds: NDArray[np.float32],
    values: Floats,
    places: Integers,
) -> float:
    """Add up the leaves a row falls into; NaN is unknown. The trees go down together, a level at a time."""
    trees = len(roots)
    places[:] = roots
    moving = True
    while moving:
        moving = False
        for tree in range(trees):
            node = places[tree]
            if node >= 0:
                moving = True
                asked = nodes[node, 0]
                number = row[asked >> 1]
                left = number <= thresholds[node, 1] or (np.isnan(number) and asked & 1 == 1)
                places[tree] = nodes[node, 2] if left else nodes[node, 3]
    total = 0.0
    for tree in range(trees):
        total += values[~places[tree]]
    return total
