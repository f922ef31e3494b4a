"""Launch, list and terminate the instances of the burst partition's nodes.

The provision loop launches and terminates by it what slurmctld asks for; the reconcile loop lists, and ends
orphans.

Instances are identified by id and cluster tag only, because new instances get old addresses and names again
(F07 in docs/faults.md). Their tags name their nodes (`advisor.ec2.tags`); the journal does so while EC2 does
not list them yet (F06).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from advisor.ec2.account import Account
from advisor.ec2.clients import LAUNCH_CONFIG, client
from advisor.ec2.errors import Failure, FailureClass
from advisor.ec2.instances import BY_REQUEST, Instance, as_instance
from advisor.ec2.journal import Intent, Journal
from advisor.ec2.launch_batches import Asked, LaunchBatches
from advisor.ec2.launches import SETTLING_SECONDS, TAGGED_AT_ONCE, Launches, Order
from advisor.ec2.launching import Launcher
from advisor.ec2.listing import described
from advisor.ec2.pools import Rounds, UnavailablePools
from advisor.ec2.reports import Launched, LaunchReport, as_if_listed, as_launched, pool_of
from advisor.ec2.tags import CLUSTER_TAG
from advisor.ec2.terminating import terminate
from advisor.model.advice import Capacity
from advisor.model.errors import TellAdmin
from advisor.model.settings_cloud import Ec2Settings

__all__ = ["Fleet", "LaunchReport", "Launched", "Refuse"]

_log = structlog.get_logger("advisor.ec2")

Refuse = Callable[[Sequence[str], Sequence[Instance] | None], Mapping[str, Failure]]
"""Function from nodes that are about to be launched, and the instances that there are (None: the nodes got no
place in a capacity reservation), to the nodes that may not be launched, and why."""


class Fleet:
    """All instances of one cluster. Several threads may use it.

    Args:
        cluster: Value of the cluster tag: only instances with it are ever terminated.
        now, monotonic: Wall clock, epoch seconds, for what must survive a restart; monotonic seconds for the
            rest (F32).
        sleep: Waits so many seconds between throttled calls.
        jitter: Random number from 0 to 1, for those waits.
        order: Orders the pools to try; by default they are tried in the settings' order.
        account: What the account has paid for already, which is used first.
    """

    def __init__(
        self,
        settings: Ec2Settings,
        cluster: str,
        journal: Journal,
        unavailable: UnavailablePools,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        connect: Callable[..., Any] = client,
        order: Order = tuple,
        account: Callable[[], Account] = Account,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.journal = journal
        self.unavailable = unavailable
        self._monotonic = monotonic
        self._started = now(), monotonic()
        self._ec2 = connect("ec2", settings)
        self._launches = Launches(
            settings,
            cluster,
            journal,
            unavailable,
            launcher=Launcher(connect("ec2", settings, LAUNCH_CONFIG), sleep=sleep, jitter=jitter),
            ec2=self._ec2,
            order=order,
            terminate=self.terminate,
            now=now,
            monotonic=monotonic,
        )
        self._batches = LaunchBatches(settings, journal, self._launches, account)
        self._launching = threading.Lock()  # held from the check for an existing instance to the launch (F10)
        self._requested_at: dict[str, float] = {}  # node: monotonic seconds
        self._ended_at: dict[str, float] = {}  # instance that EC2 was told to end: monotonic seconds
        self._refused: dict[str, Failure] = {}  # what EC2 does not let us do, until it does

    # ------------------------------------------------------------------ launching

    def resume(
        self,
        nodes: Sequence[str],
        *,
        capacity_of: Mapping[str, Capacity] | None = None,
        refuse: Refuse | None = None,
        jobs: Iterable[Sequence[str]] = (),
        pools_of: Mapping[str, Rounds] | None = None,
        ends: Mapping[str, float] | None = None,
    ) -> LaunchReport:
        """Give each node one instance, also when it is called twice for a node (F10).

        Args:
            nodes: Slurm's node names.
            capacity_of: Capacity that the node's job was advised; on-demand for others, which suits every
                job.
            refuse: Called with the nodes that have no instance yet, before anything is launched; and with
                None before nodes are launched elsewhere that a capacity reservation has no place for.
            jobs: The nodes of each job that has several, also those that are up. Of these nodes all or none
                are launched, in the zone of those that have an instance.
            pools_of: The spot pools that a node may use; any for others.
            ends: When the jobs of a node end at the latest, epoch seconds; unknown for others. Paid capacity
                that ends before is left to others.

        Returns:
            A refused launch is part of the report and raises nothing.

        Raises:
            AdvisorError: Nothing was launched: EC2 or the user data cannot be read, or the journal cannot be
                written.
        """
        report = LaunchReport()
        with self._launching:
            self._requested_at.update(dict.fromkeys(nodes, self._monotonic()))
            listed = self.instances()
            missing = self._without_instance(dict.fromkeys(nodes), listed, report)
            if refuse is not None and missing:
                report.failed.update(refuse(missing, [*listed, *as_if_listed(self._unlisted(listed))]))
            capacities = {node: (capacity_of or {}).get(node, Capacity.ON_DEMAND) for node in missing}
            asked = Asked(
                capacities=capacities,
                listed=listed,
                jobs=jobs,
                ends=ends or {},
                pools_of=pools_of or {},
                refuse=None if refuse is None else lambda nodes: refuse(nodes, None),
            )
            self._batches.launch(asked, report)
            failures = (*report.failed.values(), *report.newly_unavailable)
            refused = [one for one in failures if one.kind is FailureClass.ADMIN]
            is_done = any(item.node in missing for item in report.launched)
            self._note("launch instances", refused[0] if refused else None, done=is_done)
        return report

    def _without_instance(
        self, nodes: Iterable[str], listed: Sequence[Instance], report: LaunchReport
    ) -> list[str]:
        """Nodes that have no instance; the others are reported as launched, or failed while it is unknown."""
        have = {item.node: as_launched(item) for item in listed if item.is_alive and item.node}
        have |= {
            node: Launched(node=node, instance_id=instance_id, private_ip="", pool=pool_of(intent))
            for instance_id, (node, intent) in self._unlisted(listed).items()
        }
        unknown = {node for intent in self.journal.open_intents() for node in intent.nodes}
        missing = []
        for node in nodes:
            if node in have:
                report.launched.append(have[node])
            elif node in unknown:
                text = "the outcome of an earlier launch of the node is not known yet"
                report.failed[node] = Failure(FailureClass.SERVER, "IntentOpen", text)
            else:
                missing.append(node)
        return missing

    # ------------------------------------------------------------------ after a crash

    def recover(self, wanted: Collection[str]) -> list[Launched]:
        """Settle intents whose outcome is unknown (F09), and return their instances.

        While Slurm waits for a node of the intent (it is in `wanted`, the nodes that are powering up), the
        call is repeated with the same token: EC2 answers with the instances of the first call, or launches
        them now. Otherwise, and when the token is older than five minutes, instances are looked for by the
        intent's tag. Those found are recorded, and the reconciler terminates the ones that no node needs; an
        intent that was looked for during five minutes in vain is closed.

        Raises:
            AdvisorError: EC2 cannot be read: the remaining intents stay open.
        """
        with self._launching:
            return self._launches.recover(wanted)

    # ------------------------------------------------------------------ tags

    def tag_unnamed(self) -> int:
        """Set up to 100 missing node tags, which people see in the console; return how many were missing."""
        unnamed = {
            item.node: item.instance_id
            for item in self.instances()
            if item.is_alive and item.node and not item.has_node_tag
        }
        self._launches.name(dict(list(unnamed.items())[:TAGGED_AT_ONCE]))
        return len(unnamed)

    # ------------------------------------------------------------------ listing and terminating

    def instances(self) -> list[Instance]:
        """Every instance with the cluster's tag that EC2 lists, terminated ones included.

        Raises:
            AdvisorError: EC2 cannot be read completely; callers must not act on a part of the list (F23).
        """
        known = self.journal.instances()
        listed = [
            self._unless_ended(
                as_instance(raw, node=known[raw["InstanceId"]][0] if raw["InstanceId"] in known else None)
            )
            for raw in described(self._ec2, {CLUSTER_TAG: self.cluster})
        ]
        self._forget_ended(listed)
        return listed

    def _unless_ended(self, item: Instance) -> Instance:
        """The instance, as ended where it has been terminated: EC2's list may be older than that (F06).

        Else a node that is resumed at once would be given the instance of its former life.
        """
        ended = self._ended_at.get(item.instance_id)
        if ended is None or not item.may_cost or self._monotonic() - ended >= SETTLING_SECONDS:
            return item
        return replace(item, state="shutting-down", state_reason=BY_REQUEST)

    def _unlisted(self, listed: Iterable[Instance]) -> dict[str, tuple[str, Intent]]:
        """Instances that are so new that EC2 may not list them yet: id to node and launch (F06)."""
        known = {item.instance_id for item in listed} | self._ended_at.keys()
        return {
            instance_id: (node, intent)
            for instance_id, (node, intent) in self.journal.instances().items()
            if instance_id not in known and self._is_young(instance_id, intent)
        }

    def in_blocks(self) -> dict[str, set[str]]:
        """The nodes whose instances were launched in capacity blocks, by block."""
        found: dict[str, set[str]] = {}
        for instance_id, (node, intent) in self.journal.instances().items():
            is_there = instance_id not in self._ended_at
            if is_there and intent.target is not None and intent.target.is_block:
                found.setdefault(intent.target.reservation_id, set()).add(node)
        return found

    def unlisted_nodes(self, listed: Sequence[Instance]) -> frozenset[str]:
        """Nodes whose instances are so new that EC2 may not list them yet (F06)."""
        return frozenset(node for node, _ in self._unlisted(listed).values())

    def _is_young(self, instance_id: str, intent: Intent) -> bool:
        recorded = self._launches.recorded_at.get(instance_id)
        if recorded is not None:
            return self._monotonic() - recorded < SETTLING_SECONDS
        wall, steady = self._started  # launched before: the wall clock may have been set since (F32)
        return abs(wall - intent.time) + self._monotonic() - steady < SETTLING_SECONDS

    def _forget_ended(self, listed: Sequence[Instance]) -> None:
        """Remove instances from the journal that are terminated, or that EC2 has not listed for long."""
        alive = {item.instance_id for item in listed if item.state != "terminated"}
        remembered = self.journal.instances().keys()
        ended = frozenset(remembered - alive - self._unlisted(listed).keys())
        if ended:
            self.journal.forget(ended)
            for instance_id in ended:
                self._launches.recorded_at.pop(instance_id, None)

    def suspend(self, nodes: Sequence[str]) -> list[str]:
        """Terminate the instances of nodes, stopped ones too (F21); return the ids that EC2 accepted.

        That includes instances with the cluster's tag, and those that EC2 returned to a launch of this
        process. An instance that only the journal knows is left to the reconciler, until EC2 lists it.
        """
        wanted = set(nodes)
        listed = self.instances()
        ids = [item.instance_id for item in listed if item.may_cost and item.node in wanted]
        young = [i for i, (node, _) in self._unlisted(listed).items() if node in wanted]
        unproven = [i for i in young if i not in self._launches.recorded_at]
        if unproven:
            then = "they are terminated once EC2 lists them"
            _log.warning(
                "terminate.not_listed", instances=unproven, why="only the journal knows them", then=then
            )
        return self.terminate(ids + [i for i in young if i in self._launches.recorded_at])

    def terminate(self, instance_ids: Sequence[str]) -> list[str]:
        """Terminate instances (F08); return the ids that EC2 accepted or no longer knows.

        The reconciler repeats the call for the others.
        """
        terminated, unknown, refused = terminate(self._ec2, instance_ids)
        self._note("end instances", refused, done=bool(terminated))
        now = self._monotonic()
        lately = {i: at for i, at in self._ended_at.items() if now - at < SETTLING_SECONDS}
        self._ended_at = lately | dict.fromkeys(terminated, now)
        launches = self.journal.instances()
        too_young = [i for i in unknown if i in launches and self._is_young(i, launches[i][1])]
        if too_young:
            _log.warning("terminate.not_known_yet", instances=too_young, then="it is tried again")
        return terminated + [i for i in unknown if i not in too_young]

    def _note(self, what: str, refused: Failure | None, *, done: bool) -> None:
        if refused is not None:
            self._refused[what] = refused
        elif done:
            self._refused.pop(what, None)

    def tell_refused(self) -> None:
        """Say what EC2 refused at its last try for a reason that only the admin can mend.

        Raises:
            TellAdmin: There is such a thing. It is over when the next try succeeds.
        """
        if not self._refused:
            return
        what = min(self._refused)
        failure = self._refused[what]
        raise TellAdmin(
            f"EC2 does not let the advisor {what} ({failure.code}: {failure.message}). Compare the policy of "
            "this host's role with docs/iam.md, and the section ec2 of the settings. This message ends "
            "when a try succeeds; `advisor pools` says when launches are tried again",
            code=f"ec2.{FailureClass.ADMIN.value}",
        )

    def mark_requested(self, nodes: Iterable[str]) -> None:
        """Note that Slurm needs these nodes now: `terminate_orphans` spares their instances."""
        with self._launching:
            self._requested_at.update(dict.fromkeys(nodes, self._monotonic()))

    def terminate_orphans(self, orphans: Sequence[Instance], polled: float) -> list[str]:
        """Terminate instances that no node of Slurm needed at its poll; return the ids as `terminate` does.

        `polled` is that moment in monotonic seconds. An instance whose node was requested since then is
        spared, for the node may have got it.
        """
        with self._launching:
            never = float("-inf")
            return self.terminate(
                [i.instance_id for i in orphans if self._requested_at.get(i.node or "", never) < polled]
            )
