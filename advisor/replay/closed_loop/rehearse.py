"""`advisor rehearse`: a log under several policies at equal money, side by side."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from advisor.parallel import Tick
from advisor.replay.closed_loop.fidelity import fidelity_of
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.measures import PolicyRow, measured
from advisor.replay.closed_loop.policies import ALL_ON_PREMISE, Terms
from advisor.replay.closed_loop.tasks import Done, Task, run_tasks
from advisor.replay.closed_loop.world import WorldOptions

CURVE_SHARES: Final = (0.01, 0.02, 0.05, 0.10)
"""Budget shares of the curve of saved hours against dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The parameters of the rehearsal.

    Attributes:
        policies: Names of the policies, each once; ``all-on-premise`` is among them.
        usd_per_core_hour: On-demand.
        shares: Further budget shares, for the curve.
        processes: Policies that are simulated at the same time.
    """

    policies: tuple[str, ...]
    world: WorldOptions
    usd_per_core_hour: float
    shares: tuple[float, ...] = ()
    processes: int = 1

    @property
    def all_shares(self) -> tuple[float, ...]:
        """The budget shares, that of the world first."""
        return tuple(dict.fromkeys((self.world.budget_share, *self.shares)))

    def budget_usd(self, jobs: LoopJobs, share: float) -> float:
        """The cost of a share of the core-hours, US dollars."""
        return share * jobs.core_seconds / 3600.0 * self.usd_per_core_hour


def rehearse(jobs: LoopJobs, asked: Rehearsal, tick: Tick | None = None) -> dict[str, Any]:
    """Run the policies, and report them as ``advisor rehearse --format json`` prints them."""
    began = time.perf_counter()
    done = _simulated(jobs, asked, tick)
    first, *_ = asked.all_shares
    rows = {
        share: [asdict(_row(jobs, asked, done, policy, share)) for policy in asked.policies]
        for share in asked.all_shares
    }
    curve = [
        {"budget_share": share, "budget_usd": asked.budget_usd(jobs, share), **one}
        for share in sorted(rows)
        for one in rows[share]
    ]
    return {
        "trace": jobs.table.name,
        "jobs": len(jobs),
        "processors": jobs.machine,
        "days": jobs.span / 86_400.0,
        "core_hours": jobs.core_seconds / 3600.0,
        "budget_share": asked.world.budget_share,
        "budget_usd": asked.budget_usd(jobs, first),
        "usd_per_core_hour": asked.usd_per_core_hour,
        "boot_seconds": asked.world.boot_seconds,
        "slowdown": asked.world.slowdown,
        "bills_boot": asked.world.bills_boot,
        "fidelity": asdict(fidelity_of(jobs, done[ALL_ON_PREMISE, first].result)),
        "rows": rows[first],
        "curve": curve if asked.shares else [],
        "seconds": time.perf_counter() - began,
    }


def _simulated(jobs: LoopJobs, asked: Rehearsal, tick: Tick | None) -> dict[tuple[str, float], Done]:
    """Every policy with every budget, all on-premise once: a budget does not matter to it."""
    shares = asked.all_shares
    cells = [
        (policy, share)
        for share in shares
        for policy in asked.policies
        if policy != ALL_ON_PREMISE or share == shares[0]
    ]
    tasks = [
        Task(
            name=policy if policy == ALL_ON_PREMISE else f"{policy}, {100 * share:g} %",
            jobs=jobs,
            world=replace(asked.world, budget_share=share),
            terms=Terms(policy=policy),
        )
        for policy, share in cells
    ]
    return dict(zip(cells, run_tasks(tasks, processes=asked.processes, tick=tick), strict=True))


def _row(
    jobs: LoopJobs, asked: Rehearsal, done: dict[tuple[str, float], Done], policy: str, share: float
) -> PolicyRow:
    on_premise = done[ALL_ON_PREMISE, asked.all_shares[0]]
    one = on_premise if policy == ALL_ON_PREMISE else done[policy, share]
    return measured(
        policy,
        jobs,
        one.result,
        on_premise.result,
        budget_usd=asked.budget_usd(jobs, share),
        usd_per_core_hour=asked.usd_per_core_hour,
        seconds=one.seconds,
    )
