"""The boot time, price and cost of a job in the cloud."""

from __future__ import annotations

from typing import Final

from advisor.model.advice import Capacity
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState

_RESERVED: Final = Capacity.RESERVED
_SPOT: Final = Capacity.SPOT


def boot_seconds(cloud: CloudState, settings: Settings) -> float:
    """The learned boot time, else the setting."""
    return settings.placement.boot_seconds if cloud.boot_seconds is None else cloud.boot_seconds


def requeueable(job: Job, settings: Settings) -> bool:
    """Whether the job may be requeued: as submitted, else the site's default."""
    return settings.cluster.requeue_default if job.requeue is None else job.requeue


def usd_per_core_hour(capacity: Capacity, cloud: CloudState, settings: Settings) -> float:
    """Price of a core-hour, US dollars; 0 on reserved nodes.

    Without a known price, the setting's price of an instance is divided by its processors; while their
    number is unknown, one core pays for the whole instance, an upper bound.
    """
    if capacity is _RESERVED:
        return 0.0
    on_spot = capacity is _SPOT
    seen = cloud.spot_usd_per_core_hour if on_spot else cloud.on_demand_usd_per_core_hour
    if seen is not None:
        return seen
    instance = settings.ec2.spot_usd_per_hour if on_spot else settings.ec2.on_demand_usd_per_hour
    return instance / max(1, cloud.processors_per_node)


def cores_billed(job: Job, cloud: CloudState) -> int:
    """Cores charged for one task: all cores of its nodes, or its own while the node size is unknown."""
    return cloud.nodes_at_most(job) * cloud.processors_per_node or job.processors


def cost_usd(
    job: Job, cloud_run_seconds: float, capacity: Capacity, cloud: CloudState, settings: Settings
) -> float:
    """Predicted cost of all tasks with their boots, US dollars; NaN when the run time is unknown."""
    price = usd_per_core_hour(capacity, cloud, settings)
    if price == 0.0:
        return 0.0
    hours = (boot_seconds(cloud, settings) + cloud_run_seconds) / 3600.0
    return job.array_tasks * cores_billed(job, cloud) * hours * price
