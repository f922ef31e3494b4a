"""The on-premise queue of a snapshot, and the forecast of its starts. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.model.job import NO_LIMIT_SECONDS, limit_seconds
from advisor.model.settings import Settings
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.observation.site_view import without_doubles
from advisor.simulate.pool.closed_queue import RunningJobs, WaitingJobs, closed_queue_starts

_MAX_TASKS: Final = 200
"""Tasks of one array that the forecast tells apart; the others are one wide job at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPremiseQueue:
    """Jobs that have or wait for on-premise processors.

    Attributes:
        time: Epoch seconds of the snapshot.
        processors: Number of processors of the usable nodes.
        running: The running jobs, in no order.
        waiting: The waiting jobs in Slurm's order of priority; jobs that are held, wait for a time or another
            job are left out.
    """

    time: float
    processors: int
    running: tuple[QueuedJob, ...]
    waiting: tuple[QueuedJob, ...]

    @property
    def waiting_processors(self) -> int:
        """Processors that waiting jobs ask for."""
        return sum(queued.job.processors * queued.job.array_tasks for queued in self.waiting)


def on_premise_queue(snapshot: ClusterSnapshot, settings: Settings) -> OnPremiseQueue:
    """The queue of the on-premise partitions, taken as one pool of processors."""
    ours = set(settings.cluster.on_premise_partitions)
    here = [queued for queued in without_doubles(snapshot.jobs) if ours.intersection(queued.partitions)]
    waiting = [queued for queued in here if queued.is_queued]
    waiting.sort(key=lambda queued: (-queued.priority, queued.job.submit_time, queued.job.job_id))
    return OnPremiseQueue(
        time=snapshot.time,
        processors=sum(
            node.processors
            for node in snapshot.nodes
            if ours & set(node.partitions) and not (node.is_down or node.is_draining or node.is_cloud)
        ),
        running=tuple(queued for queued in here if queued.holds_processors),
        waiting=tuple(waiting),
    )


def forecast_waits(queue: OnPremiseQueue) -> dict[int, float]:
    """Job id to the seconds until the job (of an array its first task) would start, were no job to come.

    Jobs are taken to run to their limits: forecast run times decide no better (`advisor.replay.closed_loop`).
    A job larger than the machine waits a year.
    """
    if not queue.waiting:
        return {}
    limits = np.array([limit_seconds(queued.job) for queued in queue.running])
    running = RunningJobs(
        processors=_ints(queued.job.processors * queued.job.array_tasks for queued in queue.running),
        starts=np.array([q.start_time or queue.time for q in queue.running], dtype=np.float64),
        limits=limits,
        runs=limits,
    )
    rows = list(_rows(queue))
    first = {index: row for row, (index, *_) in reversed(list(enumerate(rows)))}
    limits = np.array([limit for _, _, limit in rows])
    waiting = WaitingJobs(
        processors=_ints(processors for _, processors, _ in rows), limits=limits, runs=limits
    )
    found = closed_queue_starts(queue.processors, queue.time, running, waiting) - queue.time
    waits = np.clip(found, 0.0, NO_LIMIT_SECONDS)
    return {queued.job.job_id: float(waits[first[index]]) for index, queued in enumerate(queue.waiting)}


def seen_queue(queue: OnPremiseQueue) -> SeenQueue:
    """The queue for the submit server."""
    running = [
        (q.job.processors * q.job.array_tasks, q.start_time or queue.time, limit_seconds(q.job))
        for q in queue.running
    ]
    waiting = [(processors, limit) for _, processors, limit in _rows(queue)]
    return SeenQueue.of(
        queue.processors,
        np.array(running, np.float64).reshape(-1, 3),
        np.array(waiting, np.float64).reshape(-1, 2),
    )


def _rows(queue: OnPremiseQueue) -> Iterator[tuple[int, int, float]]:
    """Index of the waiting job, processors and limit of each row of the forecast."""
    machine = max(1, queue.processors)
    for index, queued in enumerate(queue.waiting):
        job, limit = queued.job, limit_seconds(queued.job)
        for _ in range(min(job.array_tasks, _MAX_TASKS)):
            yield index, job.processors, limit
        rest = (job.array_tasks - _MAX_TASKS) * job.processors
        if rest > 0:
            yield index, min(rest, machine), limit * math.ceil(rest / machine)


def _ints(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)
