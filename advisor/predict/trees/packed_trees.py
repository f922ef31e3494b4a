"""Two forests laid out for one row at a time, in few cache lines: inside sbatch every one of them is cold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.predict._addresses import aligned
from advisor.predict.forecast.distribution import DistributionForest

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Bytes = NDArray[np.uint8]

NODES_A_LINE: Final = 4
"""Nodes in a line of the processor's cache."""
_LINE: Final = 16
"""Numbers of four bytes in one."""
_HEAD: Final = 2
"""Numbers of four bytes before how many bins a leaf has: its mean."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedTrees:
    """All trees of the waits, then all of the run times.

    A node is 16 bytes, and in its cache line are those below it that most walks come to: a walk of nine nodes
    meets four lines. A leaf has no node: who leads to it says where its numbers are, most often in one line;
    of its histogram only the bins with jobs are kept.

    Attributes
    ----------
    roots : int32, shape (trees,)
        First node of each tree; below 0: the tree is one leaf.
    of_waits : int
        How many trees are the first forest's.
    nodes : int32, shape (nodes, 4)
        Feature, the threshold's bits, left and right child; a child below 0 is a leaf: its first number's
        complement (``~``).
    thresholds : float32, shape (nodes, 4)
        The same memory; column 1 is the threshold, rounded down to single precision: as the features are
        single too, they compare with it as with the exact one.
    leaves : uint8, shape (4 * numbers,)
        Of each leaf its mean's eight bytes, how many bins, their numbers, room up to a multiple of four,
        their probabilities of four bytes each. Where a leaf is, is told in numbers of four bytes.
    masses, means : float32, shape (numbers,), and float64, shape (numbers / 2,)
        The same memory.
    places, under_way : int32, shape (trees,)
        Room for where each tree's walk is, and for which are not at a leaf.
    """

    roots: Integers
    of_waits: int
    nodes: Integers
    thresholds: NDArray[np.float32]
    leaves: Bytes
    masses: NDArray[np.float32]
    means: Floats
    places: Integers
    under_way: Integers

    @classmethod
    def of(cls, waits: DistributionForest, runs: DistributionForest) -> Self:
        """Lay two forests out."""
        masses = np.concatenate([waits.leaf_mass, runs.leaf_mass])
        begins, numbers = leaf_places((masses > 0).sum(axis=1))
        leaves = aligned(numbers, np.dtype(np.float32))
        write_leaves(
            np.concatenate([waits.leaf_mean, runs.leaf_mean]),
            masses,
            begins,
            leaves.view(np.uint8),
            leaves,
            leaves.view(np.float64),
        )
        inner = np.count_nonzero(waits.feature >= 0) + np.count_nonzero(runs.feature >= 0)
        nodes = aligned(4 * room_for(int(inner)), np.dtype(np.int32)).reshape(-1, 4)
        roots = np.empty(len(waits.roots) + len(runs.roots), np.int32)
        row = 0
        for forest, part, leaf in (
            (waits, roots[: len(waits.roots)], begins[: len(waits.leaf_mean)]),
            (runs, roots[len(waits.roots) :], begins[len(waits.leaf_mean) :]),
        ):
            thresholds = rounded_down(forest.threshold).view(np.int32)
            row = lay_out(
                forest.roots, forest.feature, thresholds, forest.children, leaf[forest.leaf], row, nodes, part
            )
        return cls(
            roots=roots,
            of_waits=len(waits.roots),
            nodes=nodes[:row],
            thresholds=nodes[:row].view(np.float32),
            leaves=leaves.view(np.uint8),
            masses=leaves,
            means=leaves.view(np.float64),
            places=np.empty(len(roots), np.int32),
            under_way=np.empty(len(roots), np.int32),
        )


def rounded_down(threshold: Floats) -> NDArray[np.float32]:
    """Thresholds with which numbers of single precision compare as with the exact ones."""
    single = threshold.astype(np.float32)
    return np.where(single > threshold, np.nextafter(single, np.float32(-np.inf)), single)


@compiled
def leaf_places(bins: NDArray[np.int64]) -> tuple[Integers, int]:
    """Where the leaves with so many bins begin, and how long they are together, in numbers of four bytes.

    None lies in more cache lines than it must.
    """
    begins = np.empty(len(bins), np.int32)
    at = 0
    for leaf in range(len(bins)):
        length = _HEAD + bins[leaf] // 4 + 1 + bins[leaf]
        over = at % _LINE
        if over > 0 and (over + length - 1) // _LINE > (length - 1) // _LINE:
            at += _LINE - over
        begins[leaf] = at
        at += length + length % 2  # means are of eight bytes
    return begins, at


@compiled
def write_leaves(
    means: Floats,
    mass: NDArray[np.float32],
    begins: Integers,
    leaves: Bytes,
    leaf_masses: NDArray[np.float32],
    leaf_means: Floats,
) -> None:
    """Write the leaves' numbers where they begin; see :class:`PackedTrees`."""
    for leaf in range(len(begins)):
        begin = begins[leaf]
        leaf_means[begin // 2] = means[leaf]
        count, byte = 0, 4 * (begin + _HEAD)
        for bin_ in range(mass.shape[1]):
            if mass[leaf, bin_] > 0:
                count += 1
                leaves[byte + count] = bin_
        leaves[byte] = count
        first = begin + _HEAD + count // 4 + 1
        for index in range(count):
            leaf_masses[first + index] = mass[leaf, leaves[byte + 1 + index]]


def room_for(inner: int) -> int:
    """Rows that :func:`lay_out` may need: what it leaves empty before some nodes is less than they take."""
    return 2 * inner


@compiled
def lay_out(
    roots: Integers,
    feature: Integers,
    threshold_bits: Integers,
    children: Integers,
    leaf: Integers,
    first: int,
    nodes: Integers,
    new_roots: Integers,
) -> int:
    """Write a forest's inner nodes from row `first` of `nodes` on; returns the row behind them.

    A cache line is filled with a node and those below it that most walks come to, judged by the leaves below
    them: they hold about as many jobs each. ``leaf`` says of each node where the numbers of its leaf are,
    should it be one.
    """
    below = np.ones(len(feature), np.int64)
    for node in range(len(feature) - 1, -1, -1):  # children come after their parents
        if feature[node] >= 0:
            below[node] = below[children[node, 0]] + below[children[node, 1]]
    stack = np.empty((len(feature) + 1, 3), np.int64)  # a node, and which field of which row leads to it
    near = np.empty((NODES_A_LINE + 1, 3), np.int64)  # the same: those that may come into the line
    row = first
    for tree in range(len(roots)):
        root = roots[tree]
        if feature[root] < 0:
            new_roots[tree] = ~leaf[root]
            continue
        new_roots[tree] = _beginning(row, below[root] - 1)
        stack[0, 0], stack[0, 1], stack[0, 2] = root, -1, 0
        depth = 1
        while depth > 0:
            depth -= 1
            near[0] = stack[depth]
            inner = below[near[0, 0]] - 1
            row = _beginning(row, inner)
            size = min(NODES_A_LINE, inner)
            many = _fill(near, size, row, feature, threshold_bits, children, leaf, below, nodes)
            row += size
            while many > 0:  # the likeliest is put on the stack last and comes next
                least = _likeliest(near, many, below, -1)
                many -= 1
                stack[depth] = near[least]
                near[least] = near[many]
                depth += 1
    return row


@compiled
def _beginning(row: int, inner: int) -> int:
    """Row from which so many nodes, or as many as a line holds, are in one line."""
    over = row % NODES_A_LINE
    return row + NODES_A_LINE - over if over + min(NODES_A_LINE, inner) > NODES_A_LINE else row


@compiled
def _fill(  # noqa: PLR0917 (compiled functions take positions only)
    near: NDArray[np.int64],
    size: int,
    row: int,
    feature: Integers,
    threshold_bits: Integers,
    children: Integers,
    leaf: Integers,
    below: NDArray[np.int64],
    nodes: Integers,
) -> int:
    """Write the likeliest nodes from the first of `near` on; returns how many are left in there."""
    many = 1
    for place in range(row, row + size):
        likeliest = _likeliest(near, many, below, 1)
        node, parent, field = near[likeliest, 0], near[likeliest, 1], near[likeliest, 2]
        many -= 1
        near[likeliest] = near[many]
        if parent >= 0:
            nodes[parent, field] = place
        nodes[place, 0], nodes[place, 1] = feature[node], threshold_bits[node]
        for side in range(2):
            child = children[node, side]
            if feature[child] < 0:
                nodes[place, 2 + side] = ~leaf[child]
            else:
                near[many, 0], near[many, 1], near[many, 2] = child, place, 2 + side
                many += 1
    return many


@compiled
def _likeliest(near: NDArray[np.int64], many: int, below: NDArray[np.int64], sign: int) -> int:
    """Which of the first `many` has most leaves below it; with ``sign`` -1, fewest."""
    best = 0
    for index in range(1, many):
        if sign * (below[near[index, 0]] - below[near[best, 0]]) > 0:
            best = index
    return best


@compiled
def descend(
    row: NDArray[np.float32],
    roots: Integers,
    nodes: Integers,
    thresholds: NDArray[np.float32],
    places: Integers,
    under_way: Integers,
) -> None:
    """Find the leaf of every tree that a row falls into: ``places`` is filled with their complements.

    All trees go down one level at a time: their loads from memory do not wait for each other. ``places``
    holds the nodes, ``under_way`` the trees not at a leaf yet; no branch depends on the row.
    """
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
            left = 1 if row[nodes[node, 0]] <= thresholds[node, 1] else 0
            child = nodes[node, 3 - left]
            places[tree] = child
            under_way[still] = tree
            still += 1 if child >= 0 else 0
        moving = still


@compiled
def average(
    places: Integers, leaves: Bytes, masses: NDArray[np.float32], means: Floats, mass: Floats
) -> float:
    """Average the leaves found: ``mass`` is filled with the probability of each bin, the mean returned."""
    trees = len(places)
    mean = 0.0
    for tree in range(trees):  # by itself: all leaves are on their way from memory at once
        mean += means[~places[tree] // 2] / trees
    mass[:] = 0.0
    for tree in range(trees):
        begin = ~places[tree] + _HEAD
        byte = 4 * begin
        bins = leaves[byte]
        first = begin + bins // 4 + 1
        for index in range(bins):
            mass[leaves[byte + 1 + index]] += masses[first + index] / trees
    return mean
