"""EASY backfilling in plain Python, from the definitions alone.

It knows several resources, reservations, and groups of jobs that have a limit together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.arrays import Floats
from advisor.simulate.pool.closed_queue import NONE_LIMITED, ClosedQueue


@dataclass
class Taken:
    """A job that runs: when, by its limit and in truth, and what it takes of resources and reservations."""

    start: float
    planned_end: float
    end: float
    needs: Floats
    of_reserved: Floats
    group: int = 0
    units: float = 0.0


@dataclass
class Machine:
    """What a machine has, and what reservations leave to its jobs."""

    sizes: Floats
    reserved: Floats
    groups: Floats
    """What is left to each group and what its running jobs have, together."""

    def is_held(self, jobs: list[Taken], group: int, units: float) -> bool:
        """Whether a job's group has too little left for it."""
        return sum(job.units for job in jobs if job.group == group) + units > self.groups[group]

    def left(self, jobs: list[Taken], time: float) -> tuple[Floats, Floats]:
        """What stays free of each resource, and of each reservation, of the jobs that are planned to run."""
        there = [job for job in jobs if job.planned_end > time]
        free = self.sizes - sum((job.needs for job in there), np.zeros(len(self.sizes)))
        rest = self.reserved[:, 3].copy()
        for job in there:
            meets = (job.start < self.reserved[:, 1]) & (job.planned_end > self.reserved[:, 0])
            rest -= np.where(meets, job.of_reserved, 0.0)
        return free, rest

    def takes(self, job: Floats, start: float) -> Taken:
        """A waiting job that starts then."""
        needs = np.concatenate((job[:1], job[3:]))
        of_reserved = needs[self.reserved[:, 2].astype(int)]
        run = min(job[1], job[2])
        return Taken(start, start + job[1], start + run, needs, of_reserved)

    def has_room(self, left: tuple[Floats, Floats], job: Taken) -> bool:
        """Whether that suffices for a job."""
        meets = (job.start < self.reserved[:, 1]) & (job.planned_end > self.reserved[:, 0])
        return bool(
            (job.needs <= left[0]).all() and (~meets | (job.of_reserved <= np.maximum(0.0, left[1]))).all()
        )


def plain_starts(queue: ClosedQueue, now: float) -> Floats:
    """When each waiting job starts."""
    count, ahead = len(queue.sizes), len(queue.running)
    limited = queue.limited if len(queue.limited) else np.zeros((ahead + len(queue.waiting), 2))
    whole = queue.groups.copy()
    np.add.at(whole, limited[:ahead, 0].astype(int), limited[:ahead, 1])
    machine = Machine(queue.sizes, queue.reserved, whole)
    running = []
    for row, (group, units) in zip(queue.running, limited[:ahead], strict=True):
        planned, end = max(row[1] + row[2], now + 1.0), max(row[1] + row[3], now + 1.0)
        needs = np.concatenate((row[:1], row[4 : 3 + count]))
        running.append(Taken(row[1], planned, end, needs, row[3 + count :], int(group), units))
    waiting, starts = list(range(len(queue.waiting))), np.full(len(queue.waiting), np.inf)
    times = {now, *(end for end in queue.reserved[:, 1] if end > now)}
    while times:
        time = min(times)
        times.remove(time)
        running = [job for job in running if job.end > time]
        for row in _started(machine, queue.waiting, limited[ahead:], waiting, running, time):
            waiting.remove(row)
            starts[row] = time
        times |= {job.end for job in running}
    return starts


def _started(
    machine: Machine,
    jobs: Floats,
    limited: Floats,
    waiting: list[int],
    running: list[Taken],
    time: float,
) -> list[int]:
    """The jobs that one pass starts; they are added to those that run."""
    found: list[int] = []

    def start(row: int, job: Taken) -> None:
        job.group, job.units = int(limited[row, 0]), limited[row, 1]
        running.append(job)
        found.append(row)

    def is_held(row: int) -> bool:
        return machine.is_held(running, int(limited[row, 0]), limited[row, 1])

    head = None
    for row in waiting:
        job = machine.takes(jobs[row], time)
        if not is_held(row) and not machine.has_room(machine.left(running, -np.inf), job):
            head = row
            break
        if not is_held(row):
            start(row, job)
    if head is None:
        return found
    first = jobs[head]
    moments = sorted({time, *(job.planned_end for job in running), *machine.reserved[:, 1]})
    fitting = (
        moment
        for moment in moments
        if moment >= time and machine.has_room(machine.left(running, moment), machine.takes(first, moment))
    )
    shadow = next(fitting, np.inf)
    reserved_for = [machine.takes(first, shadow)] if shadow < np.inf else []
    for row in waiting[waiting.index(head) + 1 :]:
        job = machine.takes(jobs[row], time)
        if is_held(row) or not machine.has_room(machine.left(running, -np.inf), job):
            continue
        then = machine.left([*running, *reserved_for], shadow)
        if job.planned_end > shadow and not machine.has_room(then, job):
            continue
        start(row, job)
    return found


def drawn_queue(seed: int) -> ClosedQueue:
    """Up to three resources, reservations and groups, some of them present, and 25 jobs."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 4))
    sizes = np.array([16.0, 64.0, 4.0])[:count]
    needs = np.column_stack((rng.integers(1, 9, 30), rng.integers(0, 33, 30), rng.choice([0, 0, 1, 2], 30)))
    limits = 100.0 * rng.integers(1, 30, 30)
    runs = np.round(limits * rng.choice([0.1, 0.5, 1.0], 30))
    reserved = []
    for _ in range(rng.integers(0, 4)):
        begin = 100.0 * rng.integers(-5, 40)
        end = max(begin, 0.0) + 100.0 * rng.integers(1, 30)
        for resource in range(count):
            left = float(rng.integers(0, sizes[resource] + 1))
            reserved.append((begin if begin > 0.0 else -1e9, end, resource, left))
    windows = np.array(reserved).reshape(-1, 4)
    running = np.column_stack((needs[:2, 0], -50.0 * rng.random(2), limits[:2], runs[:2], needs[:2, 1:count]))
    of_reserved = needs[:2][:, windows[:, 2].astype(int)] * rng.integers(0, 2, (2, 1))
    groups = int(rng.integers(0, 4))
    limited = np.column_stack((rng.integers(0, groups + 1, 27), rng.integers(1, 4, 27))).astype(float)
    limited[limited[:, 0] == 0.0, 1] = 0.0
    return ClosedQueue(
        sizes,
        np.hstack((running, of_reserved)),
        np.column_stack((needs[5:, 0], limits[5:], runs[5:], needs[5:, 1:count])),
        windows,
        limited if groups else NONE_LIMITED,
        np.concatenate(([0.0], rng.integers(0, 3, groups))),
    )
