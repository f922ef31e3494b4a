"""The cluster of changing nodes: nodes and tasks in, stops where a decision is due."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats, Ints
from advisor.model.errors import BadInput
from advisor.papers.stability.world import _kernel
from advisor.papers.stability.world._state import (
    CLUSTER,
    DONE,
    FINISHED,
    INTERVAL,
    NODE,
    RUNNING,
    SCHEDULE,
    SHORT,
    TASK,
    TICK,
    WAITING,
    Checkpoints,
    State,
)
from advisor.papers.stability.world.nodes import NodeChanges
from advisor.papers.stability.world.tasks import Tasks
from advisor.simulate.heap import ENDING, Records

__all__ = [
    "DONE",
    "FINISHED",
    "RUNNING",
    "SCHEDULE",
    "SHORT",
    "TICK",
    "WAITING",
    "Checkpoints",
    "Cluster",
    "Outcome",
]

NO_CHECKPOINTS = Checkpoints(every=math.inf, cost=0.0)


class Outcome(NamedTuple):
    """What became of a run.

    ``end``, ``preempted``: of each task; ``wasted``, ``useful``: core-seconds run in vain and to the purpose;
    ``attempts``: starts; ``preemptions``: attempts killed by a shrink.
    """

    end: Floats
    preempted: Ints
    useful: float
    wasted: float
    attempts: int
    preemptions: int


class Cluster:
    """Nodes that change and tasks that run on them.

    Args:
        changes: What becomes of all nodes there are.
        tasks: What is submitted.
        rented: ndarray of bool, shape (nodes,): Nodes had at the start; all by default.
        copies: Copies of each task that run side by side (appendix B.1's replication); the first to end
            counts.
        checkpoints: Whether tasks save their work (appendix B.1).
        asks: Whether the caller chooses which tasks give way when a node shrinks; else the oldest do (section
            4.1).

    Raises:
        BadInput: A task needs more cores than any node ever has.
    """

    def __init__(
        self,
        changes: NodeChanges,
        tasks: Tasks,
        *,
        rented: NDArray[np.bool_] | None = None,
        copies: int = 1,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
        asks: bool = False,
    ) -> None:
        if len(tasks) and tasks.cores.max() > changes.largest:
            raise BadInput(
                f"a task needs {tasks.cores.max()} cores, the largest node ever has {changes.largest}",
                where="--tasks",
                mend="Leave such tasks out or give larger nodes",
                code="stability.too_large",
            )
        self.checkpoints = checkpoints
        self._asks = asks
        self._tasks = len(tasks)
        self.state = _fresh_state(changes, tasks, rented, copies)

    @property
    def now(self) -> float:
        """Seconds."""
        return float(self.state.cluster["now"][0])

    @property
    def nodes(self) -> Records:
        """Records of all nodes, rented or not; do not change them."""
        return self.state.node

    @property
    def tasks(self) -> Records:
        """Records of all tasks, copies behind the originals; do not change them."""
        return self.state.task

    @property
    def waiting(self) -> Ints:
        """Rows of the waiting tasks in the order of their submission; copies come last."""
        return self.state.queue[: int(self.state.cluster["waiting"][0])]

    def intervals(self) -> Records:
        """Records of the intervals completed so far, and of those of nodes that were given back."""
        return self.state.interval[: int(self.state.cluster["intervals"][0])]

    def advance(self, until: float) -> int:
        """Go on to a decision (``SCHEDULE``, ``SHORT``), a moment (``TICK``) or the end (``FINISHED``)."""
        return int(_kernel.advance(self.state, self.checkpoints, until, self._asks))

    @property
    def short(self) -> int:
        """The node that has shrunk to less than its tasks use; -1 but after ``SHORT``."""
        return int(self.state.cluster["short"][0])

    def running(self, who: int) -> Ints:
        """Rows of the tasks on a node, oldest first."""
        return self.state.running[who, : int(self.state.node[who]["running"])]

    def give_way(self, rows: Ints) -> None:
        """End running tasks; they wait again."""
        for row in rows:
            _kernel.preempt(self.state, self.checkpoints, int(row))

    def start(self, rows: Ints, nodes: Ints) -> int:
        """Start waiting tasks on nodes and let time go on; returns how many had room there."""
        if self.state.cluster["endings"][0] + len(rows) > len(self.state.ending):
            self._forget_stale_endings()
        started = int(_kernel.start(self.state, self.checkpoints, rows, nodes)) if len(rows) else 0
        self.state.cluster["dirty"][0] = 0
        return started

    def wake(self) -> None:
        """Ask for a decision though nothing happened: what is known has changed."""
        self.state.cluster["dirty"] = 1

    def retire(self, who: int) -> None:
        """No new tasks on a node; it is given back when those on it are done."""
        self.state.node[who]["draining"] = 1
        if self.state.node[who]["running"] == 0:
            _kernel.release(self.state, who)

    def rent(self, who: int) -> None:
        """Get a node that is not had."""
        _kernel.rent(self.state, who)

    def outcome(self) -> Outcome:
        """What became of the tasks so far; the end of one that is not done is NaN."""
        mine = self.state.task[: self._tasks]
        it = self.state.cluster[0]
        return Outcome(
            end=np.where(mine["where"] == DONE, mine["end"], math.nan),
            preempted=mine["preempted"].copy(),
            useful=float(it["useful"]),
            wasted=float(it["wasted"]),
            attempts=int(self.state.task["attempts"].sum()),
            preemptions=int(it["preemptions"]),
        )

    def _forget_stale_endings(self) -> None:
        """Keep the heap's entries of running attempts only."""
        heap = self.state.ending
        count = int(self.state.cluster["endings"][0])
        task = self.state.task[heap["job"][:count]]
        real = np.flatnonzero((task["where"] == RUNNING) & (task["end"] == heap["time"][:count]))
        kept = np.sort(heap[real], order=["time", "job"])  # ascending order is a heap
        heap[: len(kept)] = kept
        self.state.cluster["endings"] = len(kept)


def _fresh_state(changes: NodeChanges, tasks: Tasks, rented: NDArray[np.bool_] | None, copies: int) -> State:
    count = len(tasks)
    task = np.zeros(count * copies, TASK)
    for name in ("submit", "duration", "estimate", "cores"):
        task[name] = np.tile(getattr(tasks, name), copies)
    task["original"] = np.tile(np.arange(count), copies)
    task["end"] = math.nan
    node = np.zeros(changes.nodes, NODE)
    node["cores"] = changes.cores
    node["rented"] = 1 if rented is None else rented
    cluster = np.zeros(1, CLUSTER)
    cluster["open"] = count
    cluster["short"] = -1
    given_back = 8 * changes.nodes + int(changes.until // 3600.0 + 1) * changes.nodes // 4
    slots = max(1, changes.largest // max(1, int(tasks.cores.min()) if count else 1))
    return State(
        task=task,
        node=node,
        running=np.zeros((changes.nodes, slots), np.int64),
        queue=np.zeros(len(task), np.int64),
        ending=np.zeros(4 * len(task) + 1024, ENDING),
        copies=(np.arange(count)[:, None] + count * np.arange(1, copies)).astype(np.int64),
        time=changes.time,
        who=changes.node,
        after=changes.after,
        interval=np.zeros(len(changes) + given_back, INTERVAL),
        cluster=cluster,
    )
