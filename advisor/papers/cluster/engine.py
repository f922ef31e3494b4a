"""The simulated cluster: from jobs and a policy to an exact schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.model.errors import BadInput
from advisor.papers.cluster._kernel import advance
from advisor.papers.cluster._state import CLOUD, CLUSTER, DONE, JOB, Rules, State
from advisor.papers.cluster.demand import LARGE, Demand
from advisor.papers.cluster.policies import EASY, Correction, Order, Policy
from advisor.simulate.heap import ENDING

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (jobs ended, jobs)."""

_EVENTS_PER_CALL = 20_000  # some 0.03 s between two reports of progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """The cloud partition, for jobs whose patience ends; each job gets its own node.

    Attributes:
        boot_seconds: From the request of the node to the job's start.
        slowdown: Run time in the cloud over run time on the cluster.
    """

    boot_seconds: float = 0.0
    slowdown: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """The result for each job; arrays of length n in the demand's order, times in seconds.

    Attributes:
        start, end: Of the attempt that finished.
        attempts: 1, or 2 for a job that was killed at its limit and started again.
        lost: Run time of the killed attempt, or 0.
        in_cloud: Whether the job ran in the cloud partition.
        events: Moments at which something happened.
    """

    start: Floats
    end: Floats
    attempts: Ints
    lost: Floats
    in_cloud: np.ndarray[tuple[int], np.dtype[np.bool_]]
    events: int


def simulate(
    demand: Demand,
    processors: int,
    policy: Policy = EASY,
    *,
    cloud: Cloud | None = None,
    progress: Progress | None = None,
) -> Schedule:
    """Run jobs on a cluster of ``processors`` equal processors with EASY backfilling.

    Deterministic; the rules are in `_kernel`. Without ``cloud``, jobs whose patience ends start at once and
    run at the same speed. ``progress`` is called now and then. Raises BadInput when a job that stays on the
    cluster is larger than it.
    """
    cloud = cloud or Cloud()
    refuse_too_large(demand, processors)
    rules = _rules_of(demand, processors, policy, cloud)
    state = _fresh_state(demand, processors)
    while not advance(state, rules, _EVENTS_PER_CALL):
        if progress is not None:
            ended = np.count_nonzero(state.jobs["where"] >= DONE)
            progress(int(ended), len(demand))
    if progress is not None:
        progress(len(demand), len(demand))
    return Schedule(
        start=state.jobs["start"].copy(),
        end=state.jobs["end"].copy(),
        attempts=state.jobs["attempts"].copy(),
        lost=state.jobs["lost"].copy(),
        in_cloud=state.jobs["where"] == CLOUD,
        events=int(state.scalars["events"][0]),
    )


def refuse_too_large(demand: Demand, processors: int) -> None:
    """Raise BadInput for a job that could never start: larger than the machine, with unlimited patience."""
    too_large = (demand.processors > processors) & (demand.patience == math.inf)
    if np.any(too_large):
        row = int(np.argmax(too_large))
        raise BadInput(
            f"job {row + 1} needs {demand.processors[row]} processors; the machine has {processors}",
            where="simulated cluster",
            mend="Simulate a larger machine, or leave the job out",
            code="simulate.too_large",
        )


def _rules_of(demand: Demand, processors: int, policy: Policy, cloud: Cloud) -> Rules:
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
        boot=float(cloud.boot_seconds),
        slowdown=float(cloud.slowdown),
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
    leaving = np.flatnonzero((demand.patience >= 0) & np.isfinite(demand.patience))
    leave_time = demand.submit[leaving] + demand.patience[leaving]
    max_running = min(count, processors) + 1
    users = int(demand.user.max()) + 1 if count else 0
    return State(
        jobs=jobs,
        queue=np.zeros(count, np.int64),
        running=np.zeros(max_running, np.int64),
        ending=np.zeros(max_running, ENDING),
        recent=np.full((users, 2), math.nan),
        leaving=leaving[np.argsort(leave_time, kind="stable")],
        scratch=np.zeros(count, np.int64),
        scalars=scalars,
    )
