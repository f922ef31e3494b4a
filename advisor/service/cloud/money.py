"""What nodes cost, which accounts pay, and what their jobs will still cost: from queue and prices. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from advisor.decide.hedge.hedge_offer import ENDING_SECONDS
from advisor.ec2.instances import Instance
from advisor.ec2.prices import Prices
from advisor.model.advice import Capacity
from advisor.model.bill import shares
from advisor.model.cluster import Node, NodePower
from advisor.model.settings import CapacitySettings
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.observation.advice_of_jobs import moved_by_us, predicted_cloud_seconds
from advisor.service.observation.site_view import jobs_by_node
from advisor.service.state.budget_records import RunningNode

_MAX_SECONDS: Final = 86400.0  # a job of unknown length may fill the day
_MONTH_SECONDS: Final = 31 * 86400.0

AskSeconds = Callable[[QueuedJob | None], float]
"""How long a job is expected to run in the cloud; None for an unknown job."""


def usd_per_hour(option: Capacity, instance_type: str, prices: Prices) -> float:
    """Price of one instance for one hour, dollars; reserved ones are paid for already."""
    if option is Capacity.RESERVED:
        return 0.0
    both = prices.of(instance_type)
    return (both.spot if option is Capacity.SPOT else both.on_demand).usd_per_hour


def reserved_in_force(settings: CapacitySettings, prices: Prices) -> int:
    """Reserved instances that are paid for: the setting or EC2's list, whichever is more."""
    found = prices.reserved.count if prices.reserved is not None else 0
    return max(settings.reserved_nodes, found)


def reserved_free(reserved: int, nodes: Iterable[Node], spot_nodes: Collection[str]) -> int:
    """Reserved instances that no job uses.

    EC2 applies a reservation to any running on-demand instance that matches it, so ``min(reserved, busy
    on-demand nodes)`` are in use. Busy spot nodes use none; an idle on-demand node is free to use. A node
    whose kind is unknown counts as on-demand, so that no reserved instance is promised twice.

    Args:
        nodes: All nodes of the burst partition.
        spot_nodes: Nodes whose instance EC2 lists as spot.
    """
    return max(0, reserved - sum(node.is_busy and node.name not in spot_nodes for node in nodes))


def expected_seconds(queued: QueuedJob | None) -> float:
    """Expected run time in the cloud: the forecast at submission, else the time limit, else a day."""
    if queued is None:
        return _MAX_SECONDS
    predicted = predicted_cloud_seconds(queued)
    found = queued.job.requested_time if predicted is None else predicted
    return min(_MAX_SECONDS, found) if found is not None else _MAX_SECONDS


def worst_seconds(queued: QueuedJob | None, stop_seconds: float | None) -> float:
    """Longest run time in the cloud: to its stop, else to its time limit, else a month.

    Args:
        stop_seconds: The stop of a hedged job as the watch loop has it now; None: as its AdminComment says.
    """
    if queued is None:
        return _MAX_SECONDS
    if stop_seconds is None and (moved := moved_by_us(queued)) is not None and moved.hedge is not None:
        stop_seconds = moved.hedge.stop_seconds
    limit = queued.job.requested_time
    longest = _MONTH_SECONDS if limit is None else limit
    return longest if stop_seconds is None else min(longest, stop_seconds + ENDING_SECONDS)


def running_nodes(
    snapshot: ClusterSnapshot,
    nodes: Mapping[str, Node],
    alive: Mapping[str, Instance],
    prices: Prices,
    *,
    reserved_nodes: int = 0,
    boots: bool = False,
    run_seconds: AskSeconds = expected_seconds,
    idle_seconds: float = 0.0,
) -> list[RunningNode]:
    """Every node that costs money now; the oldest on-demand instances use the reservations.

    `advisor.model.bill` says how jobs share a node. ``boots``: promises to booting nodes are unknown, so they
    get the expected cost of their jobs. ``run_seconds``: how long a job is reckoned to run in the cloud;
    ``idle_seconds``: how long a node idles behind its last job.
    """
    on_node = jobs_by_node(snapshot)
    on_demand = [
        item
        for item in alive.values()
        if item.option is not Capacity.SPOT and item.instance_type not in prices.others
    ]
    on_demand.sort(key=lambda item: (item.launch_time, item.instance_id))
    paid_for = {item.instance_id for item in on_demand[:reserved_nodes]}
    found = []
    for name, instance in alive.items():
        jobs = on_node.get(name, [])
        price = usd_per_hour(instance.option, instance.instance_type, prices)
        price = 0.0 if instance.instance_id in paid_for else price
        node = nodes.get(name)
        is_up = node is not None and node.power is NodePower.UP
        left = _left_seconds(jobs, snapshot.time, run_seconds) if is_up or jobs else _MAX_SECONDS
        left += idle_seconds if jobs else 0.0
        found.append(
            RunningNode(
                instance_id=instance.instance_id,
                node=name,
                usd_per_hour=price,
                launch_time=instance.launch_time,
                shares=_shares(jobs),
                left_usd=price * left / 3600.0 if is_up or boots else None,
            )
        )
    return found


def alive_by_node(instances: Iterable[Instance], nodes: Mapping[str, Node]) -> dict[str, Instance]:
    """The instance of each node; of two, the one that Slurm talks to."""
    alive: dict[str, Instance] = {}
    for item in instances:
        if not item.is_alive or item.node is None:
            continue
        node = nodes.get(item.node)
        is_the_nodes_own = node is not None and node.address == item.private_ip
        if item.node not in alive or is_the_nodes_own:
            alive[item.node] = item
    return alive


def _shares(jobs: Sequence[QueuedJob]) -> dict[str, float]:
    return shares(
        (queued.job.account or "", queued.job.processors / (queued.job.nodes or 1)) for queued in jobs
    )


def _left_seconds(jobs: Sequence[QueuedJob], now: float, run_seconds: AskSeconds) -> float:
    left = (
        run_seconds(queued) - (now - queued.start_time if queued.start_time is not None else 0.0)
        for queued in jobs
    )
    return max(0.0, max(left, default=0.0))
