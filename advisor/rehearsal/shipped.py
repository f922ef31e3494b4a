"""The shipped settings on a log, as rows of ``advisor rehearse``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

from advisor.decide.submission.policy import in_force
from advisor.model.advice import Mode
from advisor.model.settings import Settings
from advisor.rehearsal.log_jobs import LogJobs
from advisor.rehearsal.rehearsal import Rehearsal, Rehearsed
from advisor.rehearsal.site import SiteShape
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.measures import measured
from advisor.replay.closed_loop.policies import ALL_ON_PREMISE
from advisor.replay.closed_loop.world import LoopResult, Policy, World, WorldOptions

VARIANTS: Final = ("default", "default-capped", "all-switches-capped", "price", "price-slices")
"""Without a cap; with a cap of the budget's part for a day; that with hedged starts, speculation
and matching (portfolio scheduling is not simulated); the one price with the budget's part for a month,
without and with hedged starts."""
_DAY: Final = 86_400.0
_DAYS_A_MONTH: Final = 365.25 / 12.0
_SWITCHES: Final[dict[str, dict[str, Any]]] = {
    "hedge": {"enabled": True, "by_default": True},
    "matching": {"enabled": True},
}

Tick = Callable[[str, int, int], None]
"""``tick(what, done, total)``."""


def settings_of(
    variant: str, *, usd_per_node_hour: float, slowdown: float, cap_usd: float, base: Settings | None = None
) -> Settings:
    """Settings of a variant: acting, without spot, with the rehearsal's price and slowdown."""
    own = base or Settings()
    is_priced = variant in ("price", "price-slices")
    is_capped = variant in ("default-capped", "all-switches-capped")
    waiting: dict[str, Any] = {"daily_cap_usd": cap_usd} if is_capped else {}
    changes: dict[str, dict[str, Any]] = {
        "cluster": {"default_mode": Mode.ACT, "policy": "price" if is_priced else "advisor"},
        "placement": {"baseline": slowdown, "overhead_per_processor": 0.0},
        "capacity": {"use_spot": False},
        "ec2": {"image_id": "ami-rehearsal", "on_demand_usd_per_hour": usd_per_node_hour},
        "waiting": waiting,
    }
    if variant == "all-switches-capped":
        changes["waiting"] = {**waiting, "speculate": True}
        changes |= _SWITCHES
    if is_priced:
        changes["budget"] = {"usd": _DAYS_A_MONTH * cap_usd, "period": "month"}
    if variant == "price-slices":
        changes["hedge"] = _SWITCHES["hedge"]
    sections = {name: getattr(own, name).model_copy(update=values) for name, values in changes.items()}
    return in_force(own.model_copy(update=sections))


def rehearse_shipped(
    jobs: LoopJobs,
    *,
    variants: Sequence[str] = VARIANTS,
    budget_share: float = 0.05,
    usd_per_core_hour: float = 0.0425,
    boot_seconds: float = 120.0,
    slowdown: float = 1.05,
    cloud_nodes: int = 0,
    tick: Tick | None = None,
) -> dict[str, Any]:
    """Run the shipped loops under each variant of the settings, and all on-premise.

    Args:
        cloud_nodes: Nodes of the burst partition; 0: as many processors as on-premise.
    """
    began = time.perf_counter()
    in_log = LogJobs(jobs, cloud_factor=slowdown)
    budget_usd = budget_share * jobs.core_seconds / 3600.0 * usd_per_core_hour
    size = in_log.node_processors
    shape = SiteShape(
        processors=jobs.machine,
        cloud_nodes=cloud_nodes or jobs.machine // size,
        node_processors=size,
        boot_seconds=boot_seconds,
    )
    usual = World(jobs, WorldOptions(budget_share=0.0), Policy()).run()
    rows = [_row(ALL_ON_PREMISE, jobs, usual, usual, budget_usd, usd_per_core_hour, 0.0)]
    for variant in variants:
        settings = settings_of(
            variant,
            usd_per_node_hour=usd_per_core_hour * size,
            slowdown=slowdown,
            cap_usd=budget_usd / max(1.0, jobs.span / _DAY),
        )

        def progress(done: int, total: int, variant: str = variant) -> None:
            if tick is not None:
                tick(variant, done, total)

        found = Rehearsal(settings, shape, in_log, progress=progress).run()
        row = _row(
            variant, jobs, _result(jobs, in_log, found), usual, budget_usd, usd_per_core_hour, found.seconds
        )
        rows.append({**row, "machine_usd": found.machine_usd, "rounds": found.rounds})
    return {
        "trace": jobs.table.name,
        "jobs": len(jobs),
        "budget_usd": budget_usd,
        "rows": rows,
        "seconds": time.perf_counter() - began,
    }


def _result(jobs: LoopJobs, in_log: LogJobs, found: Rehearsed) -> LoopResult:
    end = found.end - in_log.begins_at + float(jobs.submit[0])
    return LoopResult(end=end, cost=found.paid_core_seconds, moved=found.paid_core_seconds > 0.0)


def _row(
    policy: str,
    jobs: LoopJobs,
    result: LoopResult,
    usual: LoopResult,
    budget_usd: float,
    usd_per_core_hour: float,
    seconds: float,
) -> dict[str, Any]:
    return asdict(
        measured(
            policy,
            jobs,
            result,
            usual,
            budget_usd=budget_usd,
            usd_per_core_hour=usd_per_core_hour,
            seconds=seconds,
        )
    )
