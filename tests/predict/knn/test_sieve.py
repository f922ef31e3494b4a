"""The search by buckets and bytes gives the same neighbours and estimates, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.predict.knn import _search, _sieve
from advisor.predict.knn.estimator import KnnEstimator
from advisor.predict.knn.features import FeatureSchema
from advisor.predict.knn.parameters import KnnParameters

SCHEMA = FeatureSchema("test", ("user", "queue", "requested_time", "queue_size", "free_processors"))
NAN = math.nan

NUMBERS = st.one_of(
    st.just(NAN),
    st.integers(-(10**9), 10**9).map(lambda n: n / 1000),
    st.sampled_from([0.0, -0.0, 1.0, 2.0**-200, 1e9, 1e9 + 1e-6, -1e149, 1e149]),
)
CODES = st.one_of(st.just(NAN), st.sampled_from([0.0, 1.0, 252.0, 503.0, 2.0**52]))  # equal modulo 251
ROW = st.tuples(CODES, CODES, NUMBERS, NUMBERS, NUMBERS)
WEIGHTS = st.lists(st.sampled_from([0.0, 1e-300, 0.3, 1.0, 7.0, 1e40]), min_size=5, max_size=5)


def estimator_of(rows: list[tuple[float, ...]], *, k: int, weights: list[float]) -> KnnEstimator:
    estimator = KnnEstimator(KnnParameters(k, 0.7, 10_000, tuple(weights)), SCHEMA)
    count = len(rows)
    features = np.array(rows, np.float64).reshape(count, 5)
    labels = np.arange(count, dtype=np.float64) ** 2
    estimator.add_many(features, labels, times=np.arange(float(count)) // 3, job_ids=np.arange(count))
    return estimator


def found_by(estimator: KnnEstimator, query: tuple[float, ...]) -> list[object]:
    """Neighbours and estimate, as text: NaN equals itself there."""
    row = np.array(query)
    neighbours = [column.tolist() for column in estimator.neighbours(row)]
    return [repr(neighbours), repr(estimator.estimate(row))]


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(ROW, max_size=60), query=ROW, weights=WEIGHTS, k=st.integers(1, 8))
def test_sieve_equals_the_plain_search_on_any_numbers(
    rows: list[tuple[float, ...]], query: tuple[float, ...], weights: list[float], k: int
) -> None:
    estimator = estimator_of(rows, k=k, weights=weights)
    expected = found_by(estimator, query)
    estimator.settle()
    assert found_by(estimator, query) == expected


def test_infinite_distances_are_measured_once() -> None:
    rows = [(NAN, NAN, NAN, NAN, NAN)] * 4 + [(NAN, NAN, NAN, NAN, x) for x in (0.0, 0.0, 0.001)]
    estimator = estimator_of(rows, k=5, weights=[0.0, 0.0, 0.0, 0.0, 1e40])
    query = (NAN, NAN, NAN, NAN, -1e149)
    expected = found_by(estimator, query)
    estimator.settle()
    assert found_by(estimator, query) == expected


@pytest.fixture
def many() -> np.ndarray:
    """More cases than a block of either search; ties, unknowns, a feature without a range."""
    generator = np.random.default_rng(11)
    features = np.column_stack(
        [
            generator.integers(0, 600, 5000).astype(float),
            np.full(5000, 3.0),
            generator.exponential(1e5, 5000),
            generator.integers(0, 9, 5000).astype(float),
            np.full(5000, 7.0),
        ]
    )
    features[generator.random(features.shape) < 0.05] = NAN
    return features


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
def test_sieve_equals_the_plain_search_over_many_blocks(many, mode, interpreted) -> None:
    if mode == "interpreted":
        interpreted(_search)
        interpreted(_sieve)
    rows = many if mode == "compiled" else many[-300:]
    for weights in ((1.0,) * 5, (0.1, 0.0, 2.0, 0.5, 1.0)):
        estimator = estimator_of(rows.tolist(), k=16, weights=list(weights))
        queries = [*many[:3], np.array([1.0, 3.0, 1e9, 2.0, 8.0]), np.array([NAN, 4.0, NAN, -5.0, NAN])]
        expected = [found_by(estimator, query) for query in queries]
        estimator.settle()
        assert [found_by(estimator, query) for query in queries] == expected


def test_most_cases_are_not_measured(many) -> None:
    estimator = estimator_of(many.tolist(), k=4, weights=[1.0] * 5)
    estimator.settle()
    sieve, room = estimator._sieve
    room.bounds[:] = np.float32(-1.0)
    _, distances, _ = estimator.neighbours(many[7])
    assert len(sieve.keys) > 300
    assert distances[-1] < 1.0
    assert (room.bounds >= 0.0).sum() < 200


def test_bounds_are_never_above_the_distance(many) -> None:
    estimator = estimator_of(many.tolist(), k=16, weights=[1.0] * 5)
    estimator.settle()
    query = many[7]
    sieve, room = estimator._sieve
    bounds = room.bounds
    _sieve.bucket_levels(sieve.scales, sieve.keys, query, room.levels)
    for bucket, level in enumerate(room.levels):
        begin, end = sieve.starts[bucket : bucket + 2]
        _sieve.bound_block(sieve.codes, sieve.scales, query, level, begin, bounds[begin:end])
    exact = np.array([_sieve.squared_distance(sieve.scales, row, query) for row in sieve.rows])
    assert (bounds <= exact * _sieve.MARGIN).all()
    assert (bounds <= np.sort(exact)[15]).sum() < 200


@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.0, 2.0), (3.0, 1.0)])
def test_the_number_of_buckets_is_bounded(weights) -> None:
    generator = np.random.default_rng(5)
    features = np.column_stack([generator.permutation(4000), generator.integers(0, 40, 4000)]).astype(float)
    schema = FeatureSchema("nominal", ("user", "queue"))
    estimator = KnnEstimator(KnnParameters(9, 0.7, 10_000, weights), schema)
    estimator.add_many(features, features[:, 1], times=np.arange(4000.0), job_ids=np.arange(4000))
    queries = [np.array(query) for query in ((7.0, 3.0), (NAN, 3.0), (9999.0, 9999.0), (5.0, NAN))]
    expected = [found_by(estimator, query) for query in queries]
    estimator.settle()
    assert len(estimator._sieve[0].keys) == 40
    assert [found_by(estimator, query) for query in queries] == expected


def test_adding_a_case_discards_the_sieve(many) -> None:
    estimator = estimator_of(many.tolist(), k=1, weights=[1.0] * 5)
    estimator.settle()
    query = np.array([9999.0, 3.0, 5.0, 4.0, 7.0])
    estimator.add(query, 42.0, time=9e9, job_id=99_999)
    assert estimator.neighbours(query)[0].tolist() == [99_999]
    nothing = KnnEstimator(KnnParameters(1, 1.0, 5, (1.0,) * 5), SCHEMA)
    nothing.settle()
    assert math.isnan(nothing.estimate(query).seconds)
