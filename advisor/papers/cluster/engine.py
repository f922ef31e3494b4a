"""The simulated cluster: from jobs and a policy to an exact schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.model.errors import BadInput
from advisor.papers.cluster._kernel import advance
from advisor.papers.cluster._state import CLUSTER, JOB, Rules, State
from advisor.papers.cluster.demand import LARGE, Demand
from advisor.papers.cluster.policies import EASY, Correction, Order, Policy
from advisor.simulate.heap import ENDING

_EVENTS_PER_CALL = 20_000  # some 0.03 s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """The result for each job; arrays of length n in the demand's order, times in seconds.

    Attributes:
        start, end: Of the attempt that finished.
        attempts: 1, or 2 for a job that was killed at its limit and started again.
        lost: Run time of the killed attempt, or 0.
    """

    start: Floats
    end: Floats
    attempts: Ints
    lost: Floats


def simulate(demand: Demand, processors: int, policy: Policy = EASY) -> Schedule:
    """Run jobs on a cluster of ``processors`` equal processors with EASY backfilling.

    Deterministic; the rules are in `_kernel`. Raises BadInput when a job is larger than the cluster.
    """
    refuse_too_large(demand, processors)
    state = _fresh_state(demand, processors)
    rules = _rules_of(demand, processors, policy)
    while not advance(state, rules, _EVENTS_PER_CALL):
        pass  # an interrupt is heard here
    return Schedule(
        start=state.jobs["start"].copy(),
        end=state.jobs["end"].copy(),
        attempts=state.jobs["attempts"].copy(),
        lost=state.jobs["lost"].copy(),
    )


def refuse_too_large(demand: Demand, processors: int) -> None:
    """Raise BadInput for a job that could never start: larger than the machine."""
    too_large = demand.processors > processors
    if np.any(too_large):
        row = int(np.argmax(too_large))
        raise BadInput(
            f"job {row + 1} needs {demand.processors[row]} processors; the machine has {processors}",
            where="simulated cluster",
            mend="Simulate a larger machine, or leave the job out",
            code="simulate.too_large",
        )


def _rules_of(demand: Demand, processors: int, policy: Policy) -> Rules:
    # FCFS without classes serves the starved first anyway
    starvation_is_moot = policy.order is Order.FCFS and np.all(demand.job_class == LARGE)
    return Rules(
        total=processors,
        order=int(policy.order),
        backfill=int(policy.backfill),
        theta=math.inf if starvation_is_moot else float(policy.starvation_seconds),
        load_factor=float(policy.starvation_load_factor),
        max_theta=max(float(policy.starvation_at_most_seconds), float(policy.starvation_seconds)),
        predict=policy.predict_recent,
        correct=policy.correction is Correction.STEPS,
    )


def _fresh_state(demand: Demand, processors: int) -> State:
    count = len(demand)
    jobs = np.zeros(count, JOB)
    for column in fields(demand):
        jobs["rank" if column.name == "job_class" else column.name] = getattr(demand, column.name)
    jobs["start"] = jobs["end"] = math.nan
    scalars = np.zeros(1, CLUSTER)
    scalars["free"] = processors
    scalars["shadow"] = math.inf
    max_running = min(count, processors) + 1
    users = int(demand.user.max()) + 1 if count else 0
    return State(
        jobs=jobs,
        queue=np.zeros(count, np.int64),
        running=np.zeros(max_running, np.int64),
        ending=np.zeros(max_running, ENDING),
        recent=np.full((users, 2), math.nan),
        scratch=np.zeros(count, np.int64),
        scalars=scalars,
    )
