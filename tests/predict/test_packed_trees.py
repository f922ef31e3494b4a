"""The layout of the trees changes where their numbers lie, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from advisor.predict import packed_trees
from advisor.predict.distribution import BINS, DistributionForest, ForestSettings
from advisor.predict.packed_trees import PackedTrees, average, descend

GENERATOR = np.random.default_rng(20)
ROWS = np.floor(GENERATOR.normal(0.0, 30.0, (400, 6)))


def grown(seed: int, jobs: int = 400) -> DistributionForest:
    seconds = np.abs(ROWS[:jobs, 0] * 40.0 + GENERATOR.exponential(500.0, jobs))
    return DistributionForest.train(ROWS[:jobs], seconds, ForestSettings(trees=7, seed=seed))


def told(packed: PackedTrees, row: np.ndarray, *, runs: bool) -> tuple[float, np.ndarray]:
    """Mean and histogram by the packed trees of one of the two forests."""
    mass = np.empty(BINS)
    packed_trees.descend(row.astype(np.float32), packed.roots, packed.nodes, packed.thresholds, packed.places)
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


def test_the_likelier_child_comes_next() -> None:
    packed = PackedTrees.of(grown(5), grown(6))
    nodes = np.arange(len(packed.nodes))
    inner = (packed.nodes[:, 2:] >= 0).any(axis=1)
    follows = (packed.nodes[:, 2:] == nodes[:, None] + 1).any(axis=1)
    both = (packed.nodes[:, 2:] >= 0).all(axis=1)
    assert np.all(follows[both]), "of two children that have children one is the next node"
    assert follows[inner].mean() > 0.9


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
        )
        mass = np.empty(BINS)
        expected = average(compiled.places[:7], compiled.leaves, compiled.masses, compiled.means, mass)
        mean, own = told(plain, ROWS[index], runs=False)
        assert mean == pytest.approx(expected)
        np.testing.assert_allclose(own, mass, rtol=1e-6)
