"""Fitness and genetic search."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.predict.knn.estimator import KnnEstimator
from advisor.predict.knn.features import Encoder, FeatureSchema
from advisor.predict.knn.fitness import NAN_PENALTY, Fitness, SearchSpace, TuningProblem
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.tracker import states_of
from advisor.predict.knn.tuning import GeneticSettings, tune
from tests.predict.knn import heom
from tests.predict.knn.heom import Case

SCHEMA = FeatureSchema("test", ("user", "requested_time", "queue_size"))
QUICK = GeneticSettings(population=16, generations=8)


def problem_of(cases=400, entries=60, seed=1):
    """Labels follow the user and the request; the queue's size is noise that misleads."""
    generator = np.random.default_rng(seed)
    rows = cases + entries
    features = np.column_stack(
        [generator.integers(0, 6, rows), generator.random(rows), generator.random(rows)]
    )
    labels = 100.0 * features[:, 0] + 1000.0 * features[:, 1] ** 2 + generator.normal(0, 5.0, rows)
    return TuningProblem(
        cases=features[:cases],
        labels=labels[:cases],
        times=np.arange(float(cases)),
        job_ids=np.arange(cases),
        queries=np.ascontiguousarray(features[cases:]),
        truths=labels[cases:],
        schema=SCHEMA,
    )


@pytest.mark.parametrize("s", [30, 250, 1000])
def test_fitness_is_the_error_of_the_estimator(s):
    problem = problem_of()
    parameters = KnnParameters(5, 0.4, s, (1.0, 2.0, 0.5))
    estimator = KnnEstimator(parameters, SCHEMA)
    estimator.add_many(problem.cases, problem.labels, times=problem.times, job_ids=problem.job_ids)
    expected = np.array([estimator.estimate(query).seconds for query in problem.queries])
    fitness = Fitness(problem)
    assert fitness.predict(parameters).tolist() == expected.tolist()
    assert fitness(parameters) == pytest.approx(heom.rmse(expected.tolist(), problem.truths.tolist()))


def test_fitness_by_the_definition():
    problem = problem_of(cases=40, entries=5)
    cases = [
        Case(row, label, time, job)
        for row, label, time, job in zip(
            problem.cases.tolist(), problem.labels, problem.times, problem.job_ids, strict=True
        )
    ]
    weights = (1.0, 2.0, 0.5)
    guesses = [
        heom.estimate(
            heom.nearest(query, cases[-25:], k=4, nominal=(True, False, False), weights=weights), 0.6
        )
        for query in problem.queries.tolist()
    ]
    expected = heom.rmse(guesses, problem.truths.tolist())
    assert Fitness(problem)(KnnParameters(4, 0.6, 25, weights)) == pytest.approx(expected)


def test_estimates_that_are_nan_are_penalised_by_their_share():
    fitness = Fitness(problem_of())
    few, many = (fitness(KnnParameters(1, omega, 400, (1.0, 1.0, 1.0))) for omega in (0.004, 0.0001))
    assert NAN_PENALTY < few < many <= 2 * NAN_PENALTY


def test_search_space_decodes_what_it_encodes():
    space = SearchSpace(k=(1, 64), omega=(0.02, 5.0), s=(100, 10_000))
    parameters = KnnParameters(16, 0.5, 5000, (0.25, 1.0, 0.0))
    again = space.decode(space.encode(parameters))
    assert (again.k, again.s, again.weights) == (16, 5000, parameters.weights)
    assert again.omega == pytest.approx(0.5)
    generator = np.random.default_rng(0)
    for _ in range(200):
        found = space.decode(generator.random(6))
        assert 1 <= found.k <= 64
        assert 0.0199 <= found.omega <= 5.001
        assert 100 <= found.s <= 10_000


def test_weights_above_1_are_scaled_with_omega():
    problem = problem_of()
    parameters = KnnParameters(5, 1.0, 400, (1.0, 4.0, 2.0))
    space = SearchSpace().within(problem)
    again = space.decode(space.encode(parameters))
    assert max(again.weights) == 1.0
    assert again.omega == pytest.approx(0.5)
    fitness = Fitness(problem)
    assert fitness(again) == pytest.approx(fitness(parameters))


