"""Question 4: which capacity? Reserved (paid for), then spot if the job may be requeued, then on-demand."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from advisor.decide.explanation.display import duration
from advisor.decide.explanation.reasons import Reason
from advisor.decide.spot.pools import pools_for_run
from advisor.decide.submission.cloud_terms import (
    ANY,
    boot_seconds,
    cloud_wait,
    needs_boot,
    stretched,
    usd_per_core_hour,
)
from advisor.decide.submission.rules import deadline_for, requeueable
from advisor.model.advice import Answer, Capacity, Quantity, Question, Verdict
from advisor.model.checkpoint_word import NO_CHECKPOINT
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState, Ratio
from advisor.model.spot_pools import SpotPool

MAX_SPOT_INTERRUPTIONS: Final = 2
"""A job with this number of spot interruptions gets an on-demand node next. One interruption is ordinary; a
second one shows that the job is too long for the present spot pools."""
MAX_CHECKPOINTED_INTERRUPTIONS: Final = 20
"""The same for a job with checkpoints, which goes on from the last one: a job of two days loses its instance
some ten times where instances last five hours. More show that they do not last until the next checkpoint."""
_NEVER_SPOT: Final = (Capacity.ON_DEMAND.value, Capacity.RESERVED.value)
_ON_SPOT: Final = Capacity.SPOT.value
_SPOT: Final = (Capacity.SPOT, Reason.SPOT)
_ON_DEMAND: Final = (Capacity.ON_DEMAND, Reason.ON_DEMAND)
_CAPACITY: Final = Question.CAPACITY
_YES: Final = Verdict.YES


def choose(
    job: Job,
    cloud_run_seconds: float,
    cloud: CloudState,
    settings: Settings,
    now: float,
    ratio: Ratio | None = None,
    *,
    off_spot: str = "",
) -> tuple[Capacity | None, Answer]:
    """Choose the capacity and say why.

    Args:
        job: A job that may not be requeued is never put on spot (docs/designs/0001, rule 1): it moves only if
            a constraint can keep it off spot.
        cloud_run_seconds: Predicted run time in the cloud, s(c)*r; NaN when unknown, which keeps the job off
            spot.
        cloud: Free reserved nodes, open pools, protected mode.
        now: Seconds, on the clock of ``cloud.rooms``.
        ratio: The learned performance ratio of the job, by which its time limit is raised there.
        off_spot: Why the caller keeps it off spot, if it does.

    Returns:
        capacity: None when no pool is open: the job stays on-premise.
        answer:
    """
    if cloud.protected:
        return None, _answer(Verdict.NO, Reason.PROTECTED, detail=cloud.protected)
    ends = _ends_at_most(job, cloud, settings, now, ratio)
    if cloud.closings:
        wait_there, _ = wait_and_boot(job, cloud_run_seconds, cloud, settings, now)
        if ends + wait_there > (closes_at := cloud.closes_for(job)):
            closes_in = ("closes_in", Quantity(max(0.0, closes_at - now)))
            return None, _answer(Verdict.NO, Reason.BURST_RESERVED, closes_in)
    if must_avoid_spot(job, settings) and (doubt := _not_excludable(job, cloud)):
        return None, _answer(Verdict.NO, Reason.SPOT_NOT_EXCLUDED, detail=doubt)
    run = ("predicted_cloud_run", Quantity(cloud_run_seconds))
    saves = checkpoint_number(job)
    if cloud.reserved_free_nodes or cloud.reserved_until:
        number = _reserved_until(ends, cloud)
        if _fits_reserved(job, cloud, number):
            free = ("reserved_free", Quantity(float(number), "nodes"))
            size, where = _class_of(cloud)
            return Capacity.RESERVED, _answer(Verdict.YES, Reason.RESERVED, run, free, *size, detail=where)
    limit = ("spot_max_run", Quantity(settings.capacity.spot_max_run_seconds))
    obstacle = _spot_obstacle(job, cloud_run_seconds, cloud, settings) or off_spot
    if cloud.rooms and not obstacle and cloud.on_demand_open:
        obstacle = _sooner_off_spot(job, cloud_run_seconds, cloud, now)
    if obstacle and not cloud.on_demand_open:
        return None, _none_open(obstacle, cloud, now, run, limit, *saves)
    capacity, reason = _ON_DEMAND if obstacle else _SPOT
    price = ("price", Quantity(usd_per_core_hour(capacity, cloud, settings), "USD/core-h"))
    size, where = _class_of(cloud)
    obstacle += f"{'; ' if obstacle and where else ''}{where}"
    return capacity, _answer(_YES, reason, run, limit, *saves, price, *size, detail=obstacle)


def _none_open(obstacle: str, cloud: CloudState, now: float, *numbers: tuple[str, Quantity]) -> Answer:
    """Say until when on-demand pools are closed, and why, besides what speaks against spot."""
    closed = cloud.on_demand_closed
    if closed is not None:
        numbers = (*numbers, ("closed_for", Quantity(max(0.0, closed.until - now))))
        obstacle = f"{obstacle} (EC2: {closed.code})"
    return _answer(Verdict.NO, Reason.NONE_OPEN, *numbers, detail=obstacle)


def _class_of(cloud: CloudState) -> tuple[tuple[tuple[str, Quantity], ...], str]:
    """The size of the nodes of the job's class, and its name; empty on a site without classes."""
    kind = cloud.node_class
    if kind is None:
        return (), ""
    cores = ("node_cores", Quantity(float(kind.processors_per_node), "cores"))
    memory = ("node_memory", Quantity(float(kind.memory_mb_per_node), "MiB"))
    return (cores, memory), f"class {kind.name or 'of ec2.instance_type'}"


