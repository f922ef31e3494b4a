"""The layout of the trees changes where their numbers lie, and nothing of the sum, to its last bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from advisor.predict.trees import packed_sums
from advisor.predict.trees.forest import TreeEnsemble
from advisor.predict.trees.packed_sums import PackedSums

FEATURES = 5


def rows_of(seed: int, jobs: int = 300) -> np.ndarray:
    generator = np.random.default_rng(seed)
    rows = np.round(generator.normal(0.0, 3.0, (jobs, FEATURES)), 1).astype(np.float32)
    rows[generator.random(rows.shape) < 0.2] = np.nan
    return rows


def grown(kind: str, seed: int) -> TreeEnsemble:
    rows = rows_of(seed)
    small = np.nan_to_num(rows[:, 0]) + np.nan_to_num(rows[:, 1], nan=1.0) > 0.3
    if kind == "boosted":
        model = HistGradientBoostingClassifier(max_iter=12, min_samples_leaf=3, random_state=seed)
    else:
        model = RandomForestClassifier(9, random_state=seed)
    return TreeEnsemble.from_sklearn(model.fit(rows, small))


def packed_sum(trees: TreeEnsemble, row: np.ndarray) -> float:
    packed = PackedSums.of(trees)
    return packed_sums.sum_up(
        row, packed.roots, packed.nodes, packed.thresholds, packed.values, packed.places, packed.under_way
    )


@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["boosted", "forest"]))
@settings(max_examples=10, deadline=None)
def test_the_same_sum_to_the_last_bit(seed: int, kind: str) -> None:
    trees = grown(kind, seed % 7)
    for row in rows_of(seed, 40):
        assert trees.predicted(packed_sum(trees, row)) == trees.predict_one(row)


def test_trees_that_are_one_leaf() -> None:
    trees = TreeEnsemble(
        roots=np.array([0, 1], np.int32),
        feature=np.full(2, -1, np.int32),
        threshold=np.zeros(2),
        children=np.full((2, 3), -1, np.int32),
        value=np.array([0.25, 0.5]),
        baseline=0.0,
        scale=1.0,
        link="identity",
        features=FEATURES,
        single_precision=False,
    )
    assert packed_sum(trees, np.zeros(FEATURES, np.float32)) == 0.75


def test_a_third_way_for_unknown_values_is_refused() -> None:
    trees = grown("boosted", 3)
    children = trees.children.copy()
    children[0, 2] = len(children) - 1
    with pytest.raises(ValueError, match="neither left nor right"):
        PackedSums.of(replace(trees, children=children))


def test_compiled_and_as_python(interpreted: Callable[[ModuleType], None]) -> None:
    trees, rows = grown("boosted", 4), rows_of(5, 20)
    compiled = [packed_sum(trees, row) for row in rows]
    interpreted(packed_sums)
    assert [packed_sum(trees, row) for row in rows] == compiled
