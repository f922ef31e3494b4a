"""The compiled estimator against the definition, and the traps of section IV-B."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.model.errors import BadInput
from advisor.predict.knn import _search
from advisor.predict.knn.estimator import KnnEstimator
from advisor.predict.knn.features import FeatureSchema
from advisor.predict.knn.parameters import KnnParameters
from tests.predict.knn import heom
from tests.predict.knn.heom import Case

SCHEMA = FeatureSchema("test", ("user", "queue", "requested_time", "queue_size", "free_processors"))
NOMINAL = SCHEMA.nominal.tolist()
NAN = math.nan


def estimator_of(cases, *, k=3, omega=0.7, s=100, weights=(1.0,) * 5):
    estimator = KnnEstimator(KnnParameters(k, omega, s, tuple(weights)), SCHEMA)
    for case in cases:
        estimator.add(np.array(case.features), case.label, time=case.time, job_id=case.job_id)
    return estimator


# Numbers on a grid of powers of two with ranges that are powers of two: every distance is exact, so ties are
# ties in both implementations and the order of neighbours must be the same.
EXACT = st.sampled_from([NAN, 0.0, 0.25, 0.5, 0.75, 1.0])
CODE = st.sampled_from([NAN, 1.0, 2.0, 3.0])
EXACT_WEIGHTS = st.lists(st.sampled_from([0.0, 0.25, 1.0, 4.0]), min_size=5, max_size=5)

# Any numbers a job may have (thousandths are enough): distances agree up to rounding.
REAL = st.one_of(
    st.just(NAN), st.integers(-(10**9), 10**9).map(lambda n: n / 1000), st.sampled_from([0.0, 1.0, 1e9, 1e15])
)
REAL_WEIGHTS = st.lists(st.integers(0, 10_000).map(lambda n: n / 1000), min_size=5, max_size=5)


def cases_of(numbers, *, most=40):
    row = st.tuples(CODE, CODE, numbers, numbers, numbers)
    label = st.one_of(st.floats(0.0, 1e6), st.just(NAN))
    case = st.builds(Case, row, label, time=st.integers(0, 3).map(float), job_id=st.integers(1, 5))
    return st.lists(case, max_size=most)


def numbered(cases):
    """The same cases with distinct job ids, so that the order is a total one."""
    return [Case(case.features, case.label, case.time, i) for i, case in enumerate(cases)]


@settings(max_examples=300, deadline=None)
@given(
    cases=cases_of(EXACT),
    query=st.tuples(CODE, CODE, EXACT, EXACT, EXACT),
    weights=EXACT_WEIGHTS,
    k=st.integers(1, 8),
    s=st.integers(1, 30),
)
def test_neighbours_equal_the_definition_with_ties_and_turnover(cases, query, weights, k, s):
    cases = numbered(cases)
    # with both ends of every number's range in the base, ranges are 1 and divisions exact
    cases += [
        Case((1.0, 1.0, 0.0, 0.0, 0.0), 1.0, 9.0, 1000),
        Case((1.0, 1.0, 1.0, 1.0, 1.0), 2.0, 9.0, 1001),
    ]
    kept = [case for case in cases if not math.isnan(case.label)][-max(2, s) :]
    estimator = estimator_of(cases, k=k, s=max(2, s), weights=weights)
    expected = heom.nearest(query, kept, k=k, nominal=NOMINAL, weights=weights)
    job_ids, distances, labels = estimator.neighbours(np.array(query))
    assert job_ids.tolist() == [case.job_id for _, case in expected]
    assert distances.tolist() == [length for length, _ in expected]
    assert labels.tolist() == [case.label for _, case in expected]


@settings(max_examples=300, deadline=None)
@given(
    cases=cases_of(REAL),
    query=st.tuples(CODE, CODE, REAL, REAL, REAL),
    weights=REAL_WEIGHTS,
    k=st.integers(1, 8),
    s=st.integers(1, 30),
    omega=st.floats(0.01, 10.0),
)
def test_estimate_equals_the_definition_on_any_numbers(cases, query, weights, k, s, omega):
    cases = numbered(cases)
    kept = [case for case in cases if not math.isnan(case.label)][-s:]
    estimator = estimator_of(cases, k=k, s=s, omega=omega, weights=weights)
    expected = heom.nearest(query, kept, k=k, nominal=NOMINAL, weights=weights)
    job_ids, distances, _ = estimator.neighbours(np.array(query))
    assert distances == pytest.approx([length for length, _ in expected], rel=1e-9, abs=1e-7)
    # rounding may order nearly equal distances differently: equations are checked on the neighbours found
    by_id = {case.job_id: case for case in kept}
    found = [(length, by_id[i]) for length, i in zip(distances.tolist(), job_ids.tolist(), strict=True)]
    estimate = estimator.estimate(np.array(query))
    assert estimate.neighbours == len(found) == min(k, len(kept))
    assert estimate.seconds == pytest.approx(heom.estimate(found, omega), rel=1e-9, abs=1e-300, nan_ok=True)
    total = sum(heom.kernel(length, omega) for length, _ in found)
    if abs(total - 1) > 1e-9:  # next to 1 the quotient of Eq. 4 is all rounding
        mine = max((case.label for _, case in found), default=0.0)
        assert estimate.variance == pytest.approx(
            heom.variance(found, omega), rel=1e-6, abs=1e-9 * (1 + mine * mine)
        )


@settings(max_examples=100, deadline=None)
@given(cases=cases_of(REAL), s=st.integers(1, 10))
def test_ranges_stay_exact_when_old_cases_leave(cases, s):
    estimator = estimator_of(cases, s=s)
    kept = [case for case in cases if not math.isnan(case.label)][-s:]
    assert len(estimator) == len(kept)
    for feature, column in enumerate(zip(*(case.features for case in kept), strict=True)):
        known = [value for value in column if not math.isnan(value)]
        assert estimator._base.low[feature] == min(known, default=math.inf)
        assert estimator._base.high[feature] == max(known, default=-math.inf)


@pytest.fixture
def many():
    """More cases than a block of the search, with unknowns and ties."""
    generator = np.random.default_rng(7)
    features = generator.integers(0, 17, (2500, 5)).astype(float)  # a range of 16: exact distances
    features[generator.random(features.shape) < 0.1] = NAN
    labels = generator.exponential(1000.0, 2500)
    return features, labels


def filled(many, **parameters):
    features, labels = many
    estimator = estimator_of([], **parameters)
    estimator.add_many(features, labels, times=np.arange(2500.0) // 5, job_ids=np.arange(2500))
    return estimator


def expected_ids(many, query, *, k, s, weights):
    features, labels = many
    cases = [
        Case(row, label, float(i // 5), i)
        for i, (row, label) in enumerate(zip(features.tolist(), labels.tolist(), strict=True))
    ]
    found = heom.nearest(query, cases[-s:], k=k, nominal=NOMINAL, weights=weights)
    return [case.job_id for _, case in found]


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
@pytest.mark.parametrize("s", [700, 1024, 2000])
def test_search_over_many_blocks(many, s, mode, interpreted):
    if mode == "interpreted":
        interpreted(_search)
    features, labels = (part[-s - 100 :] for part in many)
    estimator = estimator_of([], k=16, s=s)
    estimator.add_many(
        features,
        labels,
        times=np.arange(2400.0 - s, 2500) // 5,
        job_ids=np.arange(2400 - s, 2500),
    )
    for query in ((3.0, NAN, 5.0, 5.0, 5.0), (1.0, 2.0, 3.0, 20.0, -5.0)):
        job_ids, *_ = estimator.neighbours(np.array(query))
        assert job_ids.tolist() == expected_ids(many, query, k=16, s=s, weights=(1.0,) * 5)


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
def test_every_branch_of_the_equations(mode, interpreted):
    """Replacement, unknown queries, zero ranges, weight 0 and a full interval, compiled and as Python."""
    if mode == "interpreted":
        interpreted(_search)
    cases = [Case((1.0, 1.0, float(i), 5.0, NAN), 10.0 * i, float(i), i) for i in range(30)]
    estimator = estimator_of(cases, k=25, s=25, weights=(1.0, 0.0, 1.0, 1.0, 1.0), omega=30.0)
    query = (1.0, 2.0, 20.0, 6.0, NAN)
    found = heom.nearest(query, cases[-25:], k=25, nominal=NOMINAL, weights=(1.0, 0.0, 1.0, 1.0, 1.0))
    estimate = estimator.estimate(np.array(query))
    assert estimate.seconds == pytest.approx(heom.estimate(found, 30.0))
    assert estimate.variance == pytest.approx(heom.variance(found, 30.0))
    # kernels are nearly 1: a share of 1/26 lies beyond each neighbour, and 0.05 * 26 - 1 = 0.3 of one may go
    assert (estimate.lower, estimate.upper) == (50.0, 290.0)


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
def test_interval_leaves_out_what_the_coverage_allows(mode, interpreted):
    if mode == "interpreted":
        interpreted(_search)
    cases = [Case((1.0, 1.0, 5.0, 5.0, 5.0), float(i), float(i), i) for i in range(99)]
    estimate = estimator_of(cases, k=99).estimate(np.array((1.0, 1.0, 5.0, 5.0, 5.0)))
    # all kernels 1: 0.05 * (99 + 1) - 1 = 4 whole neighbours may lie outside at either end
    assert (estimate.lower, estimate.upper) == (4.0, 94.0)
    assert estimate.coverage == 0.9


def test_interval_covers_what_it_says_on_exchangeable_cases():
    generator = np.random.default_rng(3)
    labels = generator.exponential(100.0, 4000)
    inside = 0
    for row in range(1000):
        estimator = estimator_of([], k=40)
        window = labels[row * 4 : row * 4 + 4]
        estimator.add_many(
            np.zeros((39, 5)),
            generator.exponential(100.0, 39),
            times=np.zeros(39),
            job_ids=np.arange(39),
        )
        estimate = estimator.estimate(np.zeros(5))
        inside += int(np.count_nonzero((window >= estimate.lower) & (window <= estimate.upper)))
    assert 0.88 <= inside / 4000 <= 0.93


def test_nothing_known_gives_no_estimate():
    estimate = estimator_of([]).estimate(np.zeros(5))
    assert math.isnan(estimate.seconds)
    assert math.isinf(estimate.variance)
    assert math.isnan(estimate.lower)
    assert estimate.neighbours == 0
    assert not estimate.is_usable


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
def test_kernel_underflow_gives_no_estimate(mode, interpreted):
    if mode == "interpreted":
        interpreted(_search)
    cases = [Case((1.0, 1.0, float(i), 0.0, 0.0), 10.0, float(i), i) for i in range(5)]
    estimator = estimator_of(cases, omega=0.03)  # section IV-B: a distance of 1 underflows below 0.038
    estimate = estimator.estimate(np.array((2.0, 1.0, 0.0, 0.0, 0.0)))
    assert estimate.neighbours == 3
    assert math.isnan(estimate.seconds)
    assert math.isinf(estimate.variance)
    assert math.isnan(estimate.upper)


def test_one_neighbour_has_no_variance():
    estimate = estimator_of([Case((1.0, 1.0, 1.0, 1.0, 1.0), 60.0)]).estimate(np.ones(5))
    assert estimate.seconds == 60.0
    assert math.isinf(estimate.variance)


def test_zero_range_counts_as_overlap():
    cases = [Case((1.0, 1.0, 7.0, 0.0, 0.0), 10.0, float(i), i) for i in range(2)]
    estimator = estimator_of(cases, k=1, weights=(0.0, 0.0, 4.0, 0.0, 0.0))
    assert estimator.neighbours(np.array((0.0, 0.0, 7.0, 0.0, 0.0)))[1] == [0.0]
    assert estimator.neighbours(np.array((0.0, 0.0, 8.0, 0.0, 0.0)))[1] == [2.0]


@pytest.mark.parametrize("label", [NAN, math.inf, -math.inf])
def test_unknown_label_teaches_nothing(label):
    estimator = estimator_of([])
    assert not estimator.add(np.ones(5), label, time=0.0, job_id=1)
    assert len(estimator) == 0


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e200])
def test_numbers_without_a_distance_are_unknown(value):
    cases = [Case((1.0, 1.0, number, 0.0, 0.0), 10.0, number, int(number)) for number in (1.0, 3.0)]
    estimator = estimator_of(cases)
    estimator.add(np.array((1.0, 1.0, value, 0.0, 0.0)), 20.0, time=9.0, job_id=9)
    assert estimator._base.high[2] == 3.0
    job_ids, distances, _ = estimator.neighbours(np.array((1.0, 1.0, 2.0, 0.0, 0.0)))
    assert dict(zip(job_ids.tolist(), distances.tolist(), strict=True)) == {1: 0.5, 3: 0.5, 9: 1.0}


@pytest.mark.parametrize("s", [50, 2499, 2500, 4000])
def test_many_at_once_equal_one_by_one(many, s):
    features, labels = many
    times, job_ids = np.arange(2500.0), np.arange(2500)
    at_once, in_parts, one_by_one = (estimator_of([], s=s) for _ in range(3))
    at_once.add_many(features, labels, times=times, job_ids=job_ids)
    for part in (slice(0, 40), slice(40, 2500)):
        in_parts.add_many(features[part], labels[part], times=times[part], job_ids=job_ids[part])
    for row in range(2500):
        one_by_one.add(features[row], labels[row], time=times[row], job_id=job_ids[row])
    for estimator in (in_parts, one_by_one):
        for name, array in at_once.to_arrays().items():
            assert np.array_equal(array, estimator.to_arrays()[name], equal_nan=True), name
        assert np.array_equal(at_once._base.low, estimator._base.low)
        assert np.array_equal(at_once._base.high, estimator._base.high)


@pytest.mark.parametrize("s", [50, 2499, 2500, 4000])
def test_arrays_carry_everything(many, s):
    estimator = filled(many, s=s, k=5, omega=0.9)
    again = KnnEstimator.from_arrays(estimator.to_arrays(), SCHEMA)
    for each in (estimator, again):  # and both go on alike
        each.add(np.ones(5), 1.0, time=9000.0, job_id=9000)
    assert len(again) == len(estimator)
    for query in many[0][:20]:
        assert again.estimate(query) == estimator.estimate(query)
    for name, array in estimator.to_arrays().items():
        assert np.array_equal(array, again.to_arrays()[name], equal_nan=True)


def test_add_many_counts_known_labels_only():
    estimator = estimator_of([], s=2)
    labels = np.array([1.0, NAN, 2.0, 3.0])
    learned = estimator.add_many(np.zeros((4, 5)), labels, times=np.arange(4.0), job_ids=np.arange(4))
    assert learned == 3
    assert estimator.to_arrays()["labels"].tolist() == [2.0, 3.0]


def test_warming_changes_nothing(many):
    estimator = filled(many)
    before = estimator.estimate(many[0][0])
    estimator.warm()
    assert estimator.estimate(many[0][0]) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "k is 0"),
        ({"k": 1001}, "k is 1001"),
        ({"omega": 0.0}, "omega"),
        ({"omega": math.inf}, "omega"),
        ({"omega": NAN}, "omega"),
        ({"s": 0}, "s is 0"),
        ({"weights": (1.0, -1.0)}, "weight"),
        ({"weights": (1.0, NAN)}, "weight"),
        ({"weights": ()}, "no weights"),
    ],
)
def test_parameters_out_of_range_are_refused(changes, message):
    values = {"k": 3, "omega": 0.5, "s": 10, "weights": (1.0, 1.0)} | changes
    with pytest.raises(BadInput, match=message):
        KnnParameters(**values)


def test_weights_must_fit_the_schema():
    with pytest.raises(BadInput, match="2 weights for 5 features"):
        KnnEstimator(KnnParameters(3, 0.5, 10, (1.0, 1.0)), SCHEMA)


def test_features_must_fit_the_schema():
    with pytest.raises(ValueError, match="4 features"):
        estimator_of([]).estimate(np.zeros(4))


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays: arrays.pop("labels"),
        lambda arrays: arrays.pop("coverage"),
        lambda arrays: arrays.update(chromosome=np.zeros(2)),
        lambda arrays: arrays.update(chromosome=np.zeros(8)),
        lambda arrays: arrays.update(features=np.zeros((3, 4))),
        lambda arrays: arrays.update(times=np.zeros(1)),
        lambda arrays: arrays.update(chromosome=np.array(["a"] * 8)),
    ],
)
def test_damaged_arrays_are_refused(many, damage):
    arrays = filled(many, s=50).to_arrays()
    damage(arrays)
    with pytest.raises(BadInput):
        KnnEstimator.from_arrays(arrays, SCHEMA)
