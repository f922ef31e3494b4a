"""Choose the purchase option of each node that the provision loop launches, and its spot pools.

The option is the one that its job was advised. The pools are those whose expected cost is low enough for the
run. The nodes of one owner are spread over several pools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

import structlog

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.spot.blast_radius import owners_of, spread
from advisor.decide.spot.pools import rounds_for_run
from advisor.decide.submission.capacity import is_never_spot, seconds_lost
from advisor.decide.submission.rules import deadline_for
from advisor.ec2.classes import class_of_nodes, instance_types_of
from advisor.ec2.instances import Instance
from advisor.ec2.pools import Rounds, pools_for
from advisor.ec2.reports import pool_of
from advisor.model.advice import Capacity
from advisor.model.cluster import Node
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.observation.advice_of_jobs import predicted_cloud_seconds

log = structlog.get_logger(__name__)


class Narrowed(NamedTuple):
    """Node to its capacity, and to the pools that it may use where it may not use every spot pool."""

    capacity_of: dict[str, Capacity]
    pools_of: dict[str, Rounds]


class SpotChoice:
    """Reads what the nodes' jobs were advised, and narrows the launches of those that were advised spot."""

    def __init__(self, context: CloudContext) -> None:
        self._context = context
        self._settings = context.settings
        self._class_of = class_of_nodes(context.settings.ec2)

    def advised(self, jobs: Mapping[str, QueuedJob], nodes: Iterable[Node]) -> dict[str, Capacity]:
        """Node to the capacity that its job was advised, unless the node's features forbid spot.

        Args:
            jobs: The job of each node that is known to be for one.
        """
        never_spot = {node.name for node in nodes if is_never_spot(node.features)}
        requested = {
            node: capacity for node, job in jobs.items() if (capacity := self._capacity_of(job)) is not None
        }
        return {
            node: Capacity.ON_DEMAND if capacity is Capacity.SPOT and node in never_spot else capacity
            for node, capacity in requested.items()
        }

    def _capacity_of(self, queued: QueuedJob) -> Capacity | None:
        """The capacity that a job was advised, from its AdminComment; None leaves it to the fleet.

        A job that has lost its node to EC2 too often gets on-demand, whatever its advice.
        """
        recorded = parse_admin_comment(queued.admin_comment)
        if recorded is None or recorded.capacity not in set(Capacity):
            return None
        capacity = Capacity(recorded.capacity)
        if capacity is Capacity.SPOT and not self._settings.capacity.use_spot:
            return Capacity.ON_DEMAND  # advised before the setting was changed
        if capacity is Capacity.SPOT and not self._context.spot_tries(queued):
            return Capacity.ON_DEMAND
        return capacity

    def narrow(
        self,
        jobs: Mapping[str, QueuedJob],
        capacity_of: Mapping[str, Capacity],
        *,
        together: frozenset[str],
        snapshot: ClusterSnapshot,
        pool_of_node: Mapping[str, str],
    ) -> Narrowed:
        """Choose the pools of the nodes that are to be spot.

        Args:
            together: Nodes of jobs that need several: these are launched in one pool, whoever's they are.
            pool_of_node: The spot pool of each node that has an instance.
        """
        capacities, pools_of = dict(capacity_of), dict[str, Rounds]()
        groups: dict[tuple[tuple[str, ...], Rounds], list[str]] = {}
        owners = owners_of(snapshot.jobs)
        spot = {node: queued for node, queued in jobs.items() if capacities.get(node) is Capacity.SPOT}
        for node, rounds in self._rounds(spot).items():
            job_id = spot[node].job.job_id
            if not rounds:
                capacities[node] = Capacity.ON_DEMAND
                log.info("spot.no_pool_worth_it", node=node, job=job_id)
            elif node in together:
                pools_of[node] = rounds
            else:
                groups.setdefault((owners.get(job_id, ()), rounds), []).append(node)
        running = _spot_nodes_of(snapshot, owners, pool_of_node)
        unspread = self._need_no_spreading(groups, running)
        for (who, rounds), nodes in groups.items():
            counts = [running.setdefault(owner, Counter()) for owner in who]
            parts = [(nodes, rounds)] if (who, rounds) in unspread else self._spread(nodes, rounds[0], counts)
            for some, where in parts:
                for node in some:
                    if where:
                        pools_of[node] = where
                    else:
                        capacities[node] = Capacity.ON_DEMAND
                only = where[0][0] if where and len(where[0]) == 1 else ""
                for count in counts if where else ():
                    count[only] += len(some)
        return Narrowed(capacities, pools_of)

    def _need_no_spreading(
        self,
        groups: Mapping[tuple[tuple[str, ...], Rounds], Sequence[str]],
        running: Mapping[str, Mapping[str, int]],
    ) -> set[tuple[tuple[str, ...], Rounds]]:
        """The groups that need no spreading.

        If EC2 puts all new nodes of an owner into one pool, the owner still stays within
        ``capacity.spot_share_per_pool``.
        """
        share, new = self._settings.capacity.spot_share_per_pool, dict[str, list[str]]()
        for (who, _), nodes in groups.items():
            for owner in who:
                new.setdefault(owner, []).extend(nodes)

        def fits(owner: str, pools: tuple[str, ...]) -> bool:
            parts = spread(new[owner], pools, [running.get(owner, {})], share)
            return [part.pools for part in parts] == [pools]

        return {
            (who, rounds)
            for who, rounds in groups
            if all(fits(owner, tuple(chain.from_iterable(rounds))) for owner in who)
        }

    def _spread(
        self, nodes: Sequence[str], pools: Sequence[str], running: Sequence[Mapping[str, int]]
    ) -> list[tuple[Sequence[str], Rounds]]:
        """Divide the nodes of jobs with the same owners among pools of one round; no pools: not as spot."""
        parts = spread(nodes, pools, running, self._settings.capacity.spot_share_per_pool)
        return [(part.nodes, (part.pools,) if part.pools else ()) for part in parts]

    def _rounds(self, jobs: Mapping[str, QueuedJob]) -> dict[str, Rounds]:
        """The pools worth the run of each node's job; none: on-demand.

        Nodes of a class with the same first round, whose jobs lose as much by an interruption, are launched
        in one call. They share the later rounds of the longest of their runs. A promised job has no later
        round: how likely the loss of its instance makes it late was reckoned for the pools of the first
        (:mod:`advisor.decide.promise.promised`).
        """
        worth = self._worth()
        runs = {node: predicted_cloud_seconds(queued) for node, queued in jobs.items()}
        found: dict[str, Rounds] = {}
        shared: dict[tuple[str | None, float, tuple[str, ...]], Rounds] = {}
        for node in sorted(jobs, key=lambda node: -(runs[node] or 0.0)):
            job, kind = jobs[node].job, self._class_of.get(node)
            lost = seconds_lost(job, self._boot_of(kind))
            rounds = worth(kind, runs[node], self._context.spot_tries(jobs[node]), lost)
            if deadline_for(job, self._settings) is not None:
                found[node] = rounds[:1]
            else:
                found[node] = shared.setdefault((kind, lost, rounds[0]), rounds) if rounds else ()
        return {node: found[node] for node in jobs}

    def _boot_of(self, kind: str | None) -> float:
        """The boot time with which the job was advised, seconds."""
        types = instance_types_of(self._settings.ec2, kind)
        learned = self._context.cloud.boot_seconds_of(Capacity.SPOT.value, types)
        return self._settings.placement.boot_seconds if learned is None else learned

    def _worth(self) -> Callable[[str | None, float | None, int, float], Rounds]:
        """Function from a class of nodes, a run's seconds, its tries left, and what a loss undoes, to pools.

        All pools of the class while too little is known of them, or nothing of the run.
        """
        ec2, prices = self._settings.ec2, self._context.prices_now()
        known = {pool.key: pool for pool in self._context.spot_pools()}

        @cache
        def worth(kind: str | None, run: float | None, tries: int, lost: float) -> Rounds:
            types = instance_types_of(ec2, kind)
            every = [
                pool.key for pool in pools_for(Capacity.SPOT, ec2, types) if pool.option is Capacity.SPOT
            ]
            if run is None or not known.keys() >= set(every):
                return (tuple(every),)
            on_demand = min(prices.of(each).on_demand.usd_per_hour for each in types)
            rounds = rounds_for_run([known[key] for key in every], run, on_demand, tries, lost)
            return tuple(tuple(pool.key for pool in each) for each in rounds)

        return worth


def _spot_nodes_of(
    snapshot: ClusterSnapshot, owners: Mapping[int, Sequence[str]], pool_of_node: Mapping[str, str]
) -> dict[str, Counter[str]]:
    """Nodes of each owner's running jobs by spot pool; a node with jobs of several counts for each."""
    found: dict[str, Counter[str]] = {}
    for node, pool in pool_of_node.items():
        there = {owner for job in snapshot.jobs_on.get(node, ()) for owner in owners.get(job.job.job_id, ())}
        for owner in there:
            found.setdefault(owner, Counter())[pool] += 1
    return found


def spot_pools_of(instances: Sequence[Instance]) -> dict[str, str]:
    """The pool of each node that has a living spot instance."""
    return {
        item.node: pool_of(item).key
        for item in instances
        if item.node is not None and item.is_alive and item.option is Capacity.SPOT
    }