def test_space_is_cut_to_the_knowledge_base():
    space = SearchSpace().within(problem_of(cases=20))
    assert space.s == (20, 20)
    assert space.k == (1, 20)
    assert space.decode(np.ones(6)).s == 20


def test_tuning_finds_the_informative_features():
    problem = problem_of()
    result = tune(problem, generator=np.random.default_rng(4), settings=QUICK)
    assert result.rmse_after < 0.6 * result.rmse_before
    assert Fitness(problem)(result.parameters) == result.rmse_after
    user, request, noise = result.parameters.weights
    assert noise < min(user, request)
    fresh = problem_of(seed=2)
    assert Fitness(fresh)(result.parameters) < Fitness(fresh)(KnnParameters.untuned(SCHEMA))


def test_never_worse_than_the_parameters_in_force():
    problem = problem_of()
    good = tune(problem, generator=np.random.default_rng(4), settings=QUICK).parameters
    short = GeneticSettings(population=4, generations=1)
    again = tune(problem, generator=np.random.default_rng(5), start=good, settings=short)
    assert again.rmse_after <= again.rmse_before * (1 + 1e-9)


def test_best_never_gets_worse_and_progress_sees_every_generation():
    states = []
    result = tune(problem_of(), generator=np.random.default_rng(4), settings=QUICK, progress=states.append)
    assert [state.generation for state in states] == list(range(QUICK.generations + 1))
    assert np.all(np.diff(result.state.history) <= 0)
    assert len(result.state.history) == QUICK.generations + 1
    for state in states:
        assert np.all(np.diff(state.fitness) >= 0)
        assert state.population.shape == (16, 6)


def test_same_seed_same_result():
    one, two, other = (
        tune(problem_of(), generator=np.random.default_rng(seed), settings=QUICK) for seed in (4, 4, 5)
    )
    assert np.array_equal(one.state.population, two.state.population)
    assert not np.array_equal(one.state.population, other.state.population)


def test_published_settings():
    settings = GeneticSettings()
    assert (settings.population, settings.generations, settings.elite) == (50, 100, 3)
    assert (settings.crossover, settings.mutation, settings.elitism) == (0.8, 0.1, 0.05)


def log(jobs=100):
    codes = np.ones(jobs, np.int64)
    return JobTable(
        job_id=np.arange(jobs),
        submit=10.0 * np.arange(jobs),
        wait=np.where(np.arange(jobs) % 10 == 0, -1.0, 25.0),
        run=np.where(np.arange(jobs) % 7 == 0, 0.0, 200.0),
        processors=codes,
        requested_time=np.full(jobs, 300.0),
        user=codes,
        group=codes,
        queue=codes,
        status=codes,
        total_processors=64,
    )


@pytest.mark.parametrize(("target", "delay"), [("wait", 25.0), ("run", 225.0)])
def test_problem_contains_only_cases_known_before_its_entries(target, delay):
    table = log()
    problem = TuningProblem.from_log(table, states_of(table), Encoder(), target, at=80, entries=10)
    is_known = (table.end if target == "run" else table.start) < table.submit[80]
    usable = [row for row in range(80) if row % 7 and (target == "run" or row % 10) and is_known[row]]
    test = usable[-10:]
    assert problem.queries[:, 3].tolist() == [10.0 * row for row in test]
    now = 10.0 * test[0]
    assert problem.times.max() < now
    slack = now - problem.times.max()
    assert slack <= 30.0  # and of what was known, the newest is there
    assert np.all(np.diff(problem.times) >= 0)
    assert delay in problem.times - 10.0 * problem.job_ids
    assert set(problem.labels) <= {25.0, 200.0}
    assert not math.isnan(problem.truths.sum())


@pytest.mark.parametrize(("jobs", "entries"), [(0, 10), (5, 10), (12, 10)])
def test_too_short_a_history_is_refused(jobs, entries):
    table = log(jobs)
    with pytest.raises(BadInput, match="advisor ingest"):
        TuningProblem.from_log(table, states_of(table), Encoder(), "run", entries=entries)
