"""The demand with which the price begins: the site's last weeks, rehearsed at its budget.

The price loop does so once, as soon as the history has jobs enough and no demand is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.decide.price.demand_price import DemandKept
from advisor.decide.submission.cloud_terms import boot_seconds, configured_slowdown, usd_per_core_hour
from advisor.history.columns import on_premise
from advisor.history.store import HistoryStore
from advisor.model.advice import Capacity
from advisor.model.machine import Machine
from advisor.model.periods import period_span
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.model.table import JobTable
from advisor.replay.closed_loop.learned_runs import LearnedRuns
from advisor.replay.closed_loop.log import loop_jobs
from advisor.replay.closed_loop.own_jobs import from_eligibility, which_fit
from advisor.replay.closed_loop.price_policy import PricePolicy
from advisor.replay.closed_loop.world import World, WorldOptions
from advisor.service.running.clock import Clock

MIN_JOBS: Final = 200
_RETRY_SECONDS: Final = 3600.0
_HISTORY_DAYS: Final = 90.0
"""Of ended jobs that the rehearsal reads: it rehearses four weeks, and learns run times from the others."""
_MAX_JOBS: Final = 5_000
_DAY: Final = 86_400.0
_DAYS: Final = 28.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteTerms:
    """The properties of the site that the rehearsal needs.

    Attributes:
        usd_per_day: The budget of a day, US dollars.
        usd_per_core_hour: On-demand.
        boot_seconds, slowdown: Boot time of a cloud node, seconds; run time in the cloud over that
            on-premise.
        loss_weight: How many saved hours one lost hour outweighs.
        has_slices: Whether jobs keep their place on-premise, so that their runs are bought in slices.
        node_processors: Of a cloud node, all of which each job's decision counts; 1 where that is unknown.
    """

    usd_per_day: float
    usd_per_core_hour: float
    boot_seconds: float
    slowdown: float
    loss_weight: float
    has_slices: bool
    node_processors: int


def rehearsed_demand(
    here: JobTable, machines: Sequence[Machine], terms: SiteTerms, now: float
) -> DemandKept | None:
    """Rehearse the newest jobs of the last four weeks; None where there are too few.

    Args:
        here: Jobs that ran on-premise, in submission order, times in epoch seconds.
        now: Epoch seconds; the demand ends here.

    Returns:
        Seconds saved per US dollar and US dollars.
    """
    usd_per_core_second = terms.usd_per_core_hour / 3600.0
    processors = sum(machine.processors for machine in machines)
    here = from_eligibility(here)
    fits = here.select(which_fit(here, processors, machines))
    newest = min(_MAX_JOBS, int(np.count_nonzero(fits.submit >= now - _DAYS * _DAY)))
    if newest < MIN_JOBS or usd_per_core_second <= 0.0:
        return None
    jobs = loop_jobs(fits, skip=len(fits) - newest, nodes=processors).on_machines(machines)
    if not terms.has_slices:
        jobs = replace(jobs, may_be_stopped=np.zeros(len(jobs.table), np.bool_))
    usd = terms.usd_per_day / _DAY * max(jobs.span, 1.0)
    policy = PricePolicy(LearnedRuns, loss_weight=terms.loss_weight, earlier_jobs=0)
    options = WorldOptions(
        boot_seconds=terms.boot_seconds,
        slowdown=terms.slowdown,
        bills_boot=True,
        node_processors=terms.node_processors,
        budget_share=usd / usd_per_core_second / max(jobs.core_seconds, 1.0),
    )
    World(jobs, options, policy).run()
    kept = policy.demand
    later = now - float(jobs.submit[-1])
    return DemandKept(
        since=kept.since + later,
        price=kept.price / usd_per_core_second,
        next_reading=now,
        seen={
            f"rehearsed {key}": (
                min(now, time + later),
                index / usd_per_core_second,
                cost * usd_per_core_second,
            )
            for key, (time, index, cost) in kept.seen.items()
        },
    )


def rehearsing(
    settings: Settings, store: HistoryStore, clock: Clock
) -> Callable[[CloudState, Sequence[Machine]], DemandKept | None]:
    """Rehearse the history once it has jobs enough, which takes seconds; None before that."""
    tried_at = -math.inf

    def rehearse(cloud: CloudState, machines: Sequence[Machine]) -> DemandKept | None:
        nonlocal tried_at
        now = clock.wall()
        if now - tried_at < _RETRY_SECONDS:
            return None
        tried_at = now
        begin, end = period_span(now, settings.budget.period)
        has_processors = any(machine.processors for machine in machines)
        if not settings.budget.usd or not has_processors or store.count() < MIN_JOBS:
            return None
        table = store.table(
            now - _HISTORY_DAYS * _DAY, utc_offset_seconds=settings.cluster.utc_offset_seconds
        )
        terms = SiteTerms(
            usd_per_day=settings.budget.usd * _DAY / (end - begin),
            usd_per_core_hour=usd_per_core_hour(Capacity.ON_DEMAND, cloud, settings),
            boot_seconds=boot_seconds(cloud, settings),
            slowdown=configured_slowdown(1, settings.placement),
            loss_weight=settings.price.loss_weight,
            has_slices=settings.hedge.enabled,
            node_processors=max(1, cloud.processors_per_node),
        )
        here = on_premise(table, settings.cluster.burst_partition)
        return rehearsed_demand(here, machines, terms, now)

    return rehearse
