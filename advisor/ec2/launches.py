"""Launch nodes pool by pool, or in one fleet over many pools; settle what a crash left open.

`advisor.ec2.launch_batches` says which nodes together.

A class of one instance type is launched by RunInstances, pool after pool. Spot instances of a class of
several types are launched by CreateFleet, because EC2 alone knows how deep its spot pools are. Everything
that is launched on-demand goes to the first pool that has it (docs/designs/0008). The nodes of one job are
launched all or none, in one subnet and so in one zone, by RunInstances.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import structlog

from advisor.ec2.errors import Failure, FailureClass, answer_or_failure, most_careful
from advisor.ec2.instances import Instance, as_instance
from advisor.ec2.journal import Intent, Journal
from advisor.ec2.launching import Attempt, Launcher
from advisor.ec2.listing import described
from advisor.ec2.placement_groups import PlacementGroups, group_name
from advisor.ec2.pools import Pool, Rounds, Target, UnavailablePools, pools_for
from advisor.ec2.reports import Launched, LaunchReport, pool_of
from advisor.ec2.requests import create_fleet_request, run_instances_request
from advisor.ec2.tags import CLUSTER_TAG, INTENT_TAG, NODE_TAG
from advisor.ec2.templates import GONE, Templates
from advisor.files import fence
from advisor.model.advice import Capacity
from advisor.model.settings_cloud import Ec2Settings

SETTLING_SECONDS: Final = 300.0
"""The longest time until EC2 lists a new instance."""
_TAGGED_AT_LAUNCH: Final = 20  # one call per node, and EC2 takes about ten a second: the rest is tagged later
TAGGED_AT_ONCE: Final = 100
"""The number of instances that one burst of calls to CreateTags may name at EC2's rate limit."""
_TAGGED_A_SECOND: Final = 10.0
_NO_POOL: Final = Failure(
    FailureClass.CAPACITY,
    "NoPoolOpen",
    "all pools are unavailable after recent errors; `advisor pools` says until when",
)
_OF_WHOLE_CALLS: Final = (FailureClass.QUOTA, FailureClass.ADMIN)
"""A call over several pools that fails so as a whole would fail in each of them."""

_log = structlog.get_logger("advisor.ec2")

Order = Callable[[Sequence[Pool]], Sequence[Pool]]
"""Function that orders the pools to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Nodes that are launched together.

    Attributes:
        requested: The capacity that the nodes' jobs were advised.
        instance_types: The types that may be launched, the preferred one first.
        is_whole: All nodes are launched in one pool, or none.
        subnet_id: The only subnet to use; None: any of the settings.
        spot_pools: The only spot pools to use; None: any.
        target: The only capacity reservation to use; None: none is named.
        group_of: The class in whose placement group the nodes are launched; empty: no placement group.
        efa: Whether the nodes get an Elastic Fabric Adapter.
    """

    nodes: tuple[str, ...]
    requested: Capacity
    instance_types: tuple[str, ...]
    is_whole: bool = False
    subnet_id: str | None = None
    spot_pools: Rounds | None = None
    target: Target | None = None
    group_of: str = ""
    efa: bool = False


