"""A cluster on rented nodes once more, plainly: slow, short, and obviously right.

The test oracle of the compiled kernels. It knows no shortcut: it acts at every tick, counts and sorts anew
each time, and keeps every node's whole life.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from advisor.model.table import JobTable
from advisor.simulate.portfolio.cluster import Cloud, Runtimes
from advisor.simulate.portfolio.policies import JobOrder, NodeChoice, Provisioning, Release, RentingPolicy

_HOUR = 3600.0


@dataclass(slots=True, eq=False)
class Job:
    """One job on its way; ``estimate``: the run time that is known of it now."""

    row: int
    submit: float
    run: float
    processors: int
    requested: float
    user: int
    estimate: float = math.nan
    start: float = math.nan

    @property
    def end(self) -> float:
        """Seconds."""
        return self.start + self.run


@dataclass(slots=True, eq=False)
class Node:
    """One rented node: from ``since`` to ``released``; idle from ``ready`` on; the jobs it ran."""

    since: float
    ready: float
    released: float = math.nan
    ran: list[Job] = field(default_factory=list)

    def left_after(self, end: float) -> float:
        """What is left at ``end`` of the hour paid by then."""
        return (_HOUR - (end - self.since) % _HOUR) % _HOUR

    def expected_end(self, now: float) -> float:
        """When it is expected to be idle; a job beyond its estimate is expected to take twice its time."""
        if self.ready <= now or not self.ran:
            return self.ready
        job = self.ran[-1]
        end = job.start + job.estimate
        return end if end > now else now + max(now - job.start, 1.0)


@dataclass(slots=True)
class Life:
    """What became of a log: its jobs and every node ever rented."""

    jobs: list[Job]
    nodes: list[Node]
    charged: float


def charge(held: float, release: Release) -> float:
    """Seconds charged for a node held so long."""
    if release is Release.SECOND:
        return float(max(math.ceil(held), 60))
    return max(math.ceil(held / _HOUR), 1) * _HOUR


@dataclass(slots=True)
class _World:
    cloud: Cloud
    runtimes: Runtimes
    policy: RentingPolicy
    now: float
    coming: list[Job]
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    finished: list[Job] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    gone: list[Node] = field(default_factory=list)

    @property
    def idle(self) -> list[Node]:
        return [node for node in self.nodes if node.ready <= self.now]

    @property
    def booting(self) -> list[Node]:
        return [node for node in self.nodes if node.ready > self.now and not node.ran]

    def estimate(self, job: Job) -> float:
        """What section 3.2 knows of a job that has not started."""
        if self.runtimes is Runtimes.ACTUAL:
            return job.run
        if self.runtimes is Runtimes.REQUESTED and not math.isnan(job.requested):
            return job.requested
        recent = [other.run for other in self.finished if other.user == job.user][-2:]
        if recent:
            mean = sum(recent) / len(recent)
            return mean if math.isnan(job.requested) else min(mean, job.requested)
        if not math.isnan(job.requested):
            return job.requested
        return sum(other.run for other in self.finished) / len(self.finished) if self.finished else _HOUR

    def ends(self) -> None:
        """Take in what ended, in the order it ended; what waits of the same user is guessed anew."""
        over = sorted(
            (job for job in self.running if job.end <= self.now), key=lambda job: (job.end, job.row)
        )
        for job in over:
            self.running.remove(job)
            self.finished.append(job)
            for other in self.waiting:
                if other.user == job.user:
                    other.estimate = self.estimate(other)

    def arrivals(self) -> None:
        while self.coming and self.coming[0].submit <= self.now:
            job = self.coming.pop(0)
            job.estimate = self.estimate(job)
            self.waiting.append(job)

    def rent(self, count: int) -> None:
        for _ in range(min(count, self.cloud.max_nodes - len(self.nodes))):
            self.nodes.append(Node(self.now, self.now + self.cloud.boot_seconds))

    def wanted(self) -> int:
        """Section 3.1, provisioning."""
        kind = self.policy.provisioning
        there = len(self.idle) + len(self.booting)
        jobs = self.waiting
        if kind is Provisioning.ODX:
            jobs = [job for job in jobs if self.now - job.submit >= max(job.estimate, 10.0)]
        demand = sum(job.processors for job in jobs)
        widest = max((job.processors for job in jobs), default=0)
        if kind is Provisioning.ODB:
            return demand - len(self.nodes)
        if kind is Provisioning.ODM:
            return widest - there
        if kind is Provisioning.ODE:
            hours = math.ceil(sum(job.processors * job.estimate for job in jobs) / _HOUR)
            nothing_runs = there == len(self.nodes)
            return (max(hours, widest) if nothing_runs else hours) - len(self.nodes)
        return demand - there

    def next_job(self) -> Job:
        """Section 3.1, job selection; of equals the one that came first."""
        order = self.policy.order
        grace = 3600.0 if order is JobOrder.WSPT else 0.0

        def priority(job: Job) -> float:
            run, width = max(job.estimate, 1.0), job.processors
            weight = {
                JobOrder.FCFS: 1.0,
                JobOrder.LXF: 1.0 / run,
                JobOrder.WFP3: float(width ** (1.0 / 3.0)) / run,
                JobOrder.UNICEF: 1.0 / (math.log2(max(width, 2)) * run),
                JobOrder.WSPT: 1.0 / (max(run, 10.0) * width * run),
            }[order]
            return (grace + self.now - job.submit) * weight

        return self.waiting[0] if order is JobOrder.FCFS else max(self.waiting, key=priority)

    def start(self, job: Job) -> None:
        """Section 3.1, node selection: the idle nodes in the order rented, or by what is left after."""
        idle = self.idle
        end = self.now + job.estimate
        if self.cloud.release is not Release.SECOND and self.policy.choice is not NodeChoice.FIRST:
            sign = 1.0 if self.policy.choice is NodeChoice.BEST else -1.0
            idle = sorted(idle, key=lambda node: sign * node.left_after(end))
        for node in idle[: job.processors]:
            node.ready = self.now + job.run
            node.ran.append(job)
        job.start = self.now
        self.waiting.remove(job)
        self.running.append(job)

    def start_jobs(self) -> None:
        """Until the next one does not fit; then behind it what does not delay it, where that is allowed."""
        while self.waiting:
            job = self.next_job()
            if job.processors > len(self.idle):
                if self.policy.backfill:
                    self.backfill(job)
                return
            self.start(job)

    def backfill(self, head: Job) -> None:
        shadow, extra = math.inf, len(self.idle)
        if len(self.nodes) >= head.processors:
            ends = sorted(max(node.expected_end(self.now), self.now) for node in self.nodes)
            shadow = ends[head.processors - 1]
            extra = sum(end <= shadow for end in ends) - head.processors
        for job in list(self.waiting):
            in_time = self.now + job.estimate <= shadow
            if job is head or job.processors > len(self.idle) or not (in_time or job.processors <= extra):
                continue
            extra -= 0 if in_time else job.processors
            self.start(job)

    def headroom(self) -> None:
        if self.policy.headroom:
            spare = len(self.idle) + len(self.booting)
            if self.policy.provisioning is Provisioning.ODA:
                spare -= sum(job.processors for job in self.waiting)
            self.rent(self.policy.headroom - max(spare, 0))

    def give_back(self) -> None:
        surplus = len(self.idle) + len(self.booting) - self.policy.headroom
        for node in list(self.nodes):
            is_free = node.ready <= self.now or not node.ran
            paid_ends = _HOUR - (self.now - node.since) % _HOUR <= self.cloud.tick_seconds
            if is_free and surplus > 0 and (paid_ends or self.cloud.release is not Release.HOUR_KEPT):
                surplus -= 1
                self.release(node, self.now)

    def release(self, node: Node, moment: float) -> None:
        node.released = moment
        self.nodes.remove(node)
        self.gone.append(node)

    def tick(self) -> bool:
        """Everything at one tick; whether that was the last."""
        self.ends()
        self.arrivals()
        if self.waiting:
            self.rent(self.wanted())
            self.start_jobs()
        self.headroom()
        if not self.waiting:
            self.give_back()
        return not self.waiting and not self.coming


def live(
    jobs: JobTable, cloud: Cloud, runtimes: Runtimes, policy: RentingPolicy, *, most_ticks: int = 1_000_000
) -> Life:
    """One policy through the whole log, tick by tick.

    Raises
    ------
    RuntimeError
        A job has not started after so many ticks.
    """
    rows: Sequence[tuple[float, float, int, float, int]] = list(
        zip(
            jobs.submit.tolist(),
            jobs.run.tolist(),
            jobs.processors.tolist(),
            jobs.requested_time.tolist(),
            jobs.user.tolist(),
            strict=True,
        )
    )
    every = [Job(row, *values) for row, values in enumerate(rows)]
    tick = cloud.tick_seconds
    world = _World(cloud, runtimes, policy, math.ceil(every[0].submit / tick) * tick, list(every))
    for _ in range(most_ticks):
        if world.tick():
            break
        world.now += tick
    else:
        raise RuntimeError("a job never starts")
    for node in list(world.nodes):
        world.release(node, max(node.ready, world.now))
    charged = sum(charge(node.released - node.since, cloud.release) for node in world.gone)
    return Life(jobs=every, nodes=world.gone, charged=charged)
