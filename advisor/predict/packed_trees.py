"""Two forests laid out for one row at a time, in few cache lines: inside sbatch every one of them is cold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from advisor.predict._compile import compiled
from advisor.predict.distribution import DistributionForest

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]

_HEAD: Final = 4
"""Numbers before a leaf's bins: its mean (two), how many bins, and one that keeps the means aligned."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedTrees:
    """All trees of the waits, then all of the run times.

    A node is 16 bytes and is followed by its likelier child, most often in the same cache line. A leaf has no
    node: who leads to it says where its numbers are, and of its histogram only the bins with jobs are kept.

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
    leaves : int32, shape (numbers,)
        Of each leaf its mean's bits, how many bins follow, one unused; of each bin its number and its
        probability's bits.
    masses, means : float32, shape (numbers,), and float64, shape (numbers / 2,)
        The same memory.
    places : int32, shape (trees,)
        Room for where each tree's walk is.
    """

    roots: Integers
    of_waits: int
    nodes: Integers
    thresholds: NDArray[np.float32]
    leaves: Integers
    masses: NDArray[np.float32]
    means: Floats
    places: Integers

    @classmethod
    def of(cls, waits: DistributionForest, runs: DistributionForest) -> Self:
        """Lay two forests out."""
        forests = (waits, runs)
        leaves = [_leaves_of(forest) for forest in forests]
        first_leaf = (0, len(leaves[0][0]))
        inner = [int(np.count_nonzero(forest.feature >= 0)) for forest in forests]
        nodes = np.empty((sum(inner), 4), np.int32)
        roots = np.empty(len(waits.roots) + len(runs.roots), np.int32)
        parts = (slice(len(waits.roots)), slice(len(waits.roots), None))
        for forest, part, node, leaf, (_, begins) in zip(
            forests, parts, (0, inner[0]), first_leaf, leaves, strict=True
        ):
            lay_out(
                forest.roots,
                forest.feature,
                rounded_down(forest.threshold).view(np.int32),
                forest.children,
                begins[forest.leaf] + np.int32(leaf),
                node,
                nodes,
                roots[part],
            )
        numbers = np.concatenate([numbers for numbers, _ in leaves])
        return cls(
            roots=roots,
            of_waits=len(waits.roots),
            nodes=nodes,
            thresholds=nodes.view(np.float32),
            leaves=numbers,
            masses=numbers.view(np.float32),
            means=numbers.view(np.float64),
            places=np.empty(len(roots), np.int32),
        )


def rounded_down(threshold: Floats) -> NDArray[np.float32]:
    """Thresholds with which numbers of single precision compare as with the exact ones."""
    single = threshold.astype(np.float32)
    return np.where(single > threshold, np.nextafter(single, np.float32(-np.inf)), single)


def _leaves_of(forest: DistributionForest) -> tuple[Integers, Integers]:
    """All leaves' numbers one after another, and where each begins."""
    kept = forest.leaf_mass > 0
    lengths = _HEAD + 2 * kept.sum(axis=1)
    begins = (np.cumsum(lengths) - lengths).astype(np.int32)
    numbers = np.zeros(int(lengths.sum()), np.int32)
    numbers.view(np.float64)[begins // 2] = forest.leaf_mean
    numbers[begins + 2] = kept.sum(axis=1)
    leaf, bin_ = np.nonzero(kept)
    at = begins[leaf] + _HEAD + 2 * (np.cumsum(kept, axis=1)[leaf, bin_] - 1)
    numbers[at] = bin_
    numbers.view(np.float32)[at + 1] = forest.leaf_mass[leaf, bin_]
    return numbers, begins


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
) -> None:
    """Write a forest's inner nodes from row `first` of `nodes` on, each followed by its likelier child.

    Which child is likelier is judged by the leaves below: they hold about as many jobs each. ``leaf`` says of
    each node where the numbers of its leaf are, should it be one.
    """
    below = np.ones(len(feature), np.int64)
    for node in range(len(feature) - 1, -1, -1):  # children come after their parents
        if feature[node] >= 0:
            below[node] = below[children[node, 0]] + below[children[node, 1]]
    stack = np.empty((len(feature) + 1, 3), np.int64)  # a node, and which field of which row leads to it
    row = first
    for tree in range(len(roots)):
        stack[0, 0], stack[0, 1], stack[0, 2] = roots[tree], -1, tree
        depth = 1
        while depth > 0:
            depth -= 1
            node, parent, field = stack[depth]
            place = row if feature[node] >= 0 else ~leaf[node]
            if parent < 0:
                new_roots[field] = place
            else:
                nodes[parent, field] = place
            if feature[node] < 0:
                continue
            nodes[row, 0], nodes[row, 1] = feature[node], threshold_bits[node]
            likelier = 0 if below[children[node, 0]] >= below[children[node, 1]] else 1
            for side in (1 - likelier, likelier):  # the last one put on the stack comes next
                stack[depth, 0], stack[depth, 1], stack[depth, 2] = children[node, side], row, 2 + side
                depth += 1
            row += 1


@compiled
def descend(
    row: NDArray[np.float32],
    roots: Integers,
    nodes: Integers,
    thresholds: NDArray[np.float32],
    places: Integers,
) -> None:
    """Find the leaf of every tree that a row falls into: ``places`` is filled with their complements.

    All trees go down one level at a time: their loads from memory do not wait for each other.
    """
    trees = len(roots)
    places[:] = roots
    moving = True
    while moving:
        moving = False
        for tree in range(trees):
            node = places[tree]
            if node >= 0:
                moving = True
                places[tree] = (
                    nodes[node, 2] if row[nodes[node, 0]] <= thresholds[node, 1] else nodes[node, 3]
                )


@compiled
def average(
    places: Integers, leaves: Integers, masses: NDArray[np.float32], means: Floats, mass: Floats
) -> float:
    """Average the leaves found: ``mass`` is filled with the probability of each bin, the mean returned."""
    trees = len(places)
    mean = 0.0
    mass[:] = 0.0
    for tree in range(trees):
        begin = ~places[tree]
        mean += means[begin // 2] / trees
        for at in range(begin + _HEAD, begin + _HEAD + 2 * leaves[begin + 2], 2):
            mass[leaves[at]] += masses[at + 1] / trees
    return mean
