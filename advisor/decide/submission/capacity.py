"""Question 4: which capacity? Reserved (already paid), then spot if the job may die there, then on-demand."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from advisor.decide.explanation.display import duration
from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.cloud_queue import ANY, cloud_wait
from advisor.decide.submission.demand import requeueable, usd_per_core_hour
from advisor.model.advice import Answer, Capacity, Quantity, Question, Verdict
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState

_STABLE: Final = (Capacity.ON_DEMAND.value, Capacity.RESERVED.value)
_ON_SPOT: Final = Capacity.SPOT.value
_SPOT: Final = (Capacity.SPOT, Reason.SPOT)
_ON_DEMAND: Final = (Capacity.ON_DEMAND, Reason.ON_DEMAND)
_CAPACITY: Final = Question.CAPACITY
_YES: Final = Verdict.YES


def choose(
    job: Job, cloud_run_seconds: float, cloud: CloudState, settings: Settings, now: float
) -> tuple[Capacity | None, Answer]:
    """Choose what to pay for.

    Parameters
    ----------
    job : Job
        A job that may not be requeued is never put on spot (docs/designs/0001, rule 1): it moves only if
        Slurm can be told to keep it off.
    cloud_run_seconds : float
        Predicted run time in the cloud, s(c)*r; NaN when unknown, which keeps the job off spot.
    cloud : CloudState
        Free reserved nodes, which pools are open, protected mode.
    settings : Settings
        Sections ``capacity``, ``cluster`` and ``ec2``.
    now : float
        Seconds: the nodes that may be spot may be taken for longer than others.

    Returns
    -------
    capacity : Capacity or None
        None when nothing is open: the job stays on-premise.
    answer : Answer
        With the reason.
    """
    if cloud.protected:
        return None, _answer(Verdict.NO, Reason.PROTECTED, detail=cloud.protected)
    if must_be_stable(job, settings) and (doubt := _not_excludable(job, cloud)):
        return None, _answer(Verdict.NO, Reason.SPOT_NOT_EXCLUDED, detail=doubt)
    run = ("predicted_cloud_run", Quantity(cloud_run_seconds))
    if cloud.reserved_free_nodes and _fits_reserved(job, cloud):
        free = ("reserved_free", Quantity(float(cloud.reserved_free_nodes), "nodes"))
        return Capacity.RESERVED, _answer(Verdict.YES, Reason.RESERVED, run, free)
    limit = ("spot_max_run", Quantity(settings.capacity.spot_max_run_seconds))
    obstacle = _spot_obstacle(job, cloud_run_seconds, cloud, settings)
    if cloud.rooms and not obstacle and cloud.on_demand_open:
        obstacle = _starts_sooner_elsewhere(job, cloud_run_seconds, cloud, now)
    if obstacle and not cloud.on_demand_open:
        return None, _answer(Verdict.NO, Reason.NONE_OPEN, run, limit, detail=obstacle)
    capacity, reason = _ON_DEMAND if obstacle else _SPOT
    price = ("price", Quantity(usd_per_core_hour(capacity, cloud, settings), "USD/core-h"))
    return capacity, _answer(_YES, reason, run, limit, price, detail=obstacle)


def of_users_choice(
    job: Job, cloud_run_seconds: float, cloud: CloudState, settings: Settings, now: float
) -> Capacity | None:
    """What to pay for where the user himself has put the job into the burst partition.

    A kind of node that its constraint names is what it gets; else the rule of moved jobs (:func:`choose`)
    holds. None: on-demand, as for a job that nothing is known of.
    """
    named = next((capacity for capacity in Capacity if capacity.value in job.features), None)
    if named is None:
        return choose(job, cloud_run_seconds, cloud, settings, now)[0]
    return None if named is Capacity.SPOT and not requeueable(job, settings) else named


def must_be_stable(job: Job, settings: Settings) -> bool:
    """Whether the job needs a constraint that keeps it off spot nodes; where there are none nothing need."""
    return settings.capacity.use_spot and not requeueable(job, settings)


def kind_of_node(job: Job, cloud: CloudState, settings: Settings) -> str:
    """Which nodes of the cloud the job may start on: a key of ``cloud.rooms``. `prefer` excludes none."""
    return (must_be_stable(job, settings) and stable_feature(job, cloud)) or ANY


def stable_feature(job: Job, cloud: CloudState) -> str | None:
    """The node feature that keeps the job off spot and that enough usable nodes have; None: there is none."""
    needed = cloud.nodes_at_most(job)
    return next((name for name in _STABLE if cloud.nodes_with.get(name, 0.0) >= needed), None)


def is_never_spot(features: Collection[str]) -> bool:
    """Whether a node with these features is never made a spot instance, whatever a job was advised.

    That is what the features promise to a job that may not be requeued. They are what slurm.conf says and
    stay so: taken off a node by ``scontrol`` while it is spot, they would be back after each ``scontrol
    reconfigure``, and with the last node gone slurmctld would refuse submissions that name them.
    """
    return any(name in features for name in _STABLE)


def _starts_sooner_elsewhere(job: Job, cloud_run_seconds: float, cloud: CloudState, now: float) -> str:
    """Say that the nodes that may be spot are taken for longer than others; empty when they are not.

    Slurm would start it on the others whatever it prefers, and they cost what on-demand costs. A job of
    several nodes may start on both kinds together, and what of them may be spot is cheaper as spot.
    """
    if _ON_SPOT not in cloud.rooms or cloud.nodes_at_most(job) > 1:
        return ""
    on_spot = cloud_wait(_ON_SPOT, job, cloud_run_seconds, cloud, now)
    longer = on_spot - cloud_wait(ANY, job, cloud_run_seconds, cloud, now)
    return f"it starts {duration(longer)} sooner than on spot, whose nodes are taken" if longer > 0.0 else ""


def _not_excludable(job: Job, cloud: CloudState) -> str:
    if not job.plain_constraint:
        return "its own constraint is more than features joined by &"
    if stable_feature(job, cloud) is None:
        return f"too few usable cloud nodes have the feature {_STABLE[0]}"
    return ""


def too_often_interrupted(job: Job, settings: Settings) -> bool:
    """Whether a job has lost so many spot nodes that its next place must be a stable one."""
    return job.interruptions >= settings.capacity.spot_interruptions


def _answer(verdict: Verdict, reason: Reason, *numbers: tuple[str, Quantity], detail: str = "") -> Answer:
    return Answer(question=_CAPACITY, verdict=verdict, reason=reason, numbers=numbers, detail=detail)


def _fits_reserved(job: Job, cloud: CloudState) -> bool:
    """Whether all tasks fit the free reserved nodes."""
    return 0 < job.array_tasks * cloud.nodes_at_most(job) <= cloud.reserved_free_nodes


def _spot_obstacle(job: Job, cloud_run_seconds: float, cloud: CloudState, settings: Settings) -> str:
    """Say why the job can't go to spot; empty when it can."""
    if not settings.capacity.use_spot:
        return "spot is switched off"
    if not requeueable(job, settings):
        return "the job may not be requeued"
    if job.interruptions and too_often_interrupted(job, settings):
        return f"EC2 took its node back {job.interruptions} times"
    if not cloud.spot_open:
        return "every spot pool is closed"
    if math.isnan(cloud_run_seconds):
        return "its run time is unknown"
    if cloud_run_seconds > settings.capacity.spot_max_run_seconds:
        return "it would run too long for spot"
    return ""
