"""What cloud nodes cost and will cost, and who pays: for the record of spending and for reports. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from advisor.ec2.instances import Instance
from advisor.ec2.prices import Prices
from advisor.model.advice import Capacity
from advisor.model.bill import shares
from advisor.model.cluster import Node, NodePower
from advisor.model.periods import user_payer
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.observation.advice_of_jobs import longest_seconds, moved_by_us, predicted_cloud_seconds
from advisor.service.state.budget_records import RunningNode

_MAX_SECONDS: Final = 86400.0  # a job of unknown length may fill the day
_MONTH_SECONDS: Final = 31 * 86400.0

AskSeconds = Callable[[QueuedJob | None], float]
"""Function from a job (None: an unknown job) to the seconds that it is expected to run in the cloud."""


def usd_per_hour(option: Capacity, instance_type: str, prices: Prices) -> float:
    """Price of one instance for one hour, dollars; reserved ones are paid for already."""
    if option is Capacity.RESERVED:
        return 0.0
    both = prices.of(instance_type)
    return (both.spot if option is Capacity.SPOT else both.on_demand).usd_per_hour


def expected_seconds(queued: QueuedJob | None) -> float:
    """Expected seconds in the cloud: the forecast at submission, else the time limit, else a day."""
    if queued is None:
        return _MAX_SECONDS
    predicted = predicted_cloud_seconds(queued)
    found = queued.job.requested_time if predicted is None else predicted
    return min(_MAX_SECONDS, found) if found is not None else _MAX_SECONDS


def worst_seconds(queued: QueuedJob | None, stop_seconds: float | None) -> float:
    """Longest run time in the cloud, as :func:`longest_seconds`; without a limit a month; no job: a day."""
    if queued is None:
        return _MAX_SECONDS
    return longest_seconds(queued.job, moved_by_us(queued), stop_seconds, unlimited=_MONTH_SECONDS)


def running_nodes(
    snapshot: ClusterSnapshot,
    nodes: Mapping[str, Node],
    alive: Mapping[str, Instance],
    prices: Prices,
    *,
    covered: Collection[str] = (),
    promises_lost: bool = False,
    run_seconds: AskSeconds = expected_seconds,
    idle_seconds: float = 0.0,
) -> list[RunningNode]:
    """Every node that costs money now. `advisor.model.bill` says how jobs share a node.

    Args:
        covered: Ids of the instances that are paid for already; they cost nothing more.
        promises_lost: Whether the money promised to booting nodes at their launch is not known: they then
            get the expected cost of their jobs. False: their ``left_usd`` is None, and the promise stays.
        idle_seconds: How long a node costs money after its last job has ended; of one that is idle, at most.
    """
    on_node = snapshot.jobs_on
    found = []
    for name, instance in alive.items():
        jobs = on_node.get(name, [])
        price = usd_per_hour(instance.option, instance.instance_type, prices)
        price = 0.0 if instance.instance_id in covered else price
        node = nodes.get(name)
        is_up = node is not None and node.power is NodePower.UP
        left = _left_seconds(jobs, snapshot.time, run_seconds) if is_up or jobs else _MAX_SECONDS
        left += idle_seconds if is_up or jobs else 0.0
        found.append(
            RunningNode(
                instance_id=instance.instance_id,
                node=name,
                usd_per_hour=price,
                launch_time=instance.launch_time,
                shares=_shares(jobs),
                left_usd=price * left / 3600.0 if is_up or promises_lost else None,
                least_usd=price * left / 3600.0 if jobs else 0.0,
            )
        )
    return found


def alive_by_node(instances: Iterable[Instance], nodes: Mapping[str, Node]) -> dict[str, Instance]:
    """The instance of each node, by the node's name; of two, the one whose address Slurm has."""
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
    cores = [(queued.job, queued.job.processors / (queued.job.nodes or 1)) for queued in jobs]
    users = [(user_payer(job.user), held) for job, held in cores if job.user]
    return shares((job.account or "", held) for job, held in cores) | shares(users)


def _left_seconds(jobs: Sequence[QueuedJob], now: float, run_seconds: AskSeconds) -> float:
    left = (
        run_seconds(queued) - (now - queued.start_time if queued.start_time is not None else 0.0)
        for queued in jobs
    )
    return max(0.0, max(left, default=0.0))
