"""Flattened trees give what scikit-learn gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor

from advisor.model.errors import BadInput
from advisor.papers.forests.sklearn_forest import grown
from advisor.predict.trees import forest
from advisor.predict.trees.boosting import boosted
from advisor.predict.trees.forest import TreeEnsemble

CLASSIFIERS = (
    RandomForestClassifier(n_estimators=7, random_state=1),
    HistGradientBoostingClassifier(max_iter=12, min_samples_leaf=5, random_state=1),
)


def ensemble_of(model):
    return boosted(model) if isinstance(model, HistGradientBoostingClassifier) else grown(model)


def rows_of(seed: int, count: int, *, unknowns: bool) -> np.ndarray:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(count, 4)) * np.array([1.0, 1e3, 1e-3, 1.0])
    rows[:, 3] = np.round(rows[:, 3])
    if unknowns:
        rows[generator.random(rows.shape) < 0.15] = np.nan
    return rows


def labels_of(rows: np.ndarray) -> np.ndarray:
    known = np.nan_to_num(rows, nan=0.5)
    return known[:, 0] + known[:, 1] / 1e3 * known[:, 3] > 0.2


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: type(model).__name__)
def test_classifiers_equal_scikit_learn(model):
    rows = rows_of(3, 400, unknowns=True)
    model.fit(rows, labels_of(rows))
    ensemble = ensemble_of(model)
    fresh = rows_of(4, 500, unknowns=True)
    expected = model.predict_proba(fresh)[:, 1]
    np.testing.assert_allclose(ensemble.predict(fresh), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose([ensemble.predict_one(row) for row in fresh], expected, rtol=1e-12, atol=1e-12)
    assert expected.std() > 0.0


def test_a_regression_forest_equals_scikit_learn():
    model = RandomForestRegressor(n_estimators=5, random_state=1)
    rows = rows_of(5, 400, unknowns=True)
    target = np.exp(np.nan_to_num(rows[:, 0])) + labels_of(rows)
    model.fit(rows, target)
    ensemble = ensemble_of(model)
    fresh = rows_of(6, 300, unknowns=True)
    expected = model.predict(fresh)
    np.testing.assert_allclose(ensemble.predict(fresh), expected, rtol=1e-10)
    np.testing.assert_allclose([ensemble.predict_one(row) for row in fresh], expected, rtol=1e-10)


@given(seed=st.integers(0, 2**32 - 1), depth=st.integers(1, 6), boosted=st.booleans())
@settings(max_examples=15, deadline=None)
def test_any_small_model_survives_storage_and_equals_scikit_learn(seed, depth, boosted):
    rows = rows_of(seed, 60, unknowns=True)
    labels = labels_of(rows)
    labels[:2] = False, True
    model = (
        HistGradientBoostingClassifier(max_iter=3, max_depth=depth, min_samples_leaf=2)
        if boosted
        else RandomForestClassifier(n_estimators=3, max_depth=depth, random_state=seed)
    ).fit(rows, labels)
    ensemble = TreeEnsemble.from_arrays(ensemble_of(model).to_arrays())
    fresh = rows_of(seed + 1, 40, unknowns=True)
    np.testing.assert_allclose(
        ensemble.predict(fresh), model.predict_proba(fresh)[:, 1], rtol=1e-12, atol=1e-12
    )


def test_forests_compare_in_single_precision_as_scikit_learn_does():
    """A threshold between two numbers that only double precision tells apart."""
    rows = np.array([[1.0], [1.0 + 1e-9], [2.0], [3.0]])
    model = RandomForestRegressor(n_estimators=1, bootstrap=False).fit(rows, [0.0, 0.0, 1.0, 2.0])
    ensemble = ensemble_of(model)
    edge = np.nextafter(np.float64(ensemble.threshold[0]), np.inf)
    assert ensemble.predict_one(np.array([edge])) == model.predict([[edge]])[0]


def test_rows_of_another_width_are_refused():
    rows = rows_of(1, 60, unknowns=False)
    ensemble = grown(RandomForestRegressor(n_estimators=1).fit(rows, rows[:, 0]))
    with pytest.raises(ValueError, match=r"rows of shape \(60, 3\)"):
        ensemble.predict(rows[:, :3])


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays: arrays.pop("value"),
        lambda arrays: arrays.update(format=np.array([99])),
        lambda arrays: arrays.update(roots=np.array([10_000], np.int32)),
        lambda arrays: arrays.update(children=np.zeros_like(arrays["children"])),
        lambda arrays: arrays.update(feature=arrays["feature"] + 50),
        lambda arrays: arrays.update(shape=np.array([4, 17, 0])),
        lambda arrays: arrays.update(value=arrays["value"][:-1]),
    ],
)
def test_damaged_arrays_are_refused_before_they_are_walked(damage):
    rows = rows_of(1, 60, unknowns=False)
    arrays = grown(RandomForestRegressor(n_estimators=1).fit(rows, rows[:, 0])).to_arrays()
    damage(arrays)
    with pytest.raises(BadInput, match="damaged trees"):
        TreeEnsemble.from_arrays(arrays)


def test_an_extreme_sum_neither_overflows_nor_warns():
    leaf = {
        "format": np.array([1]),
        "roots": np.array([0]),
        "feature": np.array([-1]),
        "threshold": np.array([0.0]),
        "children": np.array([[-1, -1, -1]]),
        "numbers": np.array([0.0, 1.0]),
        "shape": np.array([1, 1, 0]),
    }
    for value, expected in ((-1e6, 0.0), (1e6, 1.0), (0.0, 0.5)):
        ensemble = TreeEnsemble.from_arrays(leaf | {"value": np.array([value])})
        assert ensemble.predict_one(np.zeros(1)) == expected
        assert ensemble.predict(np.zeros((1, 1)))[0] == expected


@pytest.mark.parametrize("single_precision", [False, True])
def test_compiled_walk_equals_its_python(single_precision, interpreted):
    rows = rows_of(9, 120, unknowns=True)
    model = (
        RandomForestClassifier(n_estimators=2, max_depth=3, random_state=1)
        if single_precision
        else HistGradientBoostingClassifier(max_iter=2)
    ).fit(rows, labels_of(rows))
    ensemble = ensemble_of(model)
    compiled = ensemble.predict(rows)
    interpreted(forest)
    np.testing.assert_array_equal(ensemble.predict(rows), compiled)
