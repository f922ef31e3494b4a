"""All policies simulated on a full queue; what simulating twenty of sixty loses (Deng et al., section 6.5).

The paper has 200 ms for twenty policies, 256 nodes and queues of up to a hundred jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from advisor.decide.portfolio import Budget
from advisor.model.table import JobTable
from advisor.replay.portfolio import replay_selection
from advisor.replay.portfolio_charge import Options, prepared
from advisor.replay.sources import load_table
from advisor.simulate.portfolio._state import JOB, NODE
from advisor.simulate.portfolio.cluster import Cloud, RentedCluster, Runtimes
from advisor.simulate.portfolio.online import OnlineSimulator, Situation
from advisor.simulate.portfolio.policies import PUBLISHED

Tell = Callable[[str], None]
NODES: Final = 256
_NOW: Final = 86_400.0


def run(
    *,
    situations: int = 200,
    trace: str = "synthetic:5000",
    jobs: int | None = None,
    simulate: int = 20,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Measure.

    Parameters
    ----------
    situations : int
        Queues of each length, drawn anew; each is simulated under all sixty policies.
    trace : str
        A log on which Algorithm 1 is compared with simulating all; or ``synthetic[:jobs[:seed]]``.
    jobs : int, optional
        Its first jobs only.
    simulate : int
        Policies that Algorithm 1 simulates for each choice.
    tell : callable
        Told what is being done.
    """
    lengths = {}
    for queued in (100, 500):
        tell(f"{queued} queued jobs")
        lengths[str(queued)] = _timed(queued, situations)
    tell("Algorithm 1")
    options = Options(cloud=Cloud(), runtimes=Runtimes.ACTUAL)
    log = prepared(load_table(trace), options.cloud, jobs)
    every = replay_selection(log, options)
    some = replay_selection(log, replace(options, budget=Budget(policies=simulate)))
    return {
        "policies": len(PUBLISHED),
        "nodes": NODES,
        "situations": situations,
        "simulate_all_policies_ms": lengths,
        "algorithm_1": {
            "trace": log.name,
            "jobs": len(log),
            "simulated": simulate,
            "utility_all": every.utility(),
            "utility_some": some.utility(),
            "lost_points": 100.0 * (1.0 - some.utility() / every.utility()),
        },
    }


def _timed(queued: int, situations: int) -> dict[str, float]:
    """Milliseconds of one core for all policies: processor time, and by the clock."""
    rules = RentedCluster(_one_job(), Cloud(max_nodes=NODES), Runtimes.ACTUAL, PUBLISHED[:1]).rules
    simulator = OnlineSimulator(PUBLISHED, rules)
    generator = np.random.default_rng(1)
    every = np.arange(len(PUBLISHED))
    simulator.simulate(situation(queued, generator), every)  # compiles
    core, clock = [], []
    for _ in range(situations):
        drawn = situation(queued, generator)
        began, began_core = time.perf_counter(), time.thread_time()
        simulator.simulate(drawn, every)
        core.append(1000 * (time.thread_time() - began_core))
        clock.append(1000 * (time.perf_counter() - began))
    return {
        "p50": float(np.percentile(core, 50)),
        "p99": float(np.percentile(core, 99)),
        "max": float(np.max(core)),
        "clock_p50": float(np.percentile(clock, 50)),
        "clock_p99": float(np.percentile(clock, 99)),
    }


def situation(queued: int, generator: np.random.Generator) -> Situation:
    """A queue of mixed jobs on 256 nodes, some idle, some booting, most busy for up to ten hours."""
    job = np.zeros(queued, JOB)
    job["submit"] = np.sort(_NOW - generator.exponential(1800.0, queued))
    job["run"] = job["estimate"] = np.clip(np.exp(generator.normal(6.0, 2.0, queued)), 1.0, 172_800.0)
    job["processors"] = np.minimum(2 ** generator.integers(0, 7, queued), 64)
    node = np.zeros(NODES, NODE)
    node["since"] = _NOW - generator.uniform(0.0, 7200.0, NODES)
    kind = generator.random(NODES)
    busy = kind < generator.uniform(0.3, 1.0)
    node["row"] = np.where(kind > 0.97, -1, 0)
    booting = node["row"] < 0
    node["since"][booting] = _NOW - generator.uniform(0.0, 119.0, int(booting.sum()))
    node["ready"] = np.where(busy, _NOW + generator.exponential(9000.0, NODES), _NOW - 1.0)
    node["ready"][booting] = node["since"][booting] + 120.0
    node["begun"] = node["since"]
    node["estimate"] = node["ready"] - node["begun"]
    return Situation(now=_NOW, profile=node, jobs=job, present=queued)


def _one_job() -> JobTable:
    return load_table("synthetic:10").select(slice(0, 1))
