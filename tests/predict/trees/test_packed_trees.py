"""The layout of the trees changes where their numbers lie, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from advisor.predict.forecast.distribution import BINS, DistributionForest, ForestSettings
from advisor.predict.trees import packed_trees
from advisor.predict.trees.packed_trees import PackedTrees, average, descend

GENERATOR = np.random.default_rng(20)
ROWS = np.floor(GENERATOR.normal(0.0, 30.0, (400, 6)))


def grown(seed: int, jobs: int = 400) -> DistributionForest:
    seconds = np.abs(ROWS[:jobs, 0] * 40.0 + GENERATOR.exponential(500.0, jobs))
    return DistributionForest.train(ROWS[:jobs], seconds, ForestSettings(trees=7, seed=seed))


def told(packed: PackedTrees, row: np.ndarray, *, runs: bool) -> tuple[float, np.ndarray]:
    """Mean and histogram by the packed trees of one of the two forests."""
    mass = np.empty(BINS)
    packed_trees.descend(
        row.astype(np.float32),
        packed.roots,
        packed.nodes,
        packed.thresholds,
        packed.places,
        packed.under_way,
    )
    own = packed.places[packed.of_waits :] if runs else packed.places[: packed.of_waits]
    return packed_trees.average(own, packed.leaves, packed.masses, packed.means, mass), mass


def test_every_row_falls_into_the_same_leaves() -> None:
    waits, runs = grown(1), grown(2)
    packed = PackedTrees.of(waits, runs)
    for forest, is_runs in ((waits, False), (runs, True)):
        expected = forest.predict(ROWS)
        for index in range(0, len(ROWS), 3):
            mean, mass = told(packed, ROWS[index], runs=is_runs)
            assert mean == pytest.approx(expected.mean[index], rel=1e-12)
            np.testing.assert_allclose(mass, expected.mass[index], rtol=1e-6, atol=1e-12)


def test_a_threshold_that_single_precision_cannot_hold() -> None:
    """Half way between two features that differ in their last bit only: both stay on their side."""
    below = np.float32(1e6)
    above = np.nextafter(below, np.float32(np.inf))
    stump = DistributionForest(
        roots=np.zeros(1, np.int32),
        feature=np.array([0, -1, -1], np.int32),
        threshold=np.array([(float(below) + float(above)) / 2.0, 0.0, 0.0]),
        children=np.array([[1, 2], [0, 0], [0, 0]], np.int32),
        leaf=np.array([0, 0, 1], np.int32),
        leaf_mean=np.array([10.0, 20.0]),
        leaf_mass=np.eye(2, BINS, dtype=np.float32),
    )
    packed = PackedTrees.of(stump, stump)
    for runs in (False, True):
        assert told(packed, np.array([below]), runs=runs)[0] == 10.0
        assert told(packed, np.array([above]), runs=runs)[0] == 20.0


def test_trees_that_are_one_leaf() -> None:
    leaf = grown(3, jobs=1)
    packed = PackedTrees.of(leaf, grown(4))
    mean, mass = told(packed, ROWS[7], runs=False)
    assert mean == pytest.approx(float(leaf.leaf_mean[0]))
    assert mass.sum() == pytest.approx(1.0)


def lines_met(packed: PackedTrees, row: np.ndarray) -> tuple[int, int]:
    """How many nodes a row meets, and how many cache lines they are in."""
    nodes = []
    for root in packed.roots:
        node = int(root)
        while node >= 0:
            nodes.append(node)
            goes_left = row[packed.nodes[node, 0]] <= packed.thresholds[node, 1]
            node = int(packed.nodes[node, 2 if goes_left else 3])
    return len(nodes), len({node // packed_trees.NODES_A_LINE for node in nodes})


def test_walks_meet_few_lines() -> None:
    packed = PackedTrees.of(grown(5), grown(6))
    assert packed.nodes.ctypes.data % 64 == 0
    met = [lines_met(packed, row.astype(np.float32)) for row in ROWS[::5]]
    nodes, lines = np.sum(met, axis=0)
    assert lines < nodes / 2
    assert len(packed.nodes) < 1.3 * np.count_nonzero(packed.nodes[:, 1:].any(axis=1)), "little is left empty"


def test_no_leaf_is_in_more_lines_than_it_must() -> None:
    packed = PackedTrees.of(grown(5), grown(6))
    assert packed.leaves.ctypes.data % 64 == 0
    children = packed.nodes[:, 2:][packed.nodes[:, 1:].any(axis=1)]
    for place in ~children[children < 0]:
        bins = int(packed.leaves[4 * place + 8])
        length = 8 + 4 * (bins // 4 + 1) + 4 * bins
        assert (4 * place % 64 + length - 1) // 64 == (length - 1) // 64
        first = place + 3 + bins // 4
        assert packed.masses[first : first + bins].sum() == pytest.approx(1.0, abs=1e-6)
        assert np.all(np.diff(packed.leaves[4 * place + 9 : 4 * place + 9 + bins].astype(int)) > 0)


@pytest.mark.parametrize("bins", [1, 3, 4, 7, 13, BINS])
def test_leaves_of_many_bins(bins: int) -> None:
    mass = np.zeros((3, BINS), np.float32)
    mass[0, :bins], mass[1, BINS - bins :], mass[2, ::2] = 1.0 / bins, 1.0 / bins, 2.0 / BINS
    forest = DistributionForest(
        roots=np.zeros(1, np.int32),
        feature=np.array([0, -1, 1, -1, -1], np.int32),
        threshold=np.array([0.5, 0.0, 0.5, 0.0, 0.0]),
        children=np.array([[1, 2], [0, 0], [3, 4], [0, 0], [0, 0]], np.int32),
        leaf=np.array([0, 0, 0, 1, 2], np.int32),
        leaf_mean=np.array([1.5, 2.5, 3.5]),
        leaf_mass=mass,
    )
    packed = PackedTrees.of(forest, forest)
    for row, leaf in (([0.0, 0.0], 0), ([1.0, 0.0], 1), ([1.0, 1.0], 2)):
        for runs in (False, True):
            mean, found = told(packed, np.array(row), runs=runs)
            assert mean == forest.leaf_mean[leaf]
            np.testing.assert_array_equal(found, mass[leaf].astype(np.float64))


def test_compiled_and_as_python(interpreted: Callable[[ModuleType], None]) -> None:
    waits, runs = grown(7), grown(8)
    compiled = PackedTrees.of(waits, runs)
    interpreted(packed_trees)
    plain = PackedTrees.of(waits, runs)
    np.testing.assert_array_equal(plain.nodes, compiled.nodes)
    np.testing.assert_array_equal(plain.roots, compiled.roots)
    for index in range(0, len(ROWS), 40):
        descend(
            ROWS[index].astype(np.float32),
            compiled.roots,
            compiled.nodes,
            compiled.thresholds,
            compiled.places,
            compiled.under_way,
        )
        mass = np.empty(BINS)
        expected = average(compiled.places[:7], compiled.leaves, compiled.masses, compiled.means, mass)
        mean, own = told(plain, ROWS[index], runs=False)
        assert mean == pytest.approx(expected)
        np.testing.assert_allclose(own, mass, rtol=1e-6)
