"""Question 4: which capacity? Reserved (already paid), then spot if the job may die there, then on-demand."""

from __future__ import annotations

import math

from advisor.decide.demand import nodes_needed, requeueable, usd_per_core_hour
from advisor.decide.reasons import Reason
from advisor.model.advice import Answer, Capacity, Quantity, Question, Verdict
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState


def choose(
    job: Job, cloud_run_seconds: float, cloud: CloudState, settings: Settings
) -> tuple[Capacity | None, Answer]:
    """Choose what to pay for.

    Parameters
    ----------
    job : Job
        A job that may not be requeued is never put on spot (DESIGN.md, rule 1).
    cloud_run_seconds : float
        Predicted run time in the cloud, s(c)*r; NaN when unknown, which keeps the job off spot.
    cloud : CloudState
        Free reserved nodes, which pools are open, protected mode.
    settings : Settings
        Sections ``capacity``, ``cluster`` and ``ec2``.

    Returns
    -------
    capacity : Capacity or None
        None when nothing is open: the job stays on-premise.
    answer : Answer
        With the reason.
    """
    if cloud.protected:
        return None, _answer(Verdict.NO, Reason.PROTECTED, detail=cloud.protected)
    run = ("predicted_cloud_run", Quantity(cloud_run_seconds))
    if _fits_reserved(job, cloud):
        free = ("reserved_free", Quantity(float(cloud.reserved_free_nodes), "nodes"))
        return Capacity.RESERVED, _answer(Verdict.YES, Reason.RESERVED, run, free)
    limit = ("spot_max_run", Quantity(settings.capacity.spot_max_run_seconds))
    obstacle = _spot_obstacle(job, cloud_run_seconds, cloud, settings)
    if not obstacle:
        price = _price(Capacity.SPOT, cloud, settings)
        return Capacity.SPOT, _answer(Verdict.YES, Reason.SPOT, run, limit, price)
    if cloud.on_demand_open:
        price = _price(Capacity.ON_DEMAND, cloud, settings)
        return Capacity.ON_DEMAND, _answer(Verdict.YES, Reason.ON_DEMAND, run, limit, price, detail=obstacle)
    return None, _answer(Verdict.NO, Reason.NONE_OPEN, run, limit, detail=obstacle)


def too_often_interrupted(job: Job, settings: Settings) -> bool:
    """Whether a job has lost so many spot nodes that its next place must be a stable one."""
    return job.interruptions >= settings.capacity.spot_interruptions


def _answer(verdict: Verdict, reason: Reason, *numbers: tuple[str, Quantity], detail: str = "") -> Answer:
    return Answer(question=Question.CAPACITY, verdict=verdict, reason=reason, numbers=numbers, detail=detail)


def _price(capacity: Capacity, cloud: CloudState, settings: Settings) -> tuple[str, Quantity]:
    return "price", Quantity(usd_per_core_hour(capacity, cloud, settings), "USD/core-h")


def _fits_reserved(job: Job, cloud: CloudState) -> bool:
    """Whether one task fits the free reserved nodes; while their size is unknown, one core to a node."""
    nodes = nodes_needed(job, cloud)
    return 0 < (job.processors if nodes is None else nodes) <= cloud.reserved_free_nodes


def _spot_obstacle(job: Job, cloud_run_seconds: float, cloud: CloudState, settings: Settings) -> str:
    """Say why the job can't go to spot; empty when it can."""
    if not settings.capacity.use_spot:
        return "spot is switched off"
    if not requeueable(job, settings):
        return "the job may not be requeued"
    if too_often_interrupted(job, settings):
        return f"EC2 took its node back {job.interruptions} times"
    if not cloud.spot_open:
        return "every spot pool is closed"
    if math.isnan(cloud_run_seconds):
        return "its run time is unknown"
    if cloud_run_seconds > settings.capacity.spot_max_run_seconds:
        return "it would run too long for spot"
    return ""
