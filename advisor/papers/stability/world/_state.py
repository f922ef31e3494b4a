"""Arrays of the kernel of changing nodes: one record a task, one a node, one for the scalars."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.simulate.heap import Records

AHEAD, WAITING, RUNNING, DONE, DROPPED = 0, 1, 2, 3, 4
"""Where a task is; a copy is dropped when another copy of it is done."""

FINISHED, SCHEDULE, TICK, SHORT = 0, 1, 2, 3
"""Why the kernel stopped: all done, a decision is due, the given moment is reached, a node has shrunk to less
than its tasks use."""

TASK = np.dtype(
    [(name, np.float64) for name in ("submit", "duration", "estimate", "done_before", "start", "end")]
    + [(name, np.int64) for name in ("cores", "original", "where", "node", "attempts", "preempted")],
    align=True,
)
"""``done_before``: work saved by checkpoints; ``original``: the row it copies."""

NODE = np.dtype(
    [("changed", np.float64)]
    + [(name, np.int64) for name in ("cores", "used", "last", "rented", "draining", "running")],
    align=True,
)
"""``changed``: when last seen to change, or when rented; ``last``: direction of that change;
``running``: tasks on it."""

INTERVAL = np.dtype(
    [(name, np.float64) for name in ("start", "end", "size")]
    + [(name, np.int64) for name in ("node", "completed", "began", "ended")],
    align=True,
)

CLUSTER = np.dtype(
    [(name, np.float64) for name in ("now", "useful", "wasted")]
    + [(name, np.int64) for name in ("arrived", "waiting", "endings", "changes", "intervals")]
    + [(name, np.int64) for name in ("dirty", "open", "preemptions", "short")],
    align=True,
)
"""``arrived``, ``changes``: how far submissions and changes have been gone through; ``endings``,
``intervals``: entries used; ``open``: tasks not yet done; ``useful``, ``wasted``: core-seconds; ``dirty``: a
decision is due; ``short``: the node upon whose tasks the caller decides, or -1."""


class Checkpoints(NamedTuple):
    """Work between two checkpoints and what one costs, seconds; infinite ``every`` means none is taken."""

    every: float
    cost: float


class State(NamedTuple):
    """The kernel's arrays.

    ``task``: (rows,); ``node``: (nodes,); ``running``: (nodes, slots) task rows on each node, oldest first;
    ``queue``: waiting rows, ascending; ``ending``: heap of ends, stale where the task was killed; ``copies``:
    (tasks, copies - 1) rows of the further copies of each task; ``time``, ``who``, ``after``: the changes;
    ``interval``: those completed, and those of nodes given back.
    """

    task: Records
    node: Records
    running: Ints
    queue: Ints
    ending: Records
    copies: Ints
    time: Floats
    who: Ints
    after: Ints
    interval: Records
    cluster: Records
