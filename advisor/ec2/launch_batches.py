"""Divide the nodes that `Fleet` is to launch: whole jobs, then paid capacity, the rest in batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from advisor.ec2.account import Account
from advisor.ec2.classes import class_of_nodes, instance_types_of
from advisor.ec2.errors import Failure, FailureClass, most_careful
from advisor.ec2.instances import Instance
from advisor.ec2.journal import Journal
from advisor.ec2.launches import Launches, Wanted
from advisor.ec2.paid_slots import slots_of
from advisor.ec2.pools import Rounds
from advisor.ec2.reports import LaunchReport
from advisor.ec2.requests import user_data
from advisor.ec2.tags import batches
from advisor.model.advice import Capacity
from advisor.model.settings_cloud import Ec2Settings

_LAUNCH_BATCH: Final = 500

_TWO_ZONES: Final = Failure(
    FailureClass.CAPACITY, "TwoZones", "nodes of the job that are up are in different zones: requeue the job"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of one launch.

    Attributes:
        capacities: Node without an instance to its requested capacity.
        listed: The cluster's instances that EC2 lists.
        jobs: The nodes of each job that has several. Of these nodes all or none are launched.
        ends: When the jobs of a node end at the latest, epoch seconds.
        pools_of: The spot pools that a node may use; any for others.
        refuse: Returns the nodes, of those that no capacity reservation has a place for, that may not be
            launched elsewhere, where they cost money.
    """

    capacities: Mapping[str, Capacity]
    listed: Sequence[Instance]
    jobs: Iterable[Sequence[str]]
    ends: Mapping[str, float]
    pools_of: Mapping[str, Rounds]
    refuse: Callable[[Sequence[str]], Mapping[str, Failure]] | None = None


class LaunchBatches:
    """Launches instances for the nodes that have none. Its caller holds the lock of launches.

    Args:
        account: Returns what the account has paid for already, which is used first.
    """

    def __init__(
        self, settings: Ec2Settings, journal: Journal, launches: Launches, account: Callable[[], Account]
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._launches = launches
        self._account = account
        self._class_of = class_of_nodes(settings)

    def launch(self, asked: Asked, report: LaunchReport) -> None:
        """Launch an instance for each node that has not failed in the report, and complete the report.

        Args:
            report: Nodes that may not be launched are in it; launched and failed nodes are added.

        Raises:
            TellAdmin: The user data cannot be read. Nothing was launched.
        """
        together = [job for job in asked.jobs if not asked.capacities.keys().isdisjoint(job)]
        for job in together:
            self._fail_all_or_none(job, asked.capacities, report)
        left = {node: how for node, how in asked.capacities.items() if node not in report.failed}
        if left:
            user_data(self._settings)  # raises before an intent is written that could not be repeated
        for job in together:
            if mates := {node: left.pop(node) for node in job if node in left}:
                self._launch_job(job, mates, asked, report)
        self._launch_paid(left, asked, report)
        for part in self._parts(left, asked.pools_of):
            self._launches.launch(part, report)

    @staticmethod
    def _fail_all_or_none(job: Sequence[str], missing: Collection[str], report: LaunchReport) -> None:
        """Add all missing nodes of a job to the failed ones if one of them has failed."""
        failed = [report.failed[node] for node in job if node in report.failed]
        if failed:
            report.failed |= {node: most_careful(failed) for node in job if node in missing}

    def _launch_job(
        self, job: Sequence[str], missing: Mapping[str, Capacity], asked: Asked, report: LaunchReport
    ) -> None:
        """Launch the missing nodes of a job, all or none, in the zone of its nodes that are up."""
        up = [item for item in asked.listed if item.is_alive and item.node in set(job) - missing.keys()]
        if len({item.zone for item in up}) > 1:
            report.failed |= dict.fromkeys(missing, _TWO_ZONES)
            return
        near = next(iter(up), None)
        parts = [
            replace(part, is_whole=True, group_of=self._group_of(part))
            for part in self._parts(missing, asked.pools_of)
        ]
        left = list(missing) if len(parts) > 1 else self._launch_in_reservation(parts[0], asked, report, near)
        if self._may_cost(left, asked, report, is_whole=True):
            subnet = None if near is None else near.subnet_id
            self._launches.launch_together([replace(part, subnet_id=subnet) for part in parts], report)

    def _group_of(self, part: Wanted) -> str:
        """The class in whose placement group the nodes of a job are launched; empty: no placement group."""
        name = self._class_of.get(part.nodes[0])
        return name if name is not None and self._settings.classes[name].placement_group else ""

    def _launch_paid(self, left: dict[str, Capacity], asked: Asked, report: LaunchReport) -> None:
        """Launch in capacity reservations the nodes for which they have room; others stay in ``left``."""
        for part in self._parts(left, {}) if self._account().reservations else ():
            self._launch_in_reservation(part, asked, report)
        done = {item.node for item in report.launched} | report.failed.keys()
        others = self._may_cost([node for node in left if node not in done], asked, report)
        for node in left.keys() - others:
            del left[node]

    def _launch_in_reservation(
        self, part: Wanted, asked: Asked, report: LaunchReport, near: Instance | None = None
    ) -> list[str]:
        """Launch nodes in capacity reservations, the first of ``asked`` first; return those that are left."""
        wanted = frozenset(part.nodes)
        nodes = [node for node in asked.capacities if node in wanted]
        launched, types = self._journal.instances(), part.instance_types
        for slots in slots_of(self._account(), asked.listed, launched, types, near):
            some = [node for node in nodes if asked.ends.get(node, math.inf) <= slots.ends_at][: slots.number]
            if not some or (part.is_whole and len(some) < len(nodes)):
                continue
            tried = LaunchReport()
            for batch in batches(some, _LAUNCH_BATCH):
                self._launches.launch(slots.of(part, batch), tried)
            report.launched += tried.launched
            report.newly_unavailable += tried.newly_unavailable
            # where EC2 may have launched, no other pool is tried
            unsure = {node: why for node, why in tried.failed.items() if not why.allows_next_pool}
            report.failed |= unsure
            done = {item.node for item in tried.launched} | unsure.keys()
            nodes = [node for node in nodes if node not in done]
            if not nodes or (part.is_whole and unsure):
                return []
        return nodes

    @staticmethod
    def _may_cost(
        nodes: list[str], asked: Asked, report: LaunchReport, *, is_whole: bool = False
    ) -> list[str]:
        """The nodes that may be launched where they cost money; of a whole job all or none."""
        why = dict(asked.refuse(nodes)) if nodes and asked.refuse is not None else {}
        if why and is_whole:
            why = dict.fromkeys(nodes, most_careful(list(why.values())))
        report.failed |= why
        return [node for node in nodes if node not in why]

    def _parts(self, capacities: Mapping[str, Capacity], pools_of: Mapping[str, Rounds]) -> list[Wanted]:
        """Divide nodes by the capacity, class and pools that may be launched for them, and into batches."""
        groups: dict[tuple[Capacity, str | None, Rounds | None], list[str]] = {}
        for node, requested in capacities.items():
            key = (requested, self._class_of.get(node), pools_of.get(node))
            groups.setdefault(key, []).append(node)
        return [
            Wanted(
                nodes=batch,
                requested=requested,
                instance_types=instance_types_of(self._settings, node_class),
                spot_pools=pools,
                efa=node_class is not None and self._settings.classes[node_class].efa,
            )
            for (requested, node_class, pools), group in groups.items()
            for batch in batches(group, _LAUNCH_BATCH)
        ]
