"""All policies simulated on a full queue; what simulating twenty of sixty loses (Deng et al., section 6.5).

The paper has 200 ms for twenty policies, 256 nodes and queues of up to a hundred jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from advisor.decide.portfolio.portfolio import Budget
from advisor.decide.portfolio.portfolio_lead import utility_of
from advisor.decide.portfolio.portfolio_options import Options
from advisor.decide.portfolio.portfolio_standing import Watcher, run_led
from advisor.decide.portfolio.replay_knowledge import Leadership, prepared, prior_of
from advisor.model.table import JobTable
from advisor.replay.sources import load_table
from advisor.simulate.portfolio.arrivals import REMEMBERED, ExpectedJob, Hindrance
from advisor.simulate.portfolio.cluster import Cloud, RentedCluster, Runtimes, Totals
from advisor.simulate.portfolio.online import OnlineSimulator, Situation
from advisor.simulate.portfolio.policies import PUBLISHED, RELEASE_WORDS
from advisor.simulate.portfolio.state import JOB, NODE

Tell = Callable[[str], None]
NODES: Final = 256
_NOW: Final = 86_400.0
_LOG: Final = "synthetic:5000"
"""Where queued and running jobs are drawn from."""


def run(
    *,
    situations: int = 200,
    trace: str = "synthetic:5000",
    jobs: int | None = None,
    simulate: int = 20,
    seeds: int = 3,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Measure queues of each length under all sixty policies, and Algorithm 1 on the first jobs of a log.

    ``situations`` queues are drawn for each length. Algorithm 1 simulates ``simulate`` policies for each
    choice and runs with ``seeds`` seeds, because it draws among the poor policies.
    """
    lengths = {}
    for queued in (100, 500):
        tell(f"{queued} queued jobs")
        lengths[str(queued)] = _timed(queued, situations)
    tell("Algorithm 1: all policies")
    options = Options(cloud=Cloud(), runtimes=Runtimes.ACTUAL)
    log = prepared(load_table(trace), options.cloud, jobs)
    every = _under_selection(log, options).utility()
    some = []
    for seed in range(1, seeds + 1):
        tell(f"Algorithm 1: {simulate} of {len(PUBLISHED)}, seed {seed} of {seeds}")
        limited = replace(options, budget=Budget(policies=simulate), seed=seed)
        some.append(_under_selection(log, limited).utility())
    return {
        "policies": len(PUBLISHED),
        "billing": options.cloud.release.billing,
        "release_rule": RELEASE_WORDS[options.cloud.release],
        "runtimes": options.runtimes.value,
        "nodes": NODES,
        "situations": situations,
        "simulate_all_policies_ms": lengths,
        "algorithm_1": {
            "trace": log.name,
            "jobs": len(log),
            "simulated": simulate,
            "utility_all": every,
            "utility_some": some,
            # points of the utility, which kappa scales to 100 at best; and per cent of it
            "lost_points": [every - one for one in some],
            "lost_points_mean": every - float(np.mean(some)),
            "lost_per_cent": [100.0 * (1.0 - one / every) for one in some],
            "lost_per_cent_mean": 100.0 * (1.0 - float(np.mean(some)) / every),
        },
    }


def _under_selection(jobs: JobTable, options: Options) -> Totals:
    """A log under selection alone, by the first margin, with the prior's champion to deviate from."""
    champion = int(np.argmax(utility_of(prior_of(options.policies, options), options)))
    watcher = Watcher(lambda: None)
    return run_led(jobs, options, Leadership(np.array([champion]), [0]), jobs.submit, watcher, 0).totals


def _timed(queued: int, situations: int) -> dict[str, float]:
    """Milliseconds of one core for all policies: processor time, and by the clock."""
    log = prepared(load_table(_LOG), Cloud(max_nodes=NODES), None)
    rules = RentedCluster(
        log.select(slice(0, 1)), Cloud(max_nodes=NODES), Runtimes.ACTUAL, PUBLISHED[:1]
    ).rules
    simulator = OnlineSimulator(PUBLISHED, rules)
    generator = np.random.default_rng(1)
    recent = log.select(slice(0, REMEMBERED))
    hindrance = Hindrance.of(log.processors, log.run, float(log.submit[-1] - log.submit[0]), NODES)
    ready = ExpectedJob.of(recent.processors, recent.run, rules).at(1.0 / 600.0, hindrance)
    every = np.arange(len(PUBLISHED))
    simulator.simulate(replace(situation(queued, log, generator), ready=ready), every)  # compiles
    core, clock = [], []
    for _ in range(situations):
        drawn = replace(situation(queued, log, generator), ready=ready)
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


def situation(queued: int, log: JobTable, generator: np.random.Generator) -> Situation:
    """A queue and running jobs drawn from a log, on 256 nodes: some of these idle, a few booting."""
    row = generator.integers(0, len(log), queued)
    job = np.zeros(queued, JOB)
    job["submit"] = np.sort(_NOW - generator.exponential(1800.0, queued))
    job["run"] = job["estimate"] = log.run[row]
    job["processors"] = log.processors[row]
    node = np.zeros(NODES, NODE)
    rented = _NOW - 20.0 * generator.integers(0, 360, NODES // 8)  # eight at a time
    node["since"] = np.repeat(rented, 8)
    node["begun"], node["ready"], node["row"] = node["since"], _NOW - 1.0, 0
    booting = slice(NODES - 8, NODES)
    node["since"][booting] = _NOW - generator.integers(0, 6) * 20.0
    node["ready"][booting], node["row"][booting] = node["since"][booting] + 120.0, -1
    at, busy = 0, int(generator.uniform(0.3, 1.0) * (NODES - 8))
    while at < busy:
        running = int(generator.integers(0, len(log)))
        part = slice(at, min(at + int(log.processors[running]), busy))
        node["ready"][part] = _NOW + generator.uniform(0.0, 1.0) * log.run[running] + 1.0
        at = part.stop
    node["estimate"] = node["ready"] - node["begun"]
    return Situation(now=_NOW, profile=node, jobs=job)
