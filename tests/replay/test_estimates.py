"""Only what was known at a submission is used."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from advisor.model.table import JobTable
from advisor.predict.knn.estimator import KnnEstimator
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.known import Known
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.tracker import states_of
from advisor.replay.estimates import estimate_rows


def make_table(seed: int = 0, n: int = 120) -> JobTable:
    generator = np.random.default_rng(seed)
    submit = np.sort(generator.integers(0, 4000, n)).astype(np.float64)  # many ties
    return JobTable(
        job_id=np.arange(1, n + 1),
        submit=submit,
        wait=generator.integers(-1, 300, n).astype(np.float64),
        run=generator.integers(-1, 400, n).astype(np.float64),
        processors=generator.integers(1, 8, n),
        requested_time=np.where(generator.random(n) < 0.1, np.nan, generator.integers(100, 900, n)),
        user=generator.integers(0, 5, n),
        group=generator.integers(-1, 2, n),
        queue=generator.integers(0, 2, n),
        status=np.ones(n, np.int64),
        total_processors=16,
        name="made",
    )


@pytest.mark.parametrize("target", ["wait", "run"])
def test_each_estimate_is_that_of_a_fresh_estimator_told_only_the_past(target):
    table = make_table()
    encoder = Encoder()
    features = encoder.encode_table(table, states_of(table))
    parameters = KnnParameters(k=5, omega=1.0, s=30, weights=(1.0,) * len(encoder.schema))
    rows = np.flatnonzero(table.run > 0)[20:]
    ticks: list[int] = []
    found = estimate_rows(table, features, rows, parameters, target, encoder=encoder, tick=ticks.append)

    assert sum(ticks) == len(rows)
    labels = table.wait if target == "wait" else table.run
    when = table.start if target == "wait" else table.end
    for index, row in enumerate(rows):
        fresh = KnnEstimator(parameters, encoder.schema)
        known = np.flatnonzero((table.run > 0) & (labels >= 0) & (when < table.submit[row]))
        for case in known[np.argsort(when[known], kind="stable")]:
            fresh.add(features[case], labels[case], time=when[case], job_id=int(table.job_id[case]))
        expected = fresh.estimate(features[row])
        assert found.seconds[index] == pytest.approx(expected.seconds, nan_ok=True)
        assert found.variance[index] == pytest.approx(expected.variance, nan_ok=True)
        assert found.neighbours[index] == expected.neighbours
        assert found.lower[index] == pytest.approx(expected.lower, nan_ok=True)


def test_the_future_changes_nothing():
    table = make_table(1)
    encoder = Encoder()
    parameters = KnnParameters(k=5, omega=1.0, s=500, weights=(1.0,) * len(encoder.schema))
    features = encoder.encode_table(table, states_of(table))
    rows = np.arange(60, 80)
    before = estimate_rows(table, features, rows, parameters, "run", encoder=encoder)
    late = table.end >= table.submit[79]
    changed = table.run.copy()
    changed[late] += 1e6  # whatever ended after the last submission ends even later
    other = JobTable(
        **{name: getattr(table, name) for name in table.__slots__} | {"run": changed},
    )
    after = estimate_rows(other, features, rows, parameters, "run", encoder=encoder)
    np.testing.assert_array_equal(before.seconds, after.seconds)


def test_nothing_known_yet_is_no_estimate():
    table = make_table(2, n=5)
    encoder = Encoder()
    features = encoder.encode_table(table, states_of(table))
    parameters = KnnParameters(k=5, omega=1.0, s=500, weights=(1.0,) * len(encoder.schema))
    found = estimate_rows(table, features, np.arange(1), parameters, "wait", encoder=encoder)
    assert math.isnan(found.seconds[0])
    assert math.isinf(found.variance[0])
    empty = estimate_rows(table, features, np.arange(0), parameters, "wait", encoder=encoder)
    assert len(empty.seconds) == 0


def test_labels_below_zero_and_jobs_that_never_ran_teach_nothing():
    table = make_table(3)
    known = Known.of(table, "wait")
    assert (table.run[known.rows] > 0).all()
    assert (table.wait[known.rows] >= 0).all()
    assert (np.diff(known.times) >= 0).all()


def test_jobs_under_way_teach_only_what_is_known():
    table = make_table()
    ran = np.flatnonzero((table.run > 0) & (table.wait >= 0))
    wait, run = table.wait.copy(), table.run.copy()
    wait[ran[5]], run[ran[5]], run[ran[6]] = np.inf, np.inf, np.inf
    under_way = replace(table, wait=wait, run=run)
    assert ran[5] not in Known.of(under_way, "wait").rows
    assert ran[6] in Known.of(under_way, "wait").rows
    assert ran[6] not in Known.of(under_way, "run").rows
