"""A tree ensemble laid out for one row at a time, as `packed_trees` lays out forests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.predict._addresses import aligned
from advisor.predict.trees.forest import TreeEnsemble
from advisor.predict.trees.packed_trees import lay_out, room_for, rounded_down

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
    places, under_way : int32, shape (trees,)
        Room for where each tree's walk is, and for which are not at a leaf.
    """

    roots: Integers
    nodes: Integers
    thresholds: NDArray[np.float32]
    values: Floats
    places: Integers
    under_way: Integers

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
        nodes = aligned(4 * room_for(int(np.count_nonzero(inner))), np.dtype(np.int32)).reshape(-1, 4)
        roots = np.empty(len(trees.roots), np.int32)
        places = np.cumsum(~inner, dtype=np.int32) - np.int32(1)
        rows = lay_out(
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
            nodes=nodes[:rows],
            thresholds=nodes[:rows].view(np.float32),
            values=trees.value[~inner],
            places=np.empty(len(roots), np.int32),
            under_way=np.empty(len(roots), np.int32),
        )


@compiled
def sum_up(
    row: NDArray[np.float32],
    roots: Integers,
    nodes: Integers,
    thresholds: NDArray[np.float32],
    values: Floats,
    places: Integers,
    under_way: Integers,
) -> float:
    """Add up the leaves a row falls into; NaN is unknown. The trees go down as in `packed_trees.descend`."""
    trees = len(roots)
    moving = 0
    for tree in range(trees):
        places[tree] = roots[tree]
        under_way[moving] = tree
        moving += 1 if roots[tree] >= 0 else 0
    while moving > 0:
        still = 0
        for index in range(moving):
            tree = under_way[index]
            node = places[tree]
            asked = nodes[node, 0]
            number = row[asked >> 1]
            left = (1 if number <= thresholds[node, 1] else 0) | ((1 if np.isnan(number) else 0) & asked)
            child = nodes[node, 3 - left]
            places[tree] = child
            under_way[still] = tree
            still += 1 if child >= 0 else 0
        moving = still
    total = 0.0
    for tree in range(trees):
        total += values[~places[tree]]
    return total
