"""Ambati et al.: a log under each waiting policy, what it rents and how long its jobs wait.

Figures are of the last 30 % of the log's jobs, as in the paper; what is learned is learned before. Fixed
resources are cores at the reserved price, held all the time; rented are the cores of each job while it runs
there. A job larger than the fixed cores is rented for under every policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from advisor.model.table import JobTable
from advisor.papers.waiting.optimal_cores import coarse_optimum
from advisor.papers.waiting.waiting_policies import WaitingPolicy, policies
from advisor.papers.waiting.waiting_results import figures, scores_of
from advisor.papers.waiting.waiting_rows import Replayed, workload_from
from advisor.papers.waiting.waiting_worlds import Case, LearningOptions, Lockstep
from advisor.papers.waiting.world.costs import CostModel
from advisor.papers.waiting.world.world import Dispatch, Outcome, Simulation
from advisor.parallel import Tick, side_by_side

Progress = Callable[[str, int, int], None]

LEARNER: Final = "speculation+wait-model"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingOptions:
    """What is replayed.

    Attributes:
        fixed_cores: None: the cost optimum (`advisor.papers.waiting.optimal_cores`).
        short_seconds, longest_wait_seconds: t and b.
        capacity: {"on-demand", "spot"}: What speculations run on.
        dispatch: Which waiting job is next on fixed cores.
        costs: Prices.
        judged_share: Share of the jobs, the last ones, whose figures are given.
        seed: Of spot revocations.
        learning: How the wait model learns.
    """

    fixed_cores: int | None = None
    short_seconds: float = 900.0
    longest_wait_seconds: float = 86_400.0
    capacity: str = "spot"
    dispatch: Dispatch = Dispatch.FCFS
    costs: CostModel = field(default_factory=CostModel)
    judged_share: float = 0.3
    seed: int = 1
    learning: LearningOptions = field(default_factory=LearningOptions)

    @property
    def trial_costs(self) -> CostModel:
        """Prices with trials on the chosen capacity: on-demand costs its price and is never revoked."""
        if self.capacity == "spot":
            return self.costs
        return replace(self.costs, spot=self.costs.on_demand, spot_mean_seconds=np.inf)


def _outcome(task: tuple[Replayed, WaitingPolicy, Simulation], _tick: Tick | None) -> Outcome:
    replayed, policy, learner = task
    return replayed.outcome(policy, learner)


def report(
    table: JobTable, options: WaitingOptions, *, processes: int = 1, progress: Progress | None = None
) -> dict[str, Any]:
    """What ``advisor replay waiting --format json`` prints.

    Args:
        table: A log in submission order.
        options: What is replayed.
        processes: Policies without a wait model that are run at the same time.
        progress: Called with (what, done, all).
    """
    begun = time.perf_counter()
    tell = progress or (lambda *_: None)
    t, b, costs = options.short_seconds, options.longest_wait_seconds, options.trial_costs
    workload = workload_from(table, costs, options.seed)
    cores = options.fixed_cores or coarse_optimum(workload, t, b, options.costs, tell)
    every = policies(t, b)
    replayed = Replayed(workload=workload, cores=cores, dispatch=options.dispatch)
    outcomes: dict[str, Outcome] = {"oracle": replayed.outcome(every["oracle"])}
    learner = every[LEARNER]
    case = Case(
        workload=workload,
        cores=cores,
        short_seconds=t,
        longest_wait_seconds=b,
        skip_below=learner.skip_trial_below,
        dispatch=options.dispatch,
    )
    learned = Lockstep(case, options.learning).run(tell)
    outcomes[LEARNER] = learned.real.outcome()
    left = [policy for policy in every.values() if policy.name not in outcomes]
    tell("policies", 0, len(left))
    tasks = [(replayed, policy, learned.real) for policy in left]
    found = side_by_side(_outcome, tasks, [1] * len(left), processes=processes, tick=tell, what="policies")
    outcomes |= {policy.name: outcome for policy, outcome in zip(left, found, strict=True)}
    tell("policies", len(left), len(left))
    first = int((1.0 - options.judged_share) * len(workload))
    return {
        "trace": table.name,
        "jobs": len(workload),
        "jobs_judged": len(workload) - first,
        "fixed_cores": cores,
        "short_seconds": t,
        "longest_wait_seconds": b,
        "capacity": options.capacity,
        "dispatch": options.dispatch.value,
        "rows": figures(workload, cores, {name: outcomes[name] for name in every}, costs, first),
        "wait_model": scores_of(learned.scores, options.learning.thresholds, first, workload),
        "price_core_seconds_per_second": learned.price,
        "seconds": time.perf_counter() - begun,
    }
