"""The forecast starts of a queue that a snapshot shows, were no job to come."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.simulate.heap import ENDING
from advisor.simulate.pool._forecast import forecast_starts
from advisor.simulate.pool._kernel import EVENT, JOB, RUNNING, SCALARS, WAITING, Arrays


class RunningJobs(NamedTuple):
    """Jobs that have processors; arrays of shape ``(r,)``, times in seconds.

    ``runs`` are forecast run times from the start; jobs are planned by ``limits``, as Slurm does.
    """

    processors: Ints
    starts: Floats
    limits: Floats
    runs: Floats


class WaitingJobs(NamedTuple):
    """Jobs that wait, first of the queue first; arrays of shape ``(w,)``, times in seconds."""

    processors: Ints
    limits: Floats
    runs: Floats


def closed_queue_starts(processors: int, now: float, running: RunningJobs, waiting: WaitingJobs) -> Floats:
    """When each waiting job would start under EASY backfilling, were no job to come.

    Args:
        processors: Number of usable processors of the machine; running jobs may have more.
        now: Seconds, on the clock of ``running.starts``.

    Returns:
        Seconds on the same clock, shape ``(w,)``; infinite for a job larger than the machine.
    """
    ahead, behind = len(running.processors), len(waiting.processors)
    count = ahead + behind
    jobs = np.zeros(count, JOB)
    jobs["order"] = np.arange(count)
    jobs["where"][:ahead], jobs["where"][ahead:] = RUNNING, WAITING
    for name, here, there in (
        ("processors", running.processors, waiting.processors),
        ("limit", running.limits, waiting.limits),
    ):
        jobs[name][:ahead], jobs[name][ahead:] = here, there
    jobs["start"][:ahead] = running.starts
    jobs["planned_end"][:ahead] = np.maximum(running.starts + running.limits, now)
    scalars = np.zeros(1, SCALARS)
    scalars["now"], scalars["running"], scalars["waiting"] = now, ahead, behind
    scalars["free"] = max(0, processors - int(np.sum(running.processors)))
    arrays = Arrays(
        jobs=jobs,
        queue=np.arange(ahead, count),
        running=np.argsort(jobs["planned_end"][:ahead], kind="stable"),
        ending=np.zeros(0, ENDING),
        events=np.zeros(0, EVENT),
        scalars=scalars,
        other_ends=np.zeros(0),
        owner=np.zeros(0, np.int64),
    )
    starts = np.full(count, np.inf)
    forecast_starts(arrays, np.concatenate((running.runs, waiting.runs)), starts)
    return starts[ahead:]
