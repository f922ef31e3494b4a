"""Genetic search for the estimators' parameters (Cunha et al., sections IV-A and V-A).

`advisor tune` and replays of the published rules search so.

The operators are pymoo's: binary tournaments, simulated binary crossover, polynomial mutation. The loop is
our own: it measures a generation's individuals on all cores, and draws from the caller's generator alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.crossover.sbx import SBX
from pymoo.operators.mutation.pm import PM

from advisor.arrays import Floats
from advisor.predict.knn.fitness import Fitness, SearchSpace, TuningProblem
from advisor.predict.knn.parameters import KnnParameters

_MAX_THREADS: Final = 8
SPREAD: Final = 10.0
"""Distribution index of crossover and mutation: a higher value keeps children closer to their parents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneticSettings:
    """The published search: 50 individuals, 100 generations, crossover 0.8, mutation 0.1, elitism 0.05.

    ``mutation`` is the probability for each gene. ``elitism`` is the share that survives unchanged, at least
    one individual.
    """

    population: int = 50
    generations: int = 100
    crossover: float = 0.8
    mutation: float = 0.1
    elitism: float = 0.05

    @property
    def elite(self) -> int:
        """Individuals that survive unchanged."""
        return max(1, math.ceil(self.elitism * self.population))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TuningState:
    """A search between two generations.

    Attributes:
        population: ndarray of shape (individuals, genes): Points of the unit cube, best first.
        fitness: ndarray of shape (individuals,): RMSE, seconds.
        generation: Generations done; 0 is the random one.
        history: ndarray of shape (generation + 1,): Best RMSE after each generation, seconds.
        rmse_before: RMSE of the initial parameters, seconds.
    """

    population: Floats
    fitness: Floats
    generation: int
    history: Floats
    rmse_before: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TuningResult:
    """The best parameters found, and their RMSE in seconds on the tuning entries before and after."""

    parameters: KnnParameters
    rmse_before: float
    rmse_after: float
    state: TuningState


def tune(
    problem: TuningProblem,
    *,
    generator: np.random.Generator,
    start: KnnParameters | None = None,
    settings: GeneticSettings | None = None,
    progress: Callable[[TuningState], None] | None = None,
) -> TuningResult:
    """Search for the parameters with the smallest RMSE on a problem.

    Args:
        generator: The same seed gives the same result.
        start: Current parameters. They are part of the first generation, so the result is never worse.
        progress: Called with the state after each generation.
    """
    settings = settings or GeneticSettings()
    space = SearchSpace().within(problem)
    start = start or KnnParameters.untuned(problem.schema)
    search = _Search(Fitness(problem), space, settings, generator)
    state = search.first(start)
    if progress is not None:
        progress(state)
    while state.generation < settings.generations:
        state = search.next(state)
        if progress is not None:
            progress(state)
    return TuningResult(
        parameters=space.decode(state.population[0]),
        rmse_before=state.rmse_before,
        rmse_after=float(state.fitness[0]),
        state=state,
    )


class _Search:
    """The steps of the search, one generation at a time."""

    def __init__(
        self,
        fitness: Fitness,
        space: SearchSpace,
        settings: GeneticSettings,
        generator: np.random.Generator,
    ) -> None:
        self._fitness = fitness
        # one a thread: each has its own scratch arrays
        self._fitnesses = (
            fitness,
            *(Fitness(fitness.problem) for _ in range(min(len(os.sched_getaffinity(0)), _MAX_THREADS) - 1)),
        )
        self._space = space
        self._settings = settings
        self._generator = generator
        self._genes = 3 + len(fitness.problem.schema)
        self._cube = Problem(n_var=self._genes, n_obj=1, xl=0.0, xu=1.0)
        self._crossover = SBX(prob=settings.crossover, eta=SPREAD)
        self._mutation = PM(prob=1.0, prob_var=settings.mutation, eta=SPREAD)

    def first(self, start: KnnParameters) -> TuningState:
        """Random individuals and the current parameters."""
        population = self._generator.random((self._settings.population, self._genes))
        population[0] = self._space.encode(start)
        return _sorted_state(
            population,
            self._measure(population),
            generation=0,
            history=np.empty(0),
            rmse_before=self._fitness(start),
        )

    def next(self, state: TuningState) -> TuningState:
        """The elite, and the children of tournament winners."""
        elite = self._settings.elite
        children = self._children(state, self._settings.population - elite)
        return _sorted_state(
            np.concatenate([state.population[:elite], children]),
            np.concatenate([state.fitness[:elite], self._measure(children)]),
            generation=state.generation + 1,
            history=state.history,
            rmse_before=state.rmse_before,
        )

    def _children(self, state: TuningState, count: int) -> Floats:
        pairs = (count + 1) // 2
        # the population is sorted by fitness: the smaller index wins a tournament
        rivals = self._generator.integers(len(state.population), size=(pairs, 2, 2))
        parents = Population.new("X", state.population.copy())
        children = self._crossover.do(self._cube, parents, rivals.min(axis=2), random_state=self._generator)
        mutated = self._mutation.do(self._cube, children, random_state=self._generator)
        return np.asarray(mutated.get("X"), np.float64)[:count]

    def _measure(self, population: Floats) -> Floats:
        """Fitness of each individual, on all cores: the compiled search releases the interpreter lock."""
        shares = np.array_split(np.arange(len(population)), len(self._fitnesses))
        measured = np.empty(len(population))

        def measure(fitness: Fitness, share: NDArray[np.int64]) -> None:
            for index in share:
                measured[index] = fitness(self._space.decode(population[index]))

        pairs = zip(self._fitnesses, shares, strict=True)
        Parallel(n_jobs=len(shares), backend="threading")(delayed(measure)(*pair) for pair in pairs)
        return measured


def _sorted_state(population: Floats, fitness: Floats, **fields: Any) -> TuningState:
    order = np.argsort(fitness, kind="stable")
    state = TuningState(population=population[order], fitness=fitness[order], **fields)
    return replace(state, history=np.append(state.history, state.fitness[0]))
