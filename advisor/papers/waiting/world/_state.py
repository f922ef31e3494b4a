"""Arrays of the waiting kernel.

As in `advisor.papers.cluster._state`: everything about one job is one record, everything that changes about
the cluster another, so that compiled functions pass few arrays around. Queue, heap and running list are that
module's.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats, Ints
from advisor.simulate.heap import ENDING, Records

AHEAD, SPECULATING, WAITING, RUNNING, DONE, RENTED = range(6)
"""Where a job is; ``RENTED``: for good, on on-demand or (a speculation that ended in time) on spot."""

JOB = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "key", "planned", "requested", "revoked_after")]
    + [(name, np.float64) for name in ("start", "end", "queued", "planned_end", "spot", "ondemand")]
    + [(name, np.float64) for name in ("mean_run", "median_run", "short_chance")]
    + [(name, np.int64) for name in ("processors", "rank", "where", "mode", "restarts", "left_early")]
    + [(name, np.int64) for name in ("user", "program", "alike", "queue_code")],
    align=True,
)
"""A job and what became of it so far.

``key``, ``rank``: its place in the queue (``rank`` is always 0); ``queued``: when it joined the queue;
``revoked_after``: seconds after which EC2 would take a spot node from it; ``spot``, ``ondemand``: seconds
rented; ``mean_run``, ``median_run``, ``short_chance``: predicted at its submission; ``left_early``: 1 when
a wait model or a forecast sent it away before the longest wait was over; ``user``, ``program``, ``alike``:
codes of its user, of what that user runs, and of that user's jobs that asked for the same.
"""

WORLD = np.dtype(
    [(name, np.float64) for name in ("now", "next_sweep", "last_start", "start_wait", "rate_at", "price")]
    + [(name, np.float64) for name in ("start_rate", "arrival_rate", "leave_rate", "speculating_cores")]
    + [(name, np.int64) for name in ("arrived", "head", "tail", "running", "endings", "free", "left")]
    + [(name, np.int64) for name in ("trials", "leases", "dirty", "samples", "drawn")],
    align=True,
)
"""Scalars that change; the rates are exponentially weighted over a day. ``price``: core-seconds worth paying
to save a job one second of waiting."""

SIZE_CLASSES: Final = 16
"""Classes of jobs by processors, a factor of two each: what waits depend on where small jobs slip past."""


class Rules(NamedTuple):
    """A waiting policy on a machine, as numbers."""

    total: int
    easy: bool
    trial: float
    longest_wait: float
    knows_wait: int
    length_from: int
    skip_below: float
    ask_again: float
    keep_every: int
    learns: bool


class World(NamedTuple):
    """The kernel's arrays.

    ``ending``: heap of true ends on fixed cores; ``trial``: heap of speculations' ends; ``lease``: heap of
    the ends of rented jobs, kept only where run times are learned; ``classes``: for each
    size class the newest wait of a job that started from the queue and when; ``samples``: rows of (job, time,
    features) taken when the wait model was or could have been asked; ``habits``, ``run_samples``: see
    ``_habits``, by code and by job.
    """

    job: Records
    queue: Ints
    running: Ints
    ending: Records
    trial: Records
    lease: Records
    classes: Floats
    samples: Floats
    habits: Floats
    run_samples: Floats
    world: Records


class Forest(NamedTuple):
    """Trees whose leaves hold tails: ``tail[leaf, k]`` is the chance of more than ``edges[k]`` seconds."""

    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: Floats
    children: NDArray[np.int32]
    leaf: NDArray[np.int32]
    mean: Floats
    tail: NDArray[np.float32]
    edges: Floats


def heap(size: int) -> Records:
    """An empty heap of at most so many (time, job)."""
    return np.zeros(size, ENDING)
