"""The instances behind the burst partition: launched, found again, terminated.

Instances are matched by id and owner tag only, because addresses and names are given to new instances again
(F07). Which node an instance is follows from its own tags (`advisor.ec2.tags`); the journal remembers the
same for the moments in which EC2 does not list it yet (F06).
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import structlog

from advisor.ec2.clients import LAUNCH_CONFIG, client
from advisor.ec2.errors import Failure, FailureClass, failure_of, most_careful
from advisor.ec2.instances import Instance, as_instance
from advisor.ec2.journal import Intent, Journal
from advisor.ec2.launching import Attempt, Launcher
from advisor.ec2.listing import described
from advisor.ec2.pools import Breakers, Pool, pools_for
from advisor.ec2.reports import Launched, LaunchReport, as_launched, pool_of
from advisor.ec2.requests import run_instances_request, user_data
from advisor.ec2.tags import CLUSTER_TAG, INTENT_TAG, NODE_TAG, batches
from advisor.ec2.terminating import terminate
from advisor.model.advice import Capacity
from advisor.model.settings import Ec2Settings

__all__ = ["Fleet", "LaunchReport", "Launched", "Refuse"]

_LAUNCH_BATCH: Final = 500
_NAMED_AT_LAUNCH: Final = 20  # one call a name, and EC2 takes about ten a second: the rest is named later
_NAMED_AT_ONCE: Final = 100  # EC2's bucket for CreateTags
_SETTLING_SECONDS: Final = 300.0  # within it, an instance EC2 does not list may be one it does not list yet
_NO_POOL: Final = Failure(FailureClass.CAPACITY, "NoPoolOpen", "every pool is closed by its breaker")

_log = structlog.get_logger("advisor.ec2")

Refuse = Callable[[Sequence[str]], Mapping[str, Failure]]
"""Nodes that may not be launched, of those about to be."""


class Fleet:
    """All instances of one cluster. Safe to be used by several threads.

    Parameters
    ----------
    settings : Ec2Settings
        What to launch and where.
    cluster : str
        Owner tag: only instances with it are ever touched.
    journal : Journal
        Intents, written before each launch.
    breakers : Breakers
        Which pools are worth trying.
    now, monotonic : callable
        Wall clock, seconds since the epoch, for what must mean the same after a restart; and seconds that
        only ever grow (F32).
    sleep : callable
        Waits so many seconds (between throttled calls).
    jitter : callable
        A random number from 0 to 1, for those waits.
    connect : callable
        Makes clients; tests have an EC2 of their own.
    order : callable
        In which order pools are tried; by default as the settings name them.
    """

    def __init__(
        self,
        settings: Ec2Settings,
        cluster: str,
        journal: Journal,
        breakers: Breakers,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        connect: Callable[..., Any] = client,
        order: Callable[[Sequence[Pool]], Sequence[Pool]] = tuple,
    ) -> None:
        self._order = order
        self.settings = settings
        self.cluster = cluster
        self.journal = journal
        self.breakers = breakers
        self._now = now
        self._monotonic = monotonic
        self._launcher = Launcher(connect("ec2", settings, LAUNCH_CONFIG), sleep=sleep, jitter=jitter)
        self._ec2 = connect("ec2", settings)
        self._launching = threading.Lock()  # "has it one?" and the launch are one step (F10)
        self._recorded_at: dict[str, float] = {}  # instance: monotonic seconds
        self._asked_at: dict[str, float] = {}  # node: monotonic seconds

    # ------------------------------------------------------------------ launching

    def resume(
        self,
        nodes: Sequence[str],
        *,
        capacity_of: Mapping[str, Capacity] | None = None,
        refuse: Refuse | None = None,
    ) -> LaunchReport:
        """Give every node an instance; asked twice for a node, it still has one (F10).

        Parameters
        ----------
        nodes : sequence of str
            Slurm's node names.
        capacity_of : mapping, optional
            What the advice for the node's job was; on-demand where nothing is said, because that is the only
            option that is right for every job.
        refuse : callable, optional
            Asked about the nodes that have no instance yet, before anything is launched: which of them may
            not have one, and why. A node that has one is not asked about again, for its job may be running.

        Returns
        -------
        LaunchReport
            Partial success is the normal case; a refused launch raises nothing.

        Raises
        ------
        AdvisorError
            Nothing was launched: EC2 can't be read, the intent not be written, the user data not be found.
        """
        report = LaunchReport()
        wishes: dict[Capacity, list[str]] = {}
        with self._launching:
            self._asked_at.update(dict.fromkeys(nodes, self._monotonic()))
            missing = self._without_instance(dict.fromkeys(nodes), report)
            refused = refuse(missing) if refuse is not None and missing else {}
            report.failed.update(refused)
            for node in missing:
                if node in refused:
                    continue
                wishes.setdefault((capacity_of or {}).get(node, Capacity.ON_DEMAND), []).append(node)
            if wishes:
                user_data(self.settings)  # refuse now what could not be repeated
            for wish, group in wishes.items():
                for batch in batches(group, _LAUNCH_BATCH):
                    self._launch(batch, wish, report)
        return report

    def _without_instance(self, nodes: Iterable[str], report: LaunchReport) -> list[str]:
        """Leave out nodes whose instance lives, and ones of which that is not known yet."""
        listed = self.instances()
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
                text = "an earlier launch is not settled yet; recover() first"
                report.failed[node] = Failure(FailureClass.SERVER, "IntentOpen", text)
            else:
                missing.append(node)
        return missing

    def _launch(self, nodes: tuple[str, ...], wish: Capacity, report: LaunchReport) -> None:
        """Go through the pools until every node of the batch has an instance or no pool is left."""
        left = nodes
        failures = [_NO_POOL]
        for pool in self._order(pools_for(wish, self.settings)):
            if not left:
                break
            if not self.breakers.allows(pool):
                continue
            launched, problem = self._launch_in(pool, left, wish)
            report.launched += launched
            have = {item.node for item in launched}
            left = tuple(node for node in left if node not in have)
            if problem is None:
                self.breakers.succeeded(pool)
                continue
            failures.append(problem)
            if self.breakers.failed(pool, problem.kind, problem.code):
                report.parked.append(problem)
            _log.warning("launch.refused", pool=pool.key, code=problem.code, nodes=len(left))
            if problem.kind not in (FailureClass.CAPACITY, FailureClass.QUOTA):
                break  # the next pool would answer the same
        report.failed.update(dict.fromkeys(left, most_careful(failures)))

    def _launch_in(
        self, pool: Pool, nodes: tuple[str, ...], wish: Capacity
    ) -> tuple[list[Launched], Failure | None]:
        """One pool: intent, call, record. A short answer (3 of 5) counts as an empty pool for the rest."""
        launched, attempt = self._try(pool, nodes, wish)
        if attempt.failure is not None and attempt.failure.kind is FailureClass.TOKEN and attempt.is_certain:
            launched, attempt = self._try(pool, nodes, wish)  # EC2 refused the token itself: a new one
        self._name({item.node: item.instance_id for item in launched[:_NAMED_AT_LAUNCH]}, len(nodes))
        if attempt.failure is None and len(launched) < len(nodes):
            text = f"{len(launched)} of {len(nodes)} instances"
            return launched, Failure(FailureClass.CAPACITY, "InsufficientInstanceCapacity", text)
        return launched, attempt.failure

    def _try(self, pool: Pool, nodes: tuple[str, ...], wish: Capacity) -> tuple[list[Launched], Attempt]:
        intent = self._intent(pool, nodes, wish)
        self.journal.intend(intent)
        attempt = self._launcher.run_instances(self._request(intent))
        return self._settle(intent, attempt), attempt

    def _intent(self, pool: Pool, nodes: tuple[str, ...], wish: Capacity) -> Intent:
        """A new attempt with a token of its own, the same for every repetition of its call."""
        text = "\0".join((self.cluster, str(self.journal.next_generation()), pool.key, *nodes))
        return Intent(
            token="advisor-" + hashlib.sha256(text.encode()).hexdigest()[:48],
            nodes=nodes,
            option=pool.option,
            instance_type=pool.instance_type,
            subnet_id=pool.subnet_id,
            wish=wish,
            time=self._now(),
            instances={},
        )

    def _request(self, intent: Intent) -> dict[str, Any]:
        return run_instances_request(intent, self.settings, self.cluster)

    def _settle(self, intent: Intent, attempt: Attempt) -> list[Launched]:
        """Write down what came of an intent; while nobody knows, it stays open for `recover`."""
        if attempt.failure is None:
            return self._record(intent, attempt.instances)
        if attempt.is_certain:
            self.journal.refused(intent.token, attempt.failure.code)
        return []

    def _record(self, intent: Intent, instances: Iterable[Instance]) -> list[Launched]:
        """Write down which node got which instance."""
        by_node = {
            intent.nodes[item.launch_index]: item
            for item in instances
            if item.launch_index < len(intent.nodes)
        }
        self.journal.launched(intent.token, {node: item.instance_id for node, item in by_node.items()})
        now, pool = self._monotonic(), pool_of(intent)
        self._recorded_at.update({item.instance_id: now for item in by_node.values()})
        return [
            Launched(node=node, instance_id=item.instance_id, private_ip=item.private_ip, pool=pool)
            for node, item in by_node.items()
        ]

    # ------------------------------------------------------------------ after a crash

    def recover(self, wanted: Collection[str]) -> list[Launched]:
        """Settle intents of which the outcome is unknown (F09); never launch what nobody wants any more.

        If Slurm still waits for a node, EC2 is asked again with the same token: it answers with the instances
        of the first call, or launches them now if there were none. Otherwise, and when the token is too old
        to be relied on, instances of the intent are looked for by its tag; found ones are recorded (the
        reconciler collects those nobody wants), and after five minutes without any the intent is closed.

        Parameters
        ----------
        wanted : collection of str
            Nodes that are powering up.

        Returns
        -------
        list of Launched
            Instances that were adopted.

        Raises
        ------
        AdvisorError
            EC2 can't be read: nothing is decided.
        """
        found: list[Launched] = []
        with self._launching:
            for intent in self.journal.open_intents():
                is_wanted = not set(intent.nodes).isdisjoint(wanted)
                is_old = self._now() - intent.time >= _SETTLING_SECONDS
                seen = self._described_of(intent) if is_old or not is_wanted else []
                if seen:
                    found += self._record(intent, map(as_instance, seen))
                elif is_wanted:
                    found += self._ask_again(intent)
                elif is_old:
                    self.journal.refused(intent.token, "never seen")
        return found

    def _described_of(self, intent: Intent) -> list[Mapping[str, Any]]:
        return described(self._ec2, {CLUSTER_TAG: self.cluster, INTENT_TAG: intent.token})

    def _ask_again(self, intent: Intent) -> list[Launched]:
        attempt = self._launcher.run_instances(self._request(intent))
        if attempt.failure is None:
            return self._record(intent, attempt.instances)
        # No permission or too many calls: that says nothing about the first call.
        if attempt.failure.kind in (FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.TOKEN):
            return self._settle(intent, attempt)
        return []

    # ------------------------------------------------------------------ names

    def name_unnamed(self) -> int:
        """Set missing node tags, as many as EC2 takes at once; how many were missing.

        They are for people who look at the console: which node an instance is, its launch tags say.
        """
        unnamed = {
            item.node: item.instance_id
            for item in self.instances()
            if item.is_alive and item.node and not item.has_node_tag
        }
        some = list(unnamed.items())[:_NAMED_AT_ONCE]
        self._name(dict(some), len(unnamed) + 1)
        return len(unnamed)

    def _name(self, instance_of: Mapping[str, str], launched_together: int) -> None:
        if launched_together == 1:
            return  # its launch has named it
        for node, instance_id in instance_of.items():
            tags = [{"Key": NODE_TAG, "Value": node}, {"Key": "Name", "Value": node}]
            try:
                self._ec2.create_tags(Resources=[instance_id], Tags=tags)
            except Exception as error:
                failure = failure_of(error)
                if failure is None:
                    raise
                _log.info("name.later", instance=instance_id, node=node, code=failure.code)

    # ------------------------------------------------------------------ looking and terminating

    def instances(self) -> list[Instance]:
        """Every instance with our owner tag that EC2 still lists, terminated ones included.

        Raises
        ------
        AdvisorError
            When EC2 can't be read to the end: half a list is no list, and no list means no action (F23).
        """
        known = self.journal.instances()
        listed = [
            as_instance(raw, node=known[raw["InstanceId"]][0] if raw["InstanceId"] in known else None)
            for raw in described(self._ec2, {CLUSTER_TAG: self.cluster})
        ]
        self._forget_ended(listed)
        return listed

    def _unlisted(self, listed: Iterable[Instance]) -> dict[str, tuple[str, Intent]]:
        """Instances launched so shortly ago that EC2 may not list them yet: id to node and launch (F06)."""
        known = {item.instance_id for item in listed}
        return {
            instance_id: (node, intent)
            for instance_id, (node, intent) in self.journal.instances().items()
            if instance_id not in known and self._is_young(instance_id, intent)
        }

    def unlisted_nodes(self, listed: Sequence[Instance]) -> frozenset[str]:
        """Nodes launched so shortly ago that EC2 may not list their instances yet (F06)."""
        return frozenset(node for node, _ in self._unlisted(listed).values())

    def _is_young(self, instance_id: str, intent: Intent) -> bool:
        recorded = self._recorded_at.get(instance_id)
        if recorded is not None:
            return self._monotonic() - recorded < _SETTLING_SECONDS
        return abs(self._now() - intent.time) < _SETTLING_SECONDS  # launched before we were started

    def _forget_ended(self, listed: Sequence[Instance]) -> None:
        """Drop from the journal what EC2 calls terminated, or has not listed for long."""
        alive = {item.instance_id for item in listed if item.state != "terminated"}
        remembered = self.journal.instances().keys()
        ended = frozenset(remembered - alive - self._unlisted(listed).keys())
        if ended:
            self.journal.forget(ended)
            for instance_id in ended:
                self._recorded_at.pop(instance_id, None)

    def suspend(self, nodes: Sequence[str]) -> list[str]:
        """Terminate the instances of nodes, stopped ones too (F21); the ids of those that are going.

        Only what EC2 itself calls ours is ended: what it lists under the cluster's tag, and what it answered
        to a launch of this process. An instance that only the journal knows is left until EC2 lists it: the
        reconciler collects it then.
        """
        wanted = set(nodes)
        listed = self.instances()
        ids = [item.instance_id for item in listed if item.may_cost and item.node in wanted]
        young = [i for i, (node, _) in self._unlisted(listed).items() if node in wanted]
        unproven = [i for i in young if i not in self._recorded_at]
        if unproven:
            _log.warning("terminate.not_listed", instances=unproven, why="only the journal calls them ours")
        return self.terminate(ids + [i for i in young if i in self._recorded_at])

    def terminate(self, instance_ids: Sequence[str]) -> list[str]:
        """Terminate instances, as many as EC2 takes (F08).

        Returns
        -------
        list of str
            Ids that are going or gone. The others are tried again by the reconciler until they are.
        """
        going, unknown = terminate(self._ec2, instance_ids)
        launches = self.journal.instances()
        too_young = [i for i in unknown if i in launches and self._is_young(i, launches[i][1])]
        if too_young:
            _log.warning("terminate.not_known_yet", instances=too_young)
        return going + [i for i in unknown if i not in too_young]

    def asked_for(self, nodes: Iterable[str]) -> None:
        """Slurm wants these nodes: what was seen of them before makes nothing an orphan (see `collect`)."""
        with self._launching:
            self._asked_at.update(dict.fromkeys(nodes, self._monotonic()))

    def collect(self, orphans: Sequence[Instance], looked: float) -> list[str]:
        """Terminate instances nobody claims, but for those of nodes that were asked for meanwhile.

        Parameters
        ----------
        orphans : sequence of Instance
            What Slurm did not claim when it was looked at.
        looked : float
            When that was, monotonic seconds: a node resumed since then may have been given the very instance.

        Returns
        -------
        list of str
            Ids that are going or gone.
        """
        with self._launching:
            never = float("-inf")
            return self.terminate(
                [item.instance_id for item in orphans if self._asked_at.get(item.node or "", never) < looked]
            )
