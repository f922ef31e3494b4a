"""Tuning one estimator by the published genetic search, with differential evolution as a control."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import differential_evolution

from advisor.predict.knn.features import CUNHA_TABLE_I, Encoder
from advisor.predict.knn.fitness import Fitness, SearchSpace, TuningProblem
from advisor.predict.knn.known import Target
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.tracker import states_of
from advisor.predict.knn.tuning import GeneticSettings, TuningResult, tune
from advisor.replay.sources import load_table

Tell = Callable[[str], None]


def run(
    *,
    trace: str | Path = "synthetic",
    target: Target = "wait",
    at: int = 10_000,
    population: int = 50,
    generations: int = 100,
    control: bool = True,
    seed: int = 1,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Measure the search for the parameters of the estimator of waits or run times.

    Row ``at`` stands for now: the newest 500 jobs known then are tuned on, the 500 after it are the hold-out.
    ``control``: scipy's differential evolution searches too, with as many evaluations.
    """
    tell(f"reading {trace}")
    table = load_table(trace, keep="all")
    encoder = Encoder(start_of_log=table.start_of_log, utc_offset_seconds=table.utc_offset_seconds)
    states = states_of(table)
    problem = TuningProblem.from_log(table, states, encoder, target, at=at)
    until = table.select(slice(0, at + 500))
    later = TuningProblem.from_log(until, states_of(until), encoder, target)
    untuned = KnnParameters.untuned(CUNHA_TABLE_I)
    Fitness(problem)(untuned)  # compiled before the clock starts
    tell(f"genetic search on {table.name}, {target}")
    began = time.perf_counter()
    result = tune(
        problem,
        generator=np.random.default_rng(seed),
        settings=GeneticSettings(population=population, generations=generations),
    )
    seconds = time.perf_counter() - began
    on_later = Fitness(later)
    found: dict[str, Any] = {
        "trace": table.name,
        "target": target,
        "population": population,
        "generations": generations,
        "seconds": seconds,
        "rmse_before": result.rmse_before,
        "rmse_after": result.rmse_after,
        "holdout": {"rmse_before": on_later(untuned), "rmse_after": on_later(result.parameters)},
        "knowledge_base": len(problem.cases),
        "control": None,
    }
    if control:
        tell("differential evolution")
        found["control"] = _control(problem, on_later, result, population, generations, seed)
    return found


def _control(
    problem: TuningProblem,
    on_later: Fitness,
    result: TuningResult,
    population: int,
    generations: int,
    seed: int,
) -> dict[str, Any]:
    """Search the same cube by scipy, with the same number of evaluations."""
    space, fitness = SearchSpace().within(problem), Fitness(problem)
    generator = np.random.default_rng(seed)
    first = generator.random((population, result.state.population.shape[1]))

    def cost(genes: NDArray[np.float64]) -> float:
        return fitness(space.decode(genes))

    began = time.perf_counter()
    best = differential_evolution(
        cost,
        bounds=[(0.0, 1.0)] * first.shape[1],
        init=first,
        maxiter=generations,
        tol=0.0,
        polish=False,
        rng=generator,
    )
    return {
        "name": "scipy.optimize.differential_evolution",
        "seconds": time.perf_counter() - began,
        "evaluations": int(best.nfev),
        "rmse_after": float(best.fun),
        "holdout_rmse_after": on_later(space.decode(best.x)),
    }