class Launches:
    """Launches of one cluster. One thread at a time may use it.

    Attributes:
        recorded_at: When instances were recorded by this process, monotonic seconds.
    """

    def __init__(
        self,
        settings: Ec2Settings,
        cluster: str,
        journal: Journal,
        unavailable: UnavailablePools,
        *,
        launcher: Launcher,
        ec2: Any,
        order: Order,
        terminate: Callable[[Sequence[str]], list[str]],
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._cluster, self._journal = settings, cluster, journal
        self._unavailable, self._launcher, self._ec2, self._order = unavailable, launcher, ec2, order
        self._terminate = terminate
        self._templates, self._groups = Templates(ec2, settings, cluster), PlacementGroups(ec2, cluster)
        self._now, self._monotonic = now, monotonic
        self.recorded_at: dict[str, float] = {}
        self._open_since: dict[str, float] = {}  # token: when its intent was first found open, monotonic
        self._named: tuple[float, float] = (TAGGED_AT_ONCE, monotonic())  # calls left, and when

    def launch(self, wanted: Wanted, report: LaunchReport) -> None:
        """Try the pools until every node has an instance or no pool is left."""
        left = wanted.nodes
        failures = [_NO_POOL]
        untried = self._pools(wanted)
        least = len(left) if wanted.is_whole else 1
        while left and (pools := self._next(untried, now := replace(wanted, nodes=left), least)):
            launched, refused = self._launch_in(pools, now, least)
            report.launched += launched
            have = {item.node for item in launched}
            left = tuple(node for node in left if node not in have)
            self._learn(pools, launched, refused, report, least)
            failures += refused.values()
            about_pools = refused.keys() & set(pools)
            # a fleet may have asked some of its pools only: the others are asked again
            done = about_pools | {item.pool for item in launched} if about_pools else set(pools)
            untried = [*(pool for pool in pools if pool not in done), *untried]
            if not all(failure.allows_next_pool for failure in refused.values()):
                break  # the error is not about these pools
        report.failed.update(dict.fromkeys(left, most_careful(failures)))

    def launch_together(self, parts: Sequence[Wanted], report: LaunchReport) -> None:
        """Launch the nodes of one job, all of them in one subnet or none.

        If some cannot be launched, those that were are terminated.
        """
        if len(parts) == 1:
            self.launch(parts[0], report)
            return
        subnets = (parts[0].subnet_id,) if parts[0].subnet_id else self._settings.subnet_ids or (None,)
        failures: list[Failure] = []
        for subnet in subnets:
            tried = LaunchReport()
            where = subnet
            for part in parts:
                self.launch(replace(part, subnet_id=where), tried)
                if tried.failed:
                    break
                where = tried.launched[-1].subnet_id  # without one in the settings, EC2 has chosen it
            report.newly_unavailable += tried.newly_unavailable
            if not tried.failed:
                report.launched += tried.launched
                return
            self._take_back(tried.launched)
            report.taken_back.update(item.node for item in tried.launched)
            failures += tried.failed.values()
            if not all(failure.allows_next_pool for failure in tried.failed.values()):
                break
        nodes = (node for part in parts for node in part.nodes)
        report.failed.update(dict.fromkeys(nodes, most_careful(failures)))

    def _take_back(self, launched: Sequence[Launched]) -> None:
        """Terminate the instances of a job that cannot be launched as a whole."""
        if launched:
            ended = self._terminate([item.instance_id for item in launched])
            self._journal.forget(frozenset(ended))
            _log.info("launch.taken_back", instances=ended, nodes=[item.node for item in launched])

    def _pools(self, wanted: Wanted) -> list[Pool]:
        if wanted.target is not None:
            (kind,) = wanted.instance_types
            subnet, target = wanted.subnet_id, wanted.target
            return [Pool(option=Capacity.RESERVED, instance_type=kind, subnet_id=subnet, target=target)]
        pools = pools_for(wanted.requested, self._settings, wanted.instance_types)
        if wanted.subnet_id is not None:
            pools = tuple(dict.fromkeys(replace(pool, subnet_id=wanted.subnet_id) for pool in pools))
        ordered = list(self._order(pools))
        if wanted.spot_pools is None:
            return ordered
        place = {key: number for number, key in enumerate(chain.from_iterable(wanted.spot_pools))}
        spot = [pool for pool in ordered if self._name_of(pool) in place]
        return [
            *sorted(spot, key=lambda pool: place[self._name_of(pool)]),
            *(pool for pool in ordered if pool.option is not Capacity.SPOT),
        ]

    def _name_of(self, pool: Pool) -> str:
        """A pool as rounds name it: in the default subnet where the settings name none and EC2 chooses."""
        return pool.key if self._settings.subnet_ids else replace(pool, subnet_id=None).key

    def _next(self, untried: list[Pool], wanted: Wanted, least: int) -> tuple[Pool, ...]:
        """Take the pools of the next call: one, or all spot pools of several types in a round.

        Nodes of a fleet wait in their boot for their name tags, so a fleet is no larger than EC2 lets us tag
        at once. Its template describes no network interface. ``least``: the call launches so many or none.
        """
        may_be_fleet = least == 1 and not wanted.efa and len(wanted.nodes) <= self._names_left()
        while untried:
            first = untried[0]
            spot = [pool for pool in untried if pool.option is Capacity.SPOT]
            if wanted.spot_pools is not None:
                found_in = next((names for names in wanted.spot_pools if self._name_of(first) in names), ())
                spot = [pool for pool in spot if self._name_of(pool) in found_in]
            is_fleet = first.option is Capacity.SPOT and len({pool.instance_type for pool in spot}) > 1
            some = spot if is_fleet and may_be_fleet else [first]
            untried[:] = [pool for pool in untried if pool not in some]
            if found := tuple(pool for pool in some if self._unavailable.claim(pool, least)):
                return found
        return ()

    def _learn(
        self,
        pools: tuple[Pool, ...],
        launched: Iterable[Launched],
        refused: Mapping[Pool | None, Failure],
        report: LaunchReport,
        least: int,
    ) -> None:
        """Mark the pools that refused as unavailable, and those that gave instances as available."""
        for served, number in Counter(item.pool for item in launched).items():
            if served not in refused:
                self._unavailable.mark_available(served, number)
        for pool, failure in refused.items():
            about = pools if pool is None else (pool,)
            if pool is not None or failure.kind in _OF_WHOLE_CALLS:
                marked = [
                    self._unavailable.mark_unavailable(each, failure.kind, failure.code, least)
                    for each in about
                ]
                report.newly_unavailable += [failure] if any(marked) else []
            _log.warning(
                "launch.refused",
                pools=[each.key for each in about],
                code=failure.code,
                message=failure.message,
                needed_nodes=least,
            )

    def _launch_in(
        self, pools: tuple[Pool, ...], wanted: Wanted, least: int
    ) -> tuple[list[Launched], dict[Pool | None, Failure]]:
        """Launch in these pools; return the nodes launched, and pool to failure (None: the whole call)."""
        nodes = wanted.nodes
        launched, attempt = self._try(pools, wanted, least)
        if attempt.failure is not None and attempt.failure.kind is FailureClass.TOKEN and attempt.is_certain:
            launched, attempt = self._try(pools, wanted, least)  # with a new token
        some = launched if len(pools) > 1 else launched[: int(min(_TAGGED_AT_LAUNCH, self._names_left()))]
        if len(nodes) > 1 or len(pools) > 1:  # else the launch has set the node's tag
            self.name({item.node: item.instance_id for item in some})
        refused: dict[Pool | None, Failure] = {
            pool: failure for pool in pools if (failure := attempt.refused.get(pool.where)) is not None
        }
        whole = pools[0] if len(pools) == 1 else None
        if attempt.failure is not None:
            refused[whole] = attempt.failure
        elif not refused and len(launched) < len(nodes):
            text = f"{len(launched)} of {len(nodes)} instances"
            refused[whole] = Failure(FailureClass.CAPACITY, "InsufficientInstanceCapacity", text)
        return launched, refused

    def _try(self, pools: tuple[Pool, ...], wanted: Wanted, least: int) -> tuple[list[Launched], Attempt]:
        if len(pools) > 1 and (failure := self._templates.make()[1]) is not None:
            return [], Attempt(failure=failure)
        group = ""
        if wanted.group_of:
            group = group_name(self._cluster, wanted.group_of, pools[0].subnet_id)
            if (failure := self._groups.make(group)) is not None:
                return [], Attempt(failure=failure)
        intent = self._intent(pools, wanted.nodes, wanted.requested)
        intent = replace(intent, least=least, group=group, efa=wanted.efa)
        self._journal.intend(intent)
        attempt = self._ask(intent)
        return self._settle(intent, attempt), attempt

    def _intent(self, pools: tuple[Pool, ...], nodes: tuple[str, ...], requested: Capacity) -> Intent:
        """A launch with a new client token."""
        keys = (pool.key for pool in pools)
        text = "\0".join((self._cluster, str(self._journal.next_generation()), *keys, *nodes))
        number = fence.number()
        prefix = f"advisor-{number}-" if number else "advisor-"
        return Intent(
            token=prefix + hashlib.sha256(text.encode()).hexdigest()[: 56 - len(prefix)],
            nodes=nodes,
            option=pools[0].option,
            instance_type=pools[0].instance_type,
            subnet_id=pools[0].subnet_id,
            target=pools[0].target,
            requested=requested,
            time=self._now(),
            instances={},
            pools=tuple(pool.where for pool in pools) if len(pools) > 1 else (),
        )

    def _ask(self, intent: Intent) -> Attempt:
        if not intent.pools:
            return self._launcher.run_instances(run_instances_request(intent, self._settings, self._cluster))
        while True:
            was_made = self._templates.is_made
            template, failure = self._templates.make()
            if failure is not None:
                return Attempt(failure=failure)
            attempt = self._launcher.create_fleet(create_fleet_request(intent, self._cluster, template))
            if attempt.failure is None or attempt.failure.code != GONE or not was_made:
                return attempt
            self._templates.forget()

    def _settle(self, intent: Intent, attempt: Attempt) -> list[Launched]:
        """Record an intent's outcome; while that is unknown, the intent stays open for `recover`."""
        if attempt.failure is None:
            return self._record(intent, attempt.instances)
        if attempt.is_certain:
            self._journal.refused(intent.token, attempt.failure.code)
        return []

    def _record(self, intent: Intent, instances: Iterable[Instance]) -> list[Launched]:
        """Record each node's instance."""
        by_node = {
            intent.nodes[item.launch_index]: item
            for item in instances
            if item.launch_index < len(intent.nodes)
        }
        self._journal.launched(intent.token, {node: item.instance_id for node, item in by_node.items()})
        now = self._monotonic()
        self.recorded_at.update({item.instance_id: now for item in by_node.values()})
        return [
            Launched(
                node=node,
                instance_id=item.instance_id,
                private_ip=item.private_ip,
                pool=_pool_in(intent, item),
                subnet_id=item.subnet_id,
            )
            for node, item in by_node.items()
        ]

    # ------------------------------------------------------------------ after a crash

    def recover(self, wanted: Collection[str]) -> list[Launched]:
        """Settle intents whose outcome is unknown; see `advisor.ec2.fleet.Fleet.recover`."""
        found: list[Launched] = []
        intents, now = self._journal.open_intents(), self._monotonic()
        self._open_since = {each.token: self._open_since.get(each.token, now) for each in intents}
        for intent in intents:
            is_wanted = not set(intent.nodes).isdisjoint(wanted)
            # not by the wall clock alone: it may have been set, and EC2 may still list the instances (F32)
            is_settled = now - self._open_since[intent.token] >= SETTLING_SECONDS
            is_old = is_settled or self._now() - intent.time >= SETTLING_SECONDS
            seen = self._seen_of(intent) if is_old or not is_wanted else []
            if seen:
                found += self._record(intent, seen)
            elif is_wanted:
                found += self._repeat(intent)
            elif is_settled:
                self._journal.refused(intent.token, "never seen")
        return found

    def _seen_of(self, intent: Intent) -> list[Instance]:
        raw = described(self._ec2, {CLUSTER_TAG: self._cluster, INTENT_TAG: intent.token})
        found = [as_instance(each) for each in raw]
        if not intent.pools:
            return found
        found.sort(key=lambda item: item.instance_id)  # as `create_fleet` numbers them
        return [replace(item, launch_index=index) for index, item in enumerate(found)]

    def _repeat(self, intent: Intent) -> list[Launched]:
        attempt = self._ask(intent)
        if attempt.failure is None:
            return self._record(intent, attempt.instances)
        # other errors, such as a missing permission or throttling, say nothing about the first call
        if attempt.failure.kind in (FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.TOKEN):
            return self._settle(intent, attempt)
        return []

    # ------------------------------------------------------------------ tags

    def _names_left(self) -> float:
        """How many instances may be tagged now within EC2's rate limit, by the last calls."""
        number, at = self._named
        return max(0.0, min(TAGGED_AT_ONCE, number + _TAGGED_A_SECOND * (self._monotonic() - at)))

    def name(self, instance_of: Mapping[str, str]) -> None:
        """Tag instances with their nodes' names; those that EC2 refuses are tagged later."""
        self._named = (self._names_left() - len(instance_of), self._monotonic())
        for node, instance_id in instance_of.items():
            tags = [{"Key": NODE_TAG, "Value": node}, {"Key": "Name", "Value": node}]
            _, failure = answer_or_failure(partial(self._ec2.create_tags, Resources=[instance_id], Tags=tags))
            if failure is not None:
                _log.info("tag.later", instance=instance_id, node=node, code=failure.code)


def _pool_in(intent: Intent, item: Instance) -> Pool:
    """The pool of an instance of a launch; EC2 lists the default subnet where the settings name none."""
    if not intent.pools:
        return pool_of(intent)
    subnet = item.subnet_id if (item.instance_type, item.subnet_id) in intent.pools else None
    return Pool(option=intent.option, instance_type=item.instance_type, subnet_id=subnet)