def capacity_in_burst(
    job: Job,
    cloud_run_seconds: float,
    cloud: CloudState,
    settings: Settings,
    now: float,
    ratio: Ratio | None,
) -> Capacity | None:
    """Capacity for a job that its user submitted to the burst partition.

    A capacity named in its constraint is used, else the rule of moved jobs (:func:`choose`). None: there is
    none, and the fleet launches on-demand.
    """
    named = next((capacity for capacity in Capacity if capacity.value in job.features), None)
    if named is None:
        return choose(job, cloud_run_seconds, cloud, settings, now, ratio)[0]
    return None if named is Capacity.SPOT and not requeueable(job, settings) else named


def must_avoid_spot(job: Job, settings: Settings) -> bool:
    """Whether the job needs a constraint that keeps it off spot; False where the site uses no spot."""
    return settings.capacity.use_spot and not requeueable(job, settings)


def wait_and_boot(
    job: Job, cloud_run_seconds: float, cloud: CloudState, settings: Settings, now: float
) -> tuple[float, bool]:
    """Seconds that the job waits for cloud nodes on which it may start, and whether these boot then."""
    if not cloud.rooms:
        return 0.0, True
    kind = (must_avoid_spot(job, settings) and off_spot_feature(job, cloud)) or ANY
    wait = cloud_wait(kind, job, cloud_run_seconds, cloud, now)
    return wait, needs_boot(kind, job, wait, cloud)


def off_spot_feature(job: Job, cloud: CloudState) -> str | None:
    """A node feature that keeps the job off spot and that enough usable nodes have; None if there is none."""
    needed = cloud.nodes_at_most(job)
    return next((name for name in _NEVER_SPOT if cloud.nodes_with.get(name, 0.0) >= needed), None)


def is_never_spot(features: Collection[str]) -> bool:
    """Whether a node with these features is never launched as a spot instance.

    A job that may not be requeued relies on this. The features are those of slurm.conf and stay: if
    ``scontrol`` removed them from a spot node, ``scontrol reconfigure`` would bring them back, and without
    any node that has them slurmctld would refuse submissions that name them.
    """
    return any(name in features for name in _NEVER_SPOT)


def _sooner_off_spot(job: Job, cloud_run_seconds: float, cloud: CloudState, now: float) -> str:
    """Say that the job starts sooner on nodes that are not spot; empty when it does not.

    Slurm would start it there whatever it prefers. A job of several nodes may use both kinds together, of
    which the spot part is cheaper.
    """
    if _ON_SPOT not in cloud.rooms or cloud.nodes_at_most(job) > 1:
        return ""
    on_spot = cloud_wait(_ON_SPOT, job, cloud_run_seconds, cloud, now)
    longer = on_spot - cloud_wait(ANY, job, cloud_run_seconds, cloud, now)
    if longer == math.inf:
        return "no node that may be spot has room for it"
    return f"nodes on spot are taken {duration(longer)} longer" if longer > 0.0 else ""


def _not_excludable(job: Job, cloud: CloudState) -> str:
    if not job.plain_constraint:
        return "its constraint is not a list of features joined by &"
    if off_spot_feature(job, cloud) is None:
        return f"too few usable cloud nodes have the feature {_NEVER_SPOT[0]}"
    return ""


def spot_tries(job: Job, settings: Settings) -> int:
    """How often a job may still be launched on spot: not at all after too many spot interruptions.

    A promised job (:mod:`advisor.decide.promise.promised`) is launched on spot once: its deadline allows for
    one loss. With checkpoints that is decided at each launch
    (:func:`advisor.decide.promise.promised.leaves_time`).
    """
    if job.at_risk_seconds < NO_CHECKPOINT:
        most = MAX_CHECKPOINTED_INTERRUPTIONS
    else:
        most = MAX_SPOT_INTERRUPTIONS if deadline_for(job, settings) is None else 1
    return max(0, most - job.interruptions)


