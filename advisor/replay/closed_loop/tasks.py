"""The independent simulations of one command (`rehearse`, `whatif`, `recommend`, `plan`), side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.parallel import Tick, side_by_side
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.policies import POLICIES, Terms
from advisor.replay.closed_loop.world import LoopResult, World, WorldOptions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """One simulation; ``name`` is what its progress is told under."""

    name: str
    jobs: LoopJobs
    world: WorldOptions
    terms: Terms


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome, and the seconds that the simulation took."""

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


def _simulate(task: Task, tick: Tick | None) -> Done:
    began = time.perf_counter()
    if tick is not None:  # a policy learns from the jobs before, which takes long where there are many
        tick(task.name, 0, len(task.jobs))
    world = World(task.jobs, task.world, POLICIES[task.terms.policy](task.terms))
    result = world.run(None if tick is None else lambda done, total: tick(task.name, done, total))
    return Done(result, time.perf_counter() - began)
