"""Simulations that are independent of each other, side by side in processes of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self, TypeVar

import numpy as np

from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.policies import POLICIES, Terms, policy_of
from advisor.replay.closed_loop.world import LoopResult, World, WorldOptions

_TELLING_SECONDS: Final = 0.5
Asked = TypeVar("Asked")
Found = TypeVar("Found")

Tick = Callable[[str, int, int], None]
"""``tick(what, done, total)``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """One simulation; ``name`` is what its progress is told under."""

    name: str
    jobs: LoopJobs
    world: WorldOptions
    terms: Terms


@dataclass(frozen=True, slots=True)
class Done:
    """What happened, and the seconds that the simulation took."""

    result: LoopResult
    seconds: float


def run_tasks(tasks: Sequence[Task], *, processes: int, tick: Tick | None = None) -> list[Done]:
    """Simulate the tasks, so many at the same time as there are processes; results in their order."""
    order = list(range(len(tasks)))
    if processes > 1:  # those that take long begin first
        order.sort(key=lambda at: list(POLICIES).index(tasks[at].terms.policy), reverse=True)
    sizes = [len(tasks[at].jobs) for at in order]
    done = side_by_side(_simulate, [tasks[at] for at in order], sizes, processes=processes, tick=tick)
    return [one for _, one in sorted(zip(order, done, strict=True), key=lambda pair: pair[0])]


def side_by_side(
    run: Callable[[Asked, Tick | None], Found],
    tasks: Sequence[Asked],
    sizes: Sequence[int],
    *,
    processes: int,
    tick: Tick | None = None,
) -> list[Found]:
    """Run tasks, so many at the same time as there are processes; results in their order.

    Args:
        sizes: Number of jobs of each task, for the progress.
    """
    if min(processes, len(tasks)) <= 1:
        return [run(task, tick) for task in tasks]
    from joblib import Parallel, delayed  # noqa: PLC0415 (only where processes are started)

    with _Counts(sizes, tick) as counts:
        parallel = Parallel(n_jobs=min(processes, len(tasks)))
        calls = enumerate(zip(tasks, sizes, strict=True))
        found: list[Found] = parallel(
            delayed(_counted)(run, task, size, counts.path, at) for at, (task, size) in calls
        )
    return found


class _Counts:
    """Jobs that each task has done, in a file that the processes share; a thread tells the sum.

    Args:
        jobs: Number of jobs of each task.
        tick: Told the sum, a few times a second.
    """

    def __init__(self, jobs: Sequence[int], tick: Tick | None) -> None:
        self._total, self._tick = sum(jobs), tick
        self._folder = TemporaryDirectory(prefix="advisor-rehearse-")
        self.path = Path(self._folder.name) / "jobs"
        self._counts = np.memmap(self.path, np.int64, "w+", shape=(len(jobs),))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="rehearsal progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        del self._counts
        self._folder.cleanup()

    def _tell(self) -> None:
        is_over = False
        while self._tick is not None and not is_over:
            is_over = self._over.wait(_TELLING_SECONDS)
            self._tick("jobs of all simulations", int(self._counts.sum()), self._total)


def _counted(
    run: Callable[[Asked, Tick | None], Found], task: Asked, size: int, path: Path, at: int
) -> Found:
    """Simulate in a process of its own."""
    counts = np.memmap(path, np.int64, "r+")

    def count(_what: str, done: int, _total: int) -> None:
        counts[at] = done

    done = run(task, count)
    counts[at] = size
    return done


def _simulate(task: Task, tick: Tick | None) -> Done:
    began = time.perf_counter()
    world = World(task.jobs, task.world, policy_of(task.terms))
    result = world.run(None if tick is None else lambda done, total: tick(task.name, done, total))
    return Done(result, time.perf_counter() - began)
