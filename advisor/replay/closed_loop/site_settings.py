"""A site's settings as a simulation: what the world can show of them, and what it cannot.

`advisor whatif`, `recommend` and `plan` begin with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from msgspec import structs

from advisor.arrays import Floats
from advisor.decide.submission.cloud_terms import (
    boot_seconds,
    configured_slowdown,
    ratio_of,
    usd_per_core_hour,
)
from advisor.decide.submission.policy import READ_BY, in_force
from advisor.decide.submission.rules import keeps_place, may_be_brought_back, may_move
from advisor.model.advice import Capacity, Verdict
from advisor.model.errors import BadInput
from advisor.model.periods import period_days
from advisor.model.settings import Settings
from advisor.model.site import Cutoff, SiteState
from advisor.replay.closed_loop.ambati2021 import PUBLISHED
from advisor.replay.closed_loop.first_price import EARLIER_JOBS
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.own_jobs import OwnJobs
from advisor.replay.closed_loop.policies import ALL_ON_PREMISE, POLICIES, Terms
from advisor.replay.closed_loop.tasks import Task
from advisor.replay.closed_loop.world import WorldOptions

VARIANCE_CUTOFF: Final = "placement.cutoff"
"""Not a setting: the tolerated variance in seconds squared, under whichever policy has such a limit."""

SHOWN: Final = frozenset(
    {
        "cluster.policy",
        "cluster.on_premise_partitions",
        "cluster.requeue_default",
        "budget.usd",
        "budget.period",
        "budget.usd_per_hour_saved",
        "price.loss_weight",
        "price.uncertainty_limit_minutes",
        "hedge.enabled",
        "hedge.opt_out_comment",
        "rules.allow_users",
        "rules.allow_accounts",
        "rules.deny_users",
        "rules.deny_accounts",
        "rules.deny_qos",
        "rules.max_processors",
        "rules.opt_out_comment",
        "rules.opt_out_feature",
        "rules.move_explicit_partition",
        "rules.move_interactive",
        "rules.move_dependent",
        "rules.move_deferred",
        "placement.baseline",
        "placement.overhead_per_processor",
        "placement.boot_seconds",
        VARIANCE_CUTOFF,
        "placement.use_cutoff",
        "placement.cutoff_minutes",
        "placement.cutoff_decay",
        "waiting.short_wait_seconds",
        "waiting.long_job_seconds",
        "waiting.ask_again_seconds",
        "ec2.on_demand_usd_per_hour",
    }
)
"""Settings that change a simulation."""

_DAY: Final = 86_400.0
_HOUR: Final = 3600.0


def refuse_not_shown(changes: Iterable[str], policy: str) -> None:
    """Refuse changed settings by which the simulation would not change.

    Raises:
        BadInput: One is not simulated, or another policy's (``whatif.not_shown``).
    """
    for key in changes:
        if key not in SHOWN:
            raise _not_shown(
                f"the simulated site does not know {key}, so that nothing would change",
                f"--set {key}",
                f"Leave it out. It knows: {', '.join(sorted(SHOWN))}",
            )
        only = READ_BY.get(key, policy)
        if only != policy:
            raise _not_shown(
                f"{key} belongs to the policy {only!r}, and {policy!r} does not read it",
                f"--set {key}",
                f"Add --set cluster.policy={only}, or leave it out",
            )
    if "cluster.policy" in changes and policy not in POLICIES:
        raise _not_shown(
            f"the policy {policy!r} moves no job, so that nothing would change in a simulation of moves",
            "--set cluster.policy",
            f"See `advisor replay` for its own experiment. Simulated are: {', '.join(POLICIES)}",
        )


def _not_shown(what: str, where: str, mend: str) -> BadInput:
    return BadInput(what, where=where, mend=mend, code="whatif.not_shown")


def cutoff_changes(changes: Mapping[str, Any], policy: str) -> dict[str, Any]:
    """Replace ``placement.cutoff=C`` (seconds squared) by the policy's settings.

    Raises:
        BadInput: C is not a number of at least 0, or the policy tolerates any variance.
    """
    if VARIANCE_CUTOFF not in changes:
        return dict(changes)
    said = changes[VARIANCE_CUTOFF]
    if isinstance(said, bool) or not isinstance(said, int | float) or not said >= 0.0:
        raise BadInput(
            f"{said!r} is not a variance in seconds squared",
            where=f"--set {VARIANCE_CUTOFF}",
            mend="Give a number of at least 0, or use price.uncertainty_limit_minutes, a number of minutes",
            code="config.value",
        )
    minutes = math.sqrt(said) / 60.0
    limits: dict[str, Any]
    if policy == "price":
        limits = {"price.uncertainty_limit_minutes": minutes}
    elif policy == "cunha2017":
        smallest = math.ulp(1.0)  # 0 minutes would let the backtest choose
        limits = {"placement.use_cutoff": True, "placement.cutoff_minutes": max(minutes, smallest)}
        limits |= {"placement.cutoff_decay": 0.0}
    else:
        raise _not_shown(
            f"the policy {policy!r} has no limit on a forecast's variance",
            f"--set {VARIANCE_CUTOFF}",
            "Add --set cluster.policy=cunha2017 or =price, or leave it out",
        )
    return limits | {key: value for key, value in changes.items() if key != VARIANCE_CUTOFF}


def seen_as_set(seen: SiteState, changes: Iterable[str]) -> SiteState:
    """The site as last seen, but for what the changes say of the cloud instead."""
    changes, cloud = frozenset(changes), seen.cloud
    if "placement.boot_seconds" in changes:
        cloud = structs.replace(cloud, boot_seconds=None)
    if "ec2.on_demand_usd_per_hour" in changes:
        cloud = structs.replace(cloud, on_demand_usd_per_core_hour=None)
    learns = changes.isdisjoint({"placement.baseline", "placement.overhead_per_processor"})
    return structs.replace(seen, cloud=cloud, ratios=seen.ratios if learns else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Settings as a simulation: their policy, and what a core-hour costs with them."""

    task: Task
    policy: str
    usd_per_core_hour: float


