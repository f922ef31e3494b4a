"""A log under several policies at equal money, side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import numpy as np

from advisor.model.errors import BadInput
from advisor.replay.closed_loop.fidelity import fidelity_of
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.measures import PolicyRow, measured
from advisor.replay.closed_loop.policies import ALL_ON_PREMISE, POLICIES
from advisor.replay.closed_loop.world import LoopResult, World, WorldOptions

CURVE_SHARES: Final = (0.01, 0.02, 0.05, 0.10)
"""Budget shares of the curve of saved hours against dollars."""

_TELLING_SECONDS: Final = 0.5

Tick = Callable[[str, int, int], None]
"""``tick(what, done, total)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What is rehearsed.

    Attributes:
        policies: By name, each once; all on-premise is among them.
        world: The cloud, the clock, and the share of the budget.
        usd_per_core_hour: On-demand.
        shares: Further budget shares, for the curve.
        processes: Policies that are simulated at the same time.
    """

    policies: tuple[str, ...]
    world: WorldOptions
    usd_per_core_hour: float
    shares: tuple[float, ...] = ()
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """One policy with one budget; the budget of all on-premise does not matter."""

    policy: str
    share: float


@dataclass(frozen=True, slots=True)
class Done:
    """A task, what happened, and the seconds it took."""

    task: Task
    result: LoopResult
    seconds: float


def rehearse(jobs: LoopJobs, asked: Rehearsal, tick: Tick | None = None) -> dict[str, Any]:
    """Run the policies, and report them as ``advisor rehearse --format json`` prints them.

    Args:
        jobs: The window.
        asked: What is rehearsed.
        tick: Told how far it is.

    Raises:
        BadInput: A share of the budget is negative or not finite.
    """
    began = time.perf_counter()
    shares = tuple(dict.fromkeys((asked.world.budget_share, *asked.shares)))
    if not all(0.0 <= share < float("inf") for share in shares):
        raise BadInput(
            f"a budget cannot be {asked.world.budget_share:g} times what the log's jobs use",
            where="--budget-share",
            mend="Give a share of the log's core-hours, such as 0.05",
            code="rehearse.share",
        )
    tasks = [
        Task(policy, share)
        for share in shares
        for policy in asked.policies
        if policy != ALL_ON_PREMISE or share == shares[0]
    ]
    done = {one.task: one for one in run_tasks(jobs, asked, tasks, tick)}
    on_premise = done[Task(ALL_ON_PREMISE, shares[0])]

    def row(policy: str, share: float) -> PolicyRow:
        one = on_premise if policy == ALL_ON_PREMISE else done[Task(policy, share)]
        return measured(
            policy,
            jobs,
            one.result,
            on_premise.result,
            budget_usd=_budget_usd(jobs, share, asked),
            usd_per_core_hour=asked.usd_per_core_hour,
            seconds=one.seconds,
        )

    rows = {share: [row(policy, share) for policy in asked.policies] for share in shares}
    return {
        "trace": jobs.table.name,
        "jobs": len(jobs),
        "processors": jobs.machine,
        "days": jobs.span / 86_400.0,
        "core_hours": jobs.core_seconds / 3600.0,
        "budget_share": asked.world.budget_share,
        "budget_usd": _budget_usd(jobs, shares[0], asked),
        "usd_per_core_hour": asked.usd_per_core_hour,
        "boot_seconds": asked.world.boot_seconds,
        "slowdown": asked.world.slowdown,
        "bills_boot": asked.world.bills_boot,
        "fidelity": asdict(fidelity_of(jobs, on_premise.result)),
        "rows": [asdict(one) for one in rows[shares[0]]],
        "curve": [
            {"budget_share": share, "budget_usd": _budget_usd(jobs, share, asked), **asdict(one)}
            for share in sorted(shares)
            for one in rows[share]
        ]
        if asked.shares
        else [],
        "seconds": time.perf_counter() - began,
    }


def _budget_usd(jobs: LoopJobs, share: float, asked: Rehearsal) -> float:
    return share * jobs.core_seconds / 3600.0 * asked.usd_per_core_hour


def run_tasks(jobs: LoopJobs, asked: Rehearsal, tasks: Sequence[Task], tick: Tick | None) -> Iterator[Done]:
    """Simulate the tasks, in processes of their own where several may run at the same time; in any order."""
    if min(asked.processes, len(tasks)) <= 1:
        for task in tasks:
            yield _simulate(jobs, asked.world, task, tick)
        return
    from joblib import Parallel, delayed  # noqa: PLC0415 (only where processes are started)

    # those that take long begin first
    ordered = sorted(tasks, key=lambda task: list(POLICIES).index(task.policy), reverse=True)
    with _Counts(len(tasks), len(jobs), tick) as counts:
        parallel = Parallel(n_jobs=min(asked.processes, len(tasks)), return_as="generator_unordered")
        yield from parallel(
            delayed(_counted)(jobs, asked.world, task, counts.path, at) for at, task in enumerate(ordered)
        )


class _Counts:
    """Jobs that each task has done, in a file that the processes share; a thread tells the sum.

    Args:
        tasks, jobs: Tasks, and jobs of each.
        tick: Told the sum, a few times a second.
    """

    def __init__(self, tasks: int, jobs: int, tick: Tick | None) -> None:
        self._total, self._jobs, self._tick = tasks * jobs, jobs, tick
        self._folder = TemporaryDirectory(prefix="advisor-rehearse-")
        self.path = Path(self._folder.name) / "jobs"
        self._counts = np.memmap(self.path, np.int64, "w+", shape=(tasks,))
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
            self._tick("jobs of all policies", int(self._counts.sum()), self._total)


def _counted(jobs: LoopJobs, options: WorldOptions, task: Task, path: Path, at: int) -> Done:
    """Simulate in a process of its own."""
    counts = np.memmap(path, np.int64, "r+")

    def count(_what: str, done: int, _total: int) -> None:
        counts[at] = done

    done = _simulate(jobs, options, task, count)
    counts[at] = len(jobs)
    return done


def _simulate(jobs: LoopJobs, options: WorldOptions, task: Task, tick: Tick | None) -> Done:
    began = time.perf_counter()
    world = World(jobs, replace(options, budget_share=task.share), POLICIES[task.policy]())
    what = task.policy if task.policy == ALL_ON_PREMISE else f"{task.policy}, {100 * task.share:g} %"
    result = world.run(None if tick is None else lambda done, total: tick(what, done, total))
    return Done(task, result, time.perf_counter() - began)
