"""The on-premise queue of a snapshot, and the forecast of its starts. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.model.job import NO_LIMIT_SECONDS, limit_seconds
from advisor.model.settings import Settings
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.observation.placeholders import standing_for_others
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
        names: The job names that placeholders stand for, by their ids.
    """

    time: float
    processors: int
    running: tuple[QueuedJob, ...]
    waiting: tuple[QueuedJob, ...]
    names: Mapping[int, str | None] = field(default_factory=dict)

    @property
    def waiting_processors(self) -> int:
        """Processors that waiting jobs ask for."""
        return sum(queued.job.processors * queued.job.array_tasks for queued in self.waiting)


AskRuns = Callable[[OnPremiseQueue], tuple[Floats, Floats]]
"""The run times that are expected of the running and of the waiting jobs, from their starts, seconds."""


def run_to_limits(queue: OnPremiseQueue) -> tuple[Floats, Floats]:
    """Every job runs to its limit: where no run times are known."""
    return _limits(queue.running), _limits(queue.waiting)


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
        names=_names_of_placeholders(snapshot.jobs),
    )


def _names_of_placeholders(jobs: Sequence[QueuedJob]) -> Mapping[int, str | None]:
    standing = standing_for_others(jobs)
    if not standing:
        return {}
    names = {queued.job.job_id: queued.job.name for queued in jobs}
    return {own: names[other] for own, other in standing.items()}


def forecast_waits(queue: OnPremiseQueue, runs: AskRuns = run_to_limits) -> dict[int, float]:
    """Job id to the seconds until the job (of an array its first task) would start, were no job to come.

    A job larger than the machine waits a year.
    """
    if not queue.waiting:
        return {}
    running_runs, waiting_runs = runs(queue)
    running = RunningJobs(
        processors=_ints(queued.job.processors * queued.job.array_tasks for queued in queue.running),
        starts=np.array([q.start_time or queue.time for q in queue.running], dtype=np.float64),
        limits=_limits(queue.running),
        runs=running_runs,
    )
    rows = list(_rows(queue, waiting_runs))
    first = {row.number: place for place, row in reversed(list(enumerate(rows)))}
    waiting = WaitingJobs(
        processors=_ints(row.processors for row in rows),
        limits=np.array([row.limit for row in rows]),
        runs=np.array([row.run for row in rows]),
    )
    found = closed_queue_starts(queue.processors, queue.time, running, waiting) - queue.time
    waits = np.clip(found, 0.0, NO_LIMIT_SECONDS)
    return {queued.job.job_id: float(waits[first[index]]) for index, queued in enumerate(queue.waiting)}


def seen_queue(queue: OnPremiseQueue, runs: AskRuns = run_to_limits) -> SeenQueue:
    """The queue for the submit server."""
    running_runs, waiting_runs = runs(queue)
    running = [
        (q.job.processors * q.job.array_tasks, q.start_time or queue.time, limit_seconds(q.job), run)
        for q, run in zip(queue.running, running_runs.tolist(), strict=True)
    ]
    waiting = [(row.processors, row.limit, row.run) for row in _rows(queue, waiting_runs)]
    return SeenQueue.of(
        queue.processors,
        np.array(running, np.float64).reshape(-1, 4),
        np.array(waiting, np.float64).reshape(-1, 3),
    )


class _Row(NamedTuple):
    """A row of the forecast: the number of its waiting job, processors, time limit and expected run time."""

    number: int
    processors: int
    limit: float
    run: float


def _rows(queue: OnPremiseQueue, runs: Floats) -> Iterator[_Row]:
    machine = max(1, queue.processors)
    for index, (queued, run) in enumerate(zip(queue.waiting, runs.tolist(), strict=True)):
        job, limit = queued.job, limit_seconds(queued.job)
        for _ in range(min(job.array_tasks, _MAX_TASKS)):
            yield _Row(index, job.processors, limit, run)
        rest = (job.array_tasks - _MAX_TASKS) * job.processors
        if rest > 0:
            rounds = math.ceil(rest / machine)
            yield _Row(index, min(rest, machine), limit * rounds, run * rounds)


def _limits(jobs: Sequence[QueuedJob]) -> Floats:
    return np.array([limit_seconds(queued.job) for queued in jobs], np.float64)


def _ints(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)
