"""The shipped submit server and control loops on a log, as rows of ``advisor rehearse``."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from advisor.decide.submission.policy import in_force
from advisor.model.advice import Mode
from advisor.model.settings import Settings
from advisor.parallel import Tick, side_by_side
from advisor.rehearsal.cloud_market import CloudMarket
from advisor.rehearsal.log_jobs import LogJobs
from advisor.rehearsal.rehearsal import LEAD_SECONDS, Rehearsal, Rehearsed
from advisor.rehearsal.site import SiteShape
from advisor.replay.closed_loop import rehearse
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.measures import measured
from advisor.replay.closed_loop.world import LoopResult, Policy, World
from advisor.service.running.logs import configure

SHIPPED: Final = "shipped"
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    name: str
    share: float
    settings: Settings
    shape: SiteShape
    jobs: LogJobs


def rehearse_shipped(
    jobs: LoopJobs,
    asked: rehearse.Rehearsal,
    settings: Mapping[str, Settings],
    market: CloudMarket,
    tick: Tick | None = None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run the shipped loops under each of the settings; the burst partition is as large as the cluster.

    Args:
        asked: The cloud, its price and the budgets, as the other rows have them.
        settings: Name of a row to its settings, before those of the policy are added.

    Returns:
        Rows at the budget of the world, and all rows for the curve.
    """
    tasks = [
        _task(name, share, of_row, jobs, asked, market)
        for share in asked.all_shares
        for name, of_row in settings.items()
    ]
    sizes = [len(jobs)] * len(tasks)
    done = side_by_side(_run, tasks, sizes, processes=asked.processes, tick=tick)
    usual = World(jobs, asked.world, Policy()).run()
    rows = [_row(task, found, jobs, usual, asked) for task, found in zip(tasks, done, strict=True)]
    curve = sorted(rows, key=lambda row: row["budget_share"]) if asked.shares else []
    return rows[: len(settings)], curve


def site_settings(
    own: Settings, *, usd_per_node_hour: float, slowdown: float, usd: float, period: str, has_spot: bool
) -> Settings:
    """Settings as a rehearsal has them in force: acting, with its prices, slowdown and budget.

    Args:
        own: The site's settings; a fixed price of an hour (``budget.usd_per_hour_saved``) stays as it is.
        usd: The budget of the period; what is left of it may be spent while the last jobs wait.
        period: The window, see :mod:`advisor.model.periods`.
        has_spot: Whether the market says what becomes of spot instances; without that none is used.
    """
    spot_share = own.ec2.spot_usd_per_hour / own.ec2.on_demand_usd_per_hour
    budget = {"usd": usd, "period": period, "carry_over": True, "accounts": {}, "users": {}}
    changes: dict[str, dict[str, Any]] = {
        "cluster": {"default_mode": Mode.ACT},
        "placement": {"baseline": slowdown, "overhead_per_processor": 0.0},
        "capacity": {"use_spot": own.capacity.use_spot and has_spot},
        "ec2": {
            "image_id": "ami-rehearsal",
            "on_demand_usd_per_hour": usd_per_node_hour,
            "spot_usd_per_hour": usd_per_node_hour * spot_share,
        },
        "budget": {} if own.budget.usd_per_hour_saved else budget,
    }
    sections = {name: getattr(own, name).model_copy(update=values) for name, values in changes.items()}
    return in_force(own.model_copy(update=sections))


def _task(
    name: str,
    share: float,
    settings: Settings,
    jobs: LoopJobs,
    asked: rehearse.Rehearsal,
    market: CloudMarket,
) -> _Task:
    in_log = LogJobs(jobs, cloud_factor=asked.world.slowdown)
    size = in_log.node_processors
    shape = SiteShape(
        processors=jobs.machine,
        cloud_nodes=jobs.machine // size,
        node_processors=size,
        boot_seconds=asked.world.boot_seconds,
        market=market,
        rules=asked.world.rules,
    )
    in_rehearsal = site_settings(
        settings,
        usd_per_node_hour=asked.usd_per_core_hour * size,
        slowdown=asked.world.slowdown,
        usd=asked.budget_usd(jobs, share),
        period=window_of(jobs),
        has_spot=market.has_spot,
    )
    return _Task(name, share, in_rehearsal, shape, in_log)


def window_of(jobs: LoopJobs) -> str:
    """From the begin of the rehearsal to the last submission, as a period that comes once."""
    first = LogJobs(jobs, cloud_factor=1.0).begins_at
    begin, end = first - LEAD_SECONDS, first + jobs.span
    return " until ".join(
        datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        for time in (math.floor(begin), math.ceil(end))
    )


def _run(task: _Task, tick: Tick | None) -> Rehearsed:
    configure(level=logging.ERROR)  # here: it may be a process of its own. Moves and launches did not happen
    what = f"{task.name}, {100 * task.share:g} %"
    progress = None if tick is None else lambda done, total: tick(what, done, total)
    return Rehearsal(task.settings, task.shape, task.jobs, progress=progress).run()


def _row(
    task: _Task, found: Rehearsed, jobs: LoopJobs, usual: LoopResult, asked: rehearse.Rehearsal
) -> dict[str, Any]:
    budget_usd = asked.budget_usd(jobs, task.share)
    row = measured(
        task.name,
        jobs,
        _result(task, found, jobs),
        usual,
        budget_usd=budget_usd,
        usd_per_core_hour=asked.usd_per_core_hour,
        seconds=found.seconds,
    )
    return {
        **asdict(row),
        "budget_share": task.share,
        "budget_usd": budget_usd,
        "machine_usd": found.paid.usd,
        "spot_share": found.paid.spot_seconds / found.paid.seconds if found.paid.seconds else 0.0,
        "interruptions": int(found.interruptions.sum()),
        "lost_hours": float(found.lost_seconds.sum()) / _HOUR,
        "refused_launches": found.refused_launches,
        "rounds": found.rounds,
        "failures": {name: count for name, count in found.failures.items() if count},
    }


def _result(task: _Task, found: Rehearsed, jobs: LoopJobs) -> LoopResult:
    """The jobs' share of the money at the mean price of what was paid for, as core-seconds on-demand."""
    on_demand_usd = found.paid.seconds * task.settings.ec2.on_demand_usd_per_hour / _HOUR
    price = found.paid.usd / on_demand_usd if on_demand_usd else 1.0
    end = found.end - task.jobs.begins_at + float(jobs.submit[0])
    moved: np.ndarray[Any, np.dtype[np.bool_]] = found.paid_core_seconds > 0.0
    return LoopResult(end=end, cost=found.paid_core_seconds * price, moved=moved)
