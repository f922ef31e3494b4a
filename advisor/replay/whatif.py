"""`advisor whatif`: a site's own jobs under the settings in force and changed ones, in a closed loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from advisor.parallel import Tick
from advisor.replay.closed_loop.fidelity import fidelity_of
from advisor.replay.closed_loop.measures import measured
from advisor.replay.closed_loop.own_jobs import OwnJobs
from advisor.replay.closed_loop.policies import ALL_ON_PREMISE, Terms
from advisor.replay.closed_loop.site_settings import Simulation
from advisor.replay.closed_loop.tasks import Done, Task, run_tasks
from advisor.replay.closed_loop.world import LoopResult, WorldOptions

_HOUR: Final = 3600.0


def compared(
    own: OwnJobs, simulations: Sequence[Simulation], *, processes: int, tick: Tick | None = None
) -> dict[str, Any]:
    """Simulate settings beside all on-premise, and that beside what happened.

    Returns:
        ``rows``: as of ``advisor rehearse``, all on-premise first, each with its ``settings``, its
        ``budget_usd`` in the window (None: no limit), its ``boot_seconds`` and ``slowdown``;
        ``fidelity``: of the jobs that ran on-premise.
    """
    stays = Terms(policy=ALL_ON_PREMISE)
    usual = Simulation(
        task=Task(name=ALL_ON_PREMISE, jobs=own.jobs, world=WorldOptions(budget_share=0.0), terms=stays),
        policy=ALL_ON_PREMISE,
        usd_per_core_hour=0.0,
    )
    every = (usual, *simulations)
    tasks = [one.task for one in every]
    if own.in_cloud:
        tasks.append(Task(name="what happened", jobs=own.here, world=usual.task.world, terms=stays))
    done = run_tasks(tasks, processes=processes, tick=tick)
    here = done[-1] if own.in_cloud else done[0]
    return {
        "rows": [_row(one, how, done[0].result) for one, how in zip(every, done, strict=False)],
        "fidelity": asdict(fidelity_of(own.here, here.result)),
    }


def _row(of: Simulation, done: Done, on_premise: LoopResult) -> dict[str, Any]:
    jobs, world = of.task.jobs, of.task.world
    budget = world.budget_share * jobs.core_seconds / _HOUR * of.usd_per_core_hour
    is_limited = budget < math.inf
    row = measured(
        of.policy,
        jobs,
        done.result,
        on_premise,
        budget_usd=budget if is_limited else 0.0,
        usd_per_core_hour=of.usd_per_core_hour,
        seconds=done.seconds,
    )
    return {
        "settings": of.task.name,
        "budget_usd": budget if is_limited else None,
        "boot_seconds": world.boot_seconds,
        "slowdown": world.slowdown,
        **asdict(row),
    }