def simulation_of(name: str, settings: Settings, own: OwnJobs, seen: SiteState) -> Simulation:
    """The simulation of a site's jobs under its settings.

    Args:
        settings: The settings in force, with those of the policy.
        seen: The site as last seen: what its cloud is like.
    """
    jobs = under_rules(own, settings, seen)
    usd = usd_per_core_hour(Capacity.ON_DEMAND, seen.cloud, settings)
    task = Task(
        name=name,
        jobs=jobs,
        world=world_of(settings, own, seen, budget_share(settings, jobs, usd)),
        terms=terms_of(settings, usd),
    )
    return Simulation(task=task, policy=settings.cluster.policy, usd_per_core_hour=usd)


def world_of(settings: Settings, own: OwnJobs, seen: SiteState, share: float) -> WorldOptions:
    """The site's cloud, and a budget that is a share of the window's core-seconds."""
    return WorldOptions(
        boot_seconds=boot_seconds(seen.cloud, settings),
        slowdown=float(slowdowns(settings, own, seen).mean()),
        bills_boot=True,
        node_processors=max(1, seen.cloud.processors_per_node),
        budget_share=share,
        max_days=period_days(settings.budget.period),
    )


def slowdowns(settings: Settings, own: OwnJobs, seen: SiteState) -> Floats:
    """s(c) of each job of the window: as learned, else as set; shape ``(n,)``."""
    if seen.ratios is None:
        return np.array([configured_slowdown(int(c), settings.placement) for c in own.jobs.processors])
    rows = range(own.jobs.first, own.jobs.first + len(own.jobs))
    ratios = [ratio_of(own.job_at(row), seen.ratios) for row in rows]
    return np.array([one.factor for one in ratios if one is not None])


def under_rules(own: OwnJobs, settings: Settings, seen: SiteState) -> LoopJobs:
    """The jobs with what the site's rules and their users let happen to them."""
    jobs = own.jobs
    moves = np.ones(len(jobs.table), np.bool_)
    stops = np.ones(len(jobs.table), np.bool_)
    for row in range(max(0, jobs.first - EARLIER_JOBS), jobs.first + len(jobs)):
        job = own.job_at(row)
        moves[row] = may_move(job, seen.cloud, settings).verdict is Verdict.YES
        stops[row] = keeps_place(job, settings)
    return replace(jobs, may_move=moves, may_be_stopped=stops)


def requeueable_share(own: OwnJobs, settings: Settings) -> float:
    """Share of the window's jobs that may be stopped and started again elsewhere."""
    rows = range(own.jobs.first, own.jobs.first + len(own.jobs))
    return sum(may_be_brought_back(own.job_at(row), settings) for row in rows) / len(own.jobs)


def budget_share(settings: Settings, jobs: LoopJobs, usd: float) -> float:
    """The budget as a share of the window's core-seconds; infinite where nothing limits what is spent.

    Args:
        usd: Price of a core-hour.
    """
    budget = settings.budget
    if not budget.usd:
        is_free = settings.cluster.policy != "price" or budget.usd_per_hour_saved > 0.0
        return math.inf if is_free else 0.0
    per_second = budget.usd / (period_days(budget.period) * _DAY)
    all_usd = jobs.core_seconds / _HOUR * usd
    return per_second * jobs.span / all_usd if all_usd > 0.0 else math.inf


def terms_of(settings: Settings, usd: float) -> Terms:
    """The policy, and its own settings; ``usd`` is the price of a core-hour."""
    placement, policy = settings.placement, settings.cluster.policy
    fixed = settings.budget.usd_per_hour_saved
    cutoff = None
    if not placement.use_cutoff:
        cutoff = Cutoff(scale=math.inf, decay=0.0)
    elif placement.cutoff_minutes:
        cutoff = placement.cutoff_in_force()
    return Terms(
        policy=policy if policy in POLICIES else ALL_ON_PREMISE,
        loss_weight=settings.price.loss_weight,
        fixed_price=usd / fixed if fixed else None,
        uncertainty_limit=60.0 * settings.price.uncertainty_limit_minutes,
        cutoff=cutoff,
        waiting=in_force(settings).waiting if policy == "ambati2021" else PUBLISHED,
    )


def not_shown(settings: Settings, own: OwnJobs) -> list[str]:
    """The settings in force that are not simulated, and the job arrays of the window, as sentences."""
    said = []
    rows = range(own.jobs.first, own.jobs.first + len(own.jobs))
    tasks = sum(own.job_at(row).array_tasks > 1 for row in rows)
    if tasks:
        said.append(
            f"{tasks:,} jobs are tasks of job arrays. Here each is decided by itself; in fact an array moves "
            "as a whole."
        )
    if settings.cluster.policy not in POLICIES:
        said.append(f"The policy {settings.cluster.policy} moves no job, so it is shown as all on-premise.")
    if settings.budget.accounts or settings.budget.users:
        said.append("The budgets of single accounts and users are not simulated.")
    if settings.capacity.use_spot:
        said.append("Spot nodes are not simulated: money is at the on-demand price.")
    if settings.capacity.reserved_nodes:
        said.append("Reserved nodes are not simulated: money is at the on-demand price.")
    return said
