"""A live day in the shipped loops on a virtual clock, and in the fast world of `advisor rehearse`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.decide.price.tokens import DAY, Tokens
from advisor.decide.submission.policy import in_force
from advisor.model.settings import Settings
from advisor.rehearsal.log_jobs import LogJobs
from advisor.rehearsal.rehearsal import Rehearsal
from advisor.rehearsal.site import SiteShape
from advisor.replay.closed_loop.learned_runs import LearnedRuns
from advisor.replay.closed_loop.price_policy import PricePolicy
from advisor.replay.closed_loop.world import Policy, World, WorldOptions
from advisor.simulate.pool.rules import Rules
from benchmarks.live_day import (
    CLOUD_NODES,
    NODE_PROCESSORS,
    PROCESSORS,
    REQUEUE_SECONDS,
    SLOWDOWN,
    SUSPEND_SECONDS,
    USD_PER_NODE_HOUR,
    LiveDay,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulated:
    """What a simulation made of a day.

    Attributes:
        turnaround: Of each job, seconds.
        in_cloud, moved: Whether it ended there; whether it ran there at all.
        usd: Machines in the cloud; core-seconds alone in the fast world.
    """

    turnaround: Floats
    in_cloud: NDArray[np.bool_]
    moved: NDArray[np.bool_]
    usd: float


def rehearse_live_day(
    day: LiveDay, *, slices: bool, cloud_start_seconds: float, rules: Rules | None, moves: bool = True
) -> Simulated:
    """Run a day through the shipped loops.

    Args:
        cloud_start_seconds: From a node's launch until it takes a job.
        rules: Of slurmctld; None: EASY backfilling.
        moves: False: all on-premise.
    """
    tables = day.settings(slices=slices)
    if not moves:
        tables["cluster"]["default_mode"] = "shadow"
    tables["ec2"]["image_id"] = "ami-12c6146b"
    settings = in_force(Settings.model_validate(tables))
    shape = SiteShape(
        processors=PROCESSORS,
        cloud_nodes=CLOUD_NODES,
        node_processors=NODE_PROCESSORS,
        boot_seconds=cloud_start_seconds,
        resume_seconds=60.0,
        idle_seconds=SUSPEND_SECONDS,
        requeue_seconds=REQUEUE_SECONDS + 1.0,
        rules=rules,
    )
    jobs = LogJobs(day.window, cloud_factor=SLOWDOWN, may_requeue=day.may_requeue)
    begin = partial(day.write_price, slices=slices)
    found = Rehearsal(settings, shape, jobs, is_every_round=True, found=begin).run()
    return Simulated(
        turnaround=found.end - found.submit,
        in_cloud=found.in_cloud,
        moved=found.paid_core_seconds > 0.0,
        usd=found.paid.usd,
    )


def fast_world(
    day: LiveDay, *, cloud_start_seconds: float, rules: Rules | None, moves: bool = True
) -> Simulated:
    """Run a day through the fast world: every job in slices, with a day's budget at hand."""
    jobs = day.window
    options = WorldOptions(
        boot_seconds=cloud_start_seconds, slowdown=SLOWDOWN, bills_boot=True, budget_share=0.0, rules=rules
    )
    core_seconds = day.usd / USD_PER_NODE_HOUR * 3600.0 * NODE_PROCESSORS
    world = World(jobs, options, PricePolicy(LearnedRuns) if moves else Policy())
    begin = float(jobs.submit[0])
    world.tokens = Tokens(core_seconds / DAY, time=begin, held=core_seconds, max_days=1.0)
    result = world.run()
    return Simulated(
        turnaround=result.end - jobs.submit,
        in_cloud=result.cost > 0.0,
        moved=result.moved,
        usd=float(result.cost.sum()) / NODE_PROCESSORS * USD_PER_NODE_HOUR / 3600.0,
    )
