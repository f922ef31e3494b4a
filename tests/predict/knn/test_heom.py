"""Eq. 1 to 5 of Cunha et al. on cases worked out by hand."""

from __future__ import annotations

import math

import pytest

from tests.predict.knn import heom
from tests.predict.knn.heom import Case

NAN = math.nan

# user (nominal), requested hours, free processors
CASES = [
    Case((1.0, 2.0, 10.0), 100.0, time=1.0, job_id=1),
    Case((2.0, 4.0, 30.0), 200.0, time=2.0, job_id=2),
    Case((1.0, 10.0, NAN), 400.0, time=3.0, job_id=3),
]
NOMINAL = (True, False, False)


def test_ranges_pass_over_unknown_values():
    assert heom.ranges(CASES) == [(1.0, 2.0), (2.0, 10.0), (10.0, 30.0)]


def test_range_of_a_feature_without_known_values_is_unknown():
    ((low, high),) = heom.ranges([Case((NAN,), 1.0)])
    assert math.isnan(low)
    assert math.isnan(high)


@pytest.mark.parametrize(
    ("x", "y", "nominal", "limits", "expected"),
    [
        (NAN, 1.0, False, (0.0, 2.0), 1.0),
        (1.0, NAN, True, (0.0, 2.0), 1.0),
        (NAN, NAN, True, (0.0, 2.0), 1.0),
        (3.0, 3.0, True, (0.0, 9.0), 0.0),
        (3.0, 4.0, True, (0.0, 9.0), 1.0),
        (1.0, 4.0, False, (0.0, 12.0), 0.25),
        (4.0, 1.0, False, (0.0, 12.0), 0.25),
        (0.0, 6.0, False, (1.0, 5.0), 1.5),  # footnote 5: beyond the range it may exceed 1
        (5.0, 5.0, False, (5.0, 5.0), 0.0),  # no range: overlap
        (5.0, 6.0, False, (5.0, 5.0), 1.0),
        (5.0, 6.0, False, (NAN, NAN), 1.0),
    ],
)
def test_distance_of_one_feature(x, y, nominal, limits, expected):
    assert heom.feature_distance(x, y, nominal=nominal, low=limits[0], high=limits[1]) == expected


def test_equation_1():
    # query: user 1, 6 hours, 20 free. To case 1: overlap 0, 4/8, 10/20; weights 1, 2, 4
    query, weights = (1.0, 6.0, 20.0), (1.0, 2.0, 4.0)
    limits = heom.ranges(CASES)

    def to(case: Case) -> float:
        return heom.distance(query, case.features, nominal=NOMINAL, limits=limits, weights=weights)

    assert to(CASES[0]) == pytest.approx(math.sqrt(0 + 2 * 0.25 + 4 * 0.25))
    assert to(CASES[1]) == pytest.approx(math.sqrt(1 + 2 * 0.0625 + 4 * 0.25))
    assert to(CASES[2]) == pytest.approx(math.sqrt(0 + 2 * 0.25 + 4 * 1))  # unknown: 1


def test_equation_2():
    assert heom.kernel(0.0, 0.3) == 1.0
    assert heom.kernel(0.6, 0.3) == pytest.approx(math.exp(-4))
    assert heom.kernel(27.3, 1.0) == 0.0  # beyond the subnormal numbers: underflow (section IV-B)
    assert heom.kernel(1e200, 1.0) == 0.0


def test_equations_3_and_4():
    # distances 0, sqrt(ln 2), sqrt(ln 4): kernels 1, 1/2, 1/4
    lengths = (0.0, math.sqrt(math.log(2)), math.sqrt(math.log(4)))
    neighbours = list(zip(lengths, CASES, strict=True))
    mean = (100 + 200 / 2 + 400 / 4) / 1.75
    assert heom.estimate(neighbours, 1.0) == pytest.approx(mean)
    squares = (mean - 100) ** 2 + (mean - 200) ** 2 / 2 + (mean - 400) ** 2 / 4
    assert heom.variance(neighbours, 1.0) == pytest.approx(squares / 0.75)


def test_no_neighbours_or_none_with_a_kernel_give_nothing():
    assert math.isnan(heom.estimate([], 1.0))
    assert math.isnan(heom.estimate([(30.0, CASES[0])], 1.0))
    assert math.isinf(heom.variance([], 1.0))


def test_kernel_sum_of_at_most_1_has_no_variance():
    assert math.isinf(heom.variance([(0.0, CASES[0])], 1.0))  # exactly 1
    assert math.isinf(heom.variance([(1.0, CASES[0]), (1.0, CASES[1])], 1.0))  # 2/e


def test_equation_5():
    assert heom.rmse([1.0, 2.0, 3.0], [1.0, 4.0, 7.0]) == pytest.approx(math.sqrt((0 + 4 + 16) / 3))


def test_neighbours_are_ordered_by_distance_then_newer_then_job_id():
    same = (1.0, 5.0, 5.0)
    cases = [
        Case(same, 1.0, time=1.0, job_id=9),
        Case(same, 2.0, time=2.0, job_id=8),
        Case(same, 3.0, time=2.0, job_id=7),
        Case((2.0, 9.0, 9.0), 4.0, time=9.0, job_id=1),
    ]
    found = heom.nearest(same, cases, k=3, nominal=NOMINAL, weights=(1.0, 1.0, 1.0))
    assert [case.job_id for _, case in found] == [7, 8, 9]
    assert [length for length, _ in found] == [0.0, 0.0, 0.0]


def test_case_with_unknown_label_is_no_neighbour_and_sets_no_range():
    cases = [*CASES, Case((1.0, 1000.0, 0.0), NAN, time=9.0, job_id=9)]
    weights = (1.0, 1.0, 1.0)
    query = (1.0, 6.0, 20.0)
    assert heom.nearest(query, cases, k=9, nominal=NOMINAL, weights=weights) == heom.nearest(
        query, CASES, k=9, nominal=NOMINAL, weights=weights
    )
