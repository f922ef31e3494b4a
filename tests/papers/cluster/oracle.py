"""The simulated cluster once more, plainly: slow, short, and obviously right.

The test oracle of ``advisor.papers.cluster.engine`` and the peer of ``advisor bench simulate``. It knows no
shortcut: at every moment something can happen it sorts all waiting jobs anew and goes through all of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from advisor.papers.cluster.demand import LARGE, STARVED, Demand
from advisor.papers.cluster.engine import Schedule, refuse_too_large
from advisor.papers.cluster.policies import (
    ANY_MOMENT_SECONDS,
    EASY,
    STEPS_SECONDS,
    Backfill,
    Correction,
    Order,
    Policy,
)


@dataclass(slots=True, eq=False)
class _Job:
    """One job on its way."""

    row: int
    submit: float
    run: float
    processors: int
    requested: float
    planned: float
    limit: float
    rank: int
    user: int
    start: float = math.nan
    end: float = math.nan
    attempts: int = 0
    lost: float = 0.0
    planned_end: float = math.nan
    corrections: int = 0

    @property
    def attempt_ends(self) -> float:
        """When the running attempt truly ends: done, or killed."""
        return self.start + min(self.run, self.limit)


@dataclass(slots=True)
class _Cluster:
    """Everything there is at one moment."""

    policy: Policy
    total: int
    jobs: list[_Job]
    now: float = 0.0
    ahead: deque[_Job] = field(default_factory=deque)
    waiting: list[_Job] = field(default_factory=list)
    running: list[_Job] = field(default_factory=list)
    judged: int = 0  # jobs before this row have ended or passed the starvation threshold
    finished: dict[int, list[float]] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return self.total - sum(job.processors for job in self.running)


def simulate(demand: Demand, processors: int, policy: Policy = EASY) -> Schedule:
    """Do what :func:`advisor.papers.cluster.engine.simulate` does, with the same schedule.

    Raises
    ------
    BadInput
        A job is larger than the machine.
    """
    refuse_too_large(demand, processors)
    cluster = _Cluster(policy, processors, list(_jobs_of(demand)))
    cluster.ahead.extend(cluster.jobs)
    while (moment := _next_moment(cluster)) < math.inf:
        cluster.now = moment
        _end_attempts(cluster)
        _submit(cluster)
        _promote_starved(cluster)
        if policy.correction is Correction.STEPS:
            _correct(cluster)
        _schedule(cluster)
    jobs = cluster.jobs
    return Schedule(
        start=np.array([job.start for job in jobs], np.float64),
        end=np.array([job.end for job in jobs], np.float64),
        attempts=np.array([job.attempts for job in jobs], np.int64),
        lost=np.array([job.lost for job in jobs], np.float64),
    )


def _jobs_of(demand: Demand) -> Iterator[_Job]:
    for row in range(len(demand)):
        yield _Job(
            row=row,
            submit=float(demand.submit[row]),
            run=float(demand.run[row]),
            processors=int(demand.processors[row]),
            requested=float(demand.requested[row]),
            planned=float(demand.planned[row]),
            limit=float(demand.limit[row]),
            rank=int(demand.job_class[row]),
            user=int(demand.user[row]),
        )


def _next_moment(cluster: _Cluster) -> float:
    moments = [job.attempt_ends for job in cluster.running]
    moments += [cluster.ahead[0].submit] if cluster.ahead else []
    return min(moments, default=math.inf)


def _end_attempts(cluster: _Cluster) -> None:
    ending = [job for job in cluster.running if job.attempt_ends <= cluster.now]
    for job in sorted(ending, key=lambda job: job.row):
        cluster.running.remove(job)
        if job.limit < job.run:
            job.lost, job.limit = job.limit, math.inf
            job.planned = job.requested
            job.rank = STARVED if job.row < cluster.judged else LARGE
            cluster.waiting.append(job)
        else:
            job.end = cluster.now
            cluster.finished.setdefault(job.user, []).append(job.run)


def _submit(cluster: _Cluster) -> None:
    while cluster.ahead and cluster.ahead[0].submit == cluster.now:
        job = cluster.ahead.popleft()
        cluster.waiting.append(job)
        runs = cluster.finished.get(job.user, [])
        if cluster.policy.predict_recent and len(runs) >= 2:
            job.planned = min((runs[-1] + runs[-2]) / 2, job.requested)


def _promote_starved(cluster: _Cluster) -> None:
    waiting_work = sum(job.planned * job.processors for job in cluster.waiting)
    by_load = cluster.policy.starvation_load_factor * waiting_work / cluster.total
    by_load = min(by_load, cluster.policy.starvation_at_most_seconds)
    threshold = max(cluster.policy.starvation_seconds, by_load)
    submitted = len(cluster.jobs) - len(cluster.ahead)
    while cluster.judged < submitted:
        job = cluster.jobs[cluster.judged]
        has_ended = not math.isnan(job.end)
        if not has_ended and not job.submit + threshold < cluster.now:
            return
        cluster.judged += 1
        if job in cluster.waiting:
            job.rank = STARVED


def _correct(cluster: _Cluster) -> None:
    for job in cluster.running:
        latest = job.start + job.requested
        while job.planned_end <= cluster.now and job.planned_end < latest:
            if job.corrections == len(STEPS_SECONDS):
                break
            job.planned_end = min(job.planned_end + STEPS_SECONDS[job.corrections], latest)
            job.corrections += 1


def _in_order(cluster: _Cluster) -> list[_Job]:
    """Waiting jobs in the order they are served."""

    def key(job: _Job) -> tuple[int, float, int]:
        value = 0.0
        match cluster.policy.order:
            case Order.WFP:
                ratio = (cluster.now - job.submit) / job.requested
                value = -(ratio * ratio * ratio) * job.processors
            case Order.SPF:
                value = job.requested
            case Order.SAF:
                value = job.requested * job.processors
        return (job.rank, 0.0 if job.rank == STARVED else value, job.row)

    return sorted(cluster.waiting, key=key)


def _start(cluster: _Cluster, job: _Job) -> None:
    cluster.waiting.remove(job)
    cluster.running.append(job)
    job.attempts += 1
    job.start = cluster.now
    job.planned_end = cluster.now + job.planned


def _schedule(cluster: _Cluster) -> None:
    queue = _in_order(cluster)
    while queue and queue[0].processors <= cluster.free:
        _start(cluster, queue.pop(0))
    if not queue:
        return
    head, behind = queue[0], queue[1:]
    shadow, spare = _reservation(cluster, head)
    if cluster.policy.backfill is Backfill.SHORTEST_FIRST:
        behind.sort(key=lambda job: job.planned)
    for job in behind:
        ends_in_time = cluster.now + job.planned <= shadow
        if job.processors <= cluster.free and (ends_in_time or job.processors <= spare):
            spare -= 0 if ends_in_time else job.processors
            _start(cluster, job)


def _reservation(cluster: _Cluster, head: _Job) -> tuple[float, int]:
    """When the head can start by plan, and the processors it leaves over then."""
    soonest = cluster.now + ANY_MOMENT_SECONDS
    ends = [(max(job.planned_end, soonest), job.processors) for job in cluster.running]
    for shadow, _ in sorted(ends):
        released = sum(processors for end, processors in ends if end <= shadow)
        if cluster.free + released >= head.processors:
            return shadow, cluster.free + released - head.processors
    raise AssertionError("a job larger than the machine was let in")
