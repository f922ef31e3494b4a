"""The simulated cluster: jobs and a policy in, an exact schedule out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from advisor.model.errors import BadInput
from advisor.simulate._kernel import advance
from advisor.simulate.demand import LARGE, Demand, Floats, Ints
from advisor.simulate.policies import EASY, Correction, Order, Policy
from advisor.simulate.state import CLOUD, CLUSTER, DONE, ENDING, JOB, Rules, State

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (jobs ended, jobs)."""

_EVENTS_A_CALL = 20_000  # a few hundredths of a second between two reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """The cloud partition, for jobs whose patience ends; every job gets a node of its own.

    Attributes
    ----------
    boot_seconds : float
        From asking for the node to the job's start.
    slowdown : float
        Run time there over run time on the cluster.
    """

    boot_seconds: float = 0.0
    slowdown: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """What became of each job; arrays of length n in the demand's order, seconds.

    Attributes
    ----------
    start, end : float64
        Of the attempt that finished.
    attempts : int64
        1, or 2 for a job that was killed at its limit and started again.
    lost : float64
        Run time of the attempt that was killed, 0 without one.
    in_cloud : bool
        Whether the job ran in the cloud partition.
    events : int
        Moments at which something happened.
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

    Deterministic; the rules are stated in ``advisor.simulate._kernel`` and, plainly, in
    ``tests/simulate/oracle.py``.

    Parameters
    ----------
    demand : Demand
        The jobs, in submission order.
    processors : int
        Size of the machine.
    policy : Policy
        How the scheduler decides.
    cloud : Cloud, optional
        Where jobs go whose patience ends; by default nothing boots and nothing is slower there.
    progress : callable, optional
        Called now and then with (jobs ended, jobs).

    Raises
    ------
    BadInput
        A job that waits for the machine is larger than it.
    """
    cloud = cloud or Cloud()
    refuse_too_large(demand, processors)
    rules = _rules_of(demand, processors, policy, cloud)
    state = _fresh_state(demand, processors)
    while not advance(state, rules, _EVENTS_A_CALL):
        if progress is not None:
            ended = np.count_nonzero(state.job["where"] >= DONE)
            progress(int(ended), len(demand))
    if progress is not None:
        progress(len(demand), len(demand))
    return Schedule(
        start=state.job["start"].copy(),
        end=state.job["end"].copy(),
        attempts=state.job["attempts"].copy(),
        lost=state.job["lost"].copy(),
        in_cloud=state.job["where"] == CLOUD,
        events=int(state.cluster["events"][0]),
    )


def refuse_too_large(demand: Demand, processors: int) -> None:
    """Refuse a demand with a job that could never start.

    Raises
    ------
    BadInput
        A job that waits for the machine is larger than it.
    """
    too_large = (demand.processors > processors) & (demand.patience == math.inf)
    if np.any(too_large):
        row = int(np.argmax(too_large))
        raise BadInput(
            f"job {row + 1} needs {demand.processors[row]} of {processors} processors",
            where="simulated cluster",
            mend="Simulate a larger machine or leave the job out",
            code="simulate.too_large",
        )


def _rules_of(demand: Demand, processors: int, policy: Policy, cloud: Cloud) -> Rules:
    # among large jobs first come, first served, the starved are at the front already
    needless = policy.order is Order.FCFS and np.all(demand.job_class == LARGE)
    return Rules(
        total=processors,
        order=int(policy.order),
        backfill=int(policy.backfill),
        theta=math.inf if needless else float(policy.starvation_seconds),
        load_factor=float(policy.starvation_load_factor),
        theta_at_most=max(float(policy.starvation_at_most_seconds), float(policy.starvation_seconds)),
        predict=policy.predict_recent,
        correct=policy.correction is Correction.STEPS,
        boot=float(cloud.boot_seconds),
        slowdown=float(cloud.slowdown),
    )


def _fresh_state(demand: Demand, processors: int) -> State:
    count = len(demand)
    job = np.zeros(count, JOB)
    for column in fields(demand):
        job["rank" if column.name == "job_class" else column.name] = getattr(demand, column.name)
    job["start"] = job["end"] = math.nan
    cluster = np.zeros(1, CLUSTER)
    cluster["free"] = processors
    cluster["shadow"] = math.inf
    leaving = np.flatnonzero((demand.patience >= 0) & np.isfinite(demand.patience))
    leave_time = demand.submit[leaving] + demand.patience[leaving]
    at_most_running = min(count, processors) + 1
    users = int(demand.user.max()) + 1 if count else 0
    return State(
        job=job,
        queue=np.zeros(count, np.int64),
        running=np.zeros(at_most_running, np.int64),
        ending=np.zeros(at_most_running, ENDING),
        recent=np.full((users, 2), math.nan),
        leaving=leaving[np.argsort(leave_time, kind="stable")],
        scratch=np.zeros(count, np.int64),
        cluster=cluster,
    )