def checkpoint_number(job: Job) -> tuple[tuple[str, Quantity], ...]:
    """The number of an answer about a job with checkpoints: the time between two; else empty."""
    seconds = job.at_risk_seconds
    return (("checkpoint", Quantity(seconds)),) if seconds < NO_CHECKPOINT else ()


def seconds_lost(job: Job, start_seconds: float) -> float:
    """Seconds that are lost at most where EC2 interrupts the instance; infinite without checkpoints.

    They are the work since the last checkpoint, and the new start.
    """
    return job.at_risk_seconds + start_seconds


def pools_worth(
    job: Job, cloud_run_seconds: float, cloud: CloudState, settings: Settings
) -> tuple[SpotPool, ...] | None:
    """The spot pools worth their price for a run, lost work included; None: how long they last is unknown."""
    if not (cloud.spot_pools and cloud.processors_per_node and settings.capacity.spot_by_survival):
        return None
    on_demand = usd_per_core_hour(Capacity.ON_DEMAND, cloud, settings) * cloud.processors_per_node
    tries, lost = spot_tries(job, settings), seconds_lost(job, boot_seconds(cloud, settings))
    return pools_for_run(cloud.spot_pools, cloud_run_seconds, on_demand, tries, lost)


def _answer(verdict: Verdict, reason: Reason, *numbers: tuple[str, Quantity], detail: str = "") -> Answer:
    return Answer(question=_CAPACITY, verdict=verdict, reason=reason, numbers=numbers, detail=detail)


def _fits_reserved(job: Job, cloud: CloudState, free_nodes: int) -> bool:
    """Whether all tasks fit the free reserved nodes."""
    return 0 < job.array_tasks * cloud.nodes_at_most(job) <= free_nodes


def _reserved_until(ends: float, cloud: CloudState) -> int:
    """The free reserved nodes that last until then, seconds."""
    return cloud.reserved_free_nodes + sum(each.nodes for each in cloud.reserved_until if each.until >= ends)


def _ends_at_most(job: Job, cloud: CloudState, settings: Settings, now: float, ratio: Ratio | None) -> float:
    """The latest time at which the job ends in the cloud if it need not wait there; infinite: no limit."""
    if not (cloud.closings or cloud.reserved_until):
        return math.inf  # it is not asked
    limit = stretched(job, settings.placement, ratio)
    longest = job.requested_time if limit is None else limit.given_seconds
    return math.inf if longest is None else now + boot_seconds(cloud, settings) + longest


def _spot_obstacle(job: Job, cloud_run_seconds: float, cloud: CloudState, settings: Settings) -> str:
    """Why the job cannot use spot; empty if it can."""
    if not settings.capacity.use_spot:
        return "spot is switched off"
    if not requeueable(job, settings):
        return "the job may not be requeued"
    if job.interruptions and not spot_tries(job, settings):
        times = f"{job.interruptions} times" if job.interruptions > 1 else "once"
        return f"EC2 interrupted its nodes {times}"
    if not cloud.spot_open:
        return "every spot pool is closed"
    if math.isnan(cloud_run_seconds):
        return "its run time is unknown"
    if (worth := pools_worth(job, cloud_run_seconds, cloud, settings)) is not None:
        return "" if worth else "spot would cost more with what it is likely to lose"
    if min(cloud_run_seconds, job.at_risk_seconds) > settings.capacity.spot_max_run_seconds:
        return "it would run too long for spot"
    return ""


def preferred_survivors(
    job: Job, estimates: Estimates, cloud: CloudState, settings: Settings
) -> tuple[str, ...]:
    """Features to prefer: the mark of nodes that are likely to survive, for a long job; or none.

    The match loop marks these nodes (`advisor.decide.matching.tiers`). A job prefers the mark only while such
    a node is idle, so that nothing is launched for it. A job that starts at once is never seen waiting, so
    only its submission can steer it.

    slurmctld refuses a submission that prefers features which too few nodes have together: the mark is always
    on at least one node, and the job's own features must be on every node.
    """
    matching = settings.matching
    if not (matching.enabled and matching.long_lived_feature) or cloud.steady_free_nodes < 1:
        return ()
    if job.array_tasks > 1 or cloud.nodes_needed(job) != 1 or not set(job.features) <= set(cloud.features):
        return ()
    expected = estimates.run.seconds
    if math.isnan(expected):
        expected = math.inf if job.requested_time is None else job.requested_time
    return (matching.long_lived_feature,) if expected >= matching.long_job_seconds else ()
