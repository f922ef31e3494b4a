"""The instances behind the burst partition: launched, found again, terminated.

Ownership is proved by tags set in the launch call itself (`advisor:cluster`, `advisor:intent`); which node an
instance is follows from the journal: node i of an intent is the instance with launch index i. Instances are
matched by id only, because addresses and names are given to new instances again (F07).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from advisor.ec2.clients import LAUNCH_CONFIG, client
from advisor.ec2.errors import Failure, FailureClass, failure_of
from advisor.ec2.instances import Instance, as_instance
from advisor.ec2.journal import Intent, Journal
from advisor.ec2.pools import Breakers, Pool, pools_for
from advisor.model.advice import Capacity
from advisor.model.settings import Ec2Settings

CLUSTER_TAG: Final = "advisor:cluster"
NODE_TAG: Final = "advisor:node"
INTENT_TAG: Final = "advisor:intent"

_LAUNCH_BATCH: Final = 500
_TERMINATE_BATCH: Final = 1000
_THROTTLE_TRIES: Final = 12
_FIRST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 15.0
_UNSETTLED_SECONDS: Final = 300.0

_log = structlog.get_logger("advisor.ec2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A node and the instance it got.

    Attributes
    ----------
    node : str
        Slurm's node name.
    instance_id : str
        EC2's id.
    private_ip : str
        May be empty for a moment after the launch: EC2 tells it later (F06).
    pool : Pool
        Where the instance came from.
    """

    node: str
    instance_id: str
    private_ip: str
    pool: Pool


@dataclass(slots=True)
class LaunchReport:
    """What came of one `Fleet.resume`.

    Attributes
    ----------
    launched : list of Launched
        Nodes with an instance, including those that had one already.
    failed : dict of node to Failure
        Nodes without one, and why.
    parked : list of Failure
        Purchase options closed by a quota just now: tell the admin, once.
    """

    launched: list[Launched] = field(default_factory=list)
    failed: dict[str, Failure] = field(default_factory=dict)
    parked: list[Failure] = field(default_factory=list)


class Fleet:
    """All instances of one cluster.

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
    now : callable
        Wall clock, seconds since the epoch.
    sleep : callable
        Waits so many seconds (between throttled calls).
    """

    def __init__(
        self,
        settings: Ec2Settings,
        cluster: str,
        journal: Journal,
        breakers: Breakers,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.journal = journal
        self.breakers = breakers
        self._now = now
        self._sleep = sleep
        self._launches = client("ec2", settings, LAUNCH_CONFIG)
        self._reads = client("ec2", settings)

    # ------------------------------------------------------------------ launching

    def resume(
        self, nodes: Sequence[str], *, capacity_of: Mapping[str, Capacity] | None = None
    ) -> LaunchReport:
        """Give every node an instance; asked twice for a node, it still has one (F10).

        Parameters
        ----------
        nodes : sequence of str
            Slurm's node names.
        capacity_of : mapping, optional
            What the advice for the node's job was; on-demand where nothing is said, because that is the only
            option that is right for every job.

        Returns
        -------
        LaunchReport
            Partial success is the normal case; nothing is raised for a refused launch.
        """
        report = LaunchReport()
        wanted = self._without_instance(dict.fromkeys(nodes), report)
        wishes: dict[Capacity, list[str]] = {}
        for node in wanted:
            wishes.setdefault((capacity_of or {}).get(node, Capacity.ON_DEMAND), []).append(node)
        for wish, group in wishes.items():
            for start in range(0, len(group), _LAUNCH_BATCH):
                self._launch(group[start : start + _LAUNCH_BATCH], wish, report)
        return report

    def _without_instance(self, nodes: Iterable[str], report: LaunchReport) -> list[str]:
        """Leave out nodes whose instance lives, and ones of which it is not known yet."""
        alive = {instance.node: instance for instance in self.instances() if instance.is_alive}
        unknown = {node: intent for intent in self.journal.open_intents() for node in intent.nodes}
        missing = []
        for node in nodes:
            if node in alive:
                instance = alive[node]
                pool = Pool(
                    option=instance.option, instance_type=instance.instance_type, subnet_id=instance.subnet_id
                )
                report.launched.append(
                    Launched(
                        node=node,
                        instance_id=instance.instance_id,
                        private_ip=instance.private_ip,
                        pool=pool,
                    )
                )
            elif node in unknown:
                text = "an earlier launch is not settled yet; recover() first"
                report.failed[node] = Failure(FailureClass.SERVER, "IntentOpen", text)
            else:
                missing.append(node)
        return missing

    def _launch(self, nodes: list[str], wish: Capacity, report: LaunchReport) -> None:
        """Go through the pools until every node of the batch has an instance or no pool is left."""
        left = list(nodes)
        failure = Failure(FailureClass.CAPACITY, "NoPoolOpen", "every pool is closed by its breaker")
        for pool in pools_for(wish, self.settings):
            if not left:
                return
            if not self.breakers.allows(pool):
                continue
            launched, problem = self._launch_in(pool, left, wish)
            report.launched.extend(launched)
            have = {item.node for item in launched}
            left = [node for node in left if node not in have]
            if problem is None:
                self.breakers.succeeded(pool)
                continue
            failure = problem
            if self.breakers.failed(pool, problem.kind, problem.code):
                report.parked.append(problem)
            _log.warning("launch.refused", pool=pool.key, code=problem.code, nodes=len(left))
            if problem.kind in (FailureClass.ADMIN, FailureClass.SERVER, FailureClass.THROTTLED):
                break  # the next pool would answer the same
        report.failed.update(dict.fromkeys(left, failure))

    def _launch_in(
        self, pool: Pool, nodes: Sequence[str], wish: Capacity
    ) -> tuple[list[Launched], Failure | None]:
        """One pool: intent, call, record. A short answer (3 of 5) counts as an empty pool for the rest."""
        intent = Intent(
            token=self._token(pool, nodes),
            nodes=tuple(nodes),
            option=pool.option,
            instance_type=pool.instance_type,
            subnet_id=pool.subnet_id,
            wish=wish,
            time=self._now(),
            instances={},
        )
        self.journal.intend(intent)
        answer, failure = self._run_instances(intent)
        if failure is not None:
            if failure.kind is not FailureClass.SERVER:
                self.journal.refused(intent.token, failure.code)
            return [], failure  # after a server fault nobody knows: the intent stays open for recover()
        launched = self._record(intent, answer)
        if len(launched) < len(nodes):
            text = f"{len(launched)} of {len(nodes)} instances"
            return launched, Failure(FailureClass.CAPACITY, "InsufficientInstanceCapacity", text)
        return launched, None

    def _token(self, pool: Pool, nodes: Sequence[str]) -> str:
        """Make a client token: new for every attempt, the same for every repetition of one attempt."""
        text = "\0".join((self.cluster, str(self.journal.next_generation()), pool.key, *nodes))
        return "advisor-" + hashlib.sha256(text.encode()).hexdigest()[:48]

    def _run_instances(self, intent: Intent) -> tuple[dict[str, Any], Failure | None]:
        """Call RunInstances; a throttled call or a lost answer is repeated with the same token."""
        request = self._request(intent)
        pause = _FIRST_PAUSE_SECONDS
        failure: Failure | None = None
        for _ in range(_THROTTLE_TRIES):
            try:
                return dict(self._launches.run_instances(**request)), None
            except Exception as error:
                failure = failure_of(error)
                if failure is None:
                    raise
            if failure.kind not in (FailureClass.THROTTLED, FailureClass.SERVER):
                return {}, failure
            self._sleep(pause)
            pause = min(_LONGEST_PAUSE_SECONDS, 2 * pause)
        return {}, failure

    def _request(self, intent: Intent) -> dict[str, Any]:
        settings = self.settings
        tags = [
            {"Key": CLUSTER_TAG, "Value": self.cluster},
            {"Key": INTENT_TAG, "Value": intent.token},
            {"Key": "Name", "Value": f"{self.cluster} burst node"},
        ]
        if len(intent.nodes) == 1:
            tags.append({"Key": NODE_TAG, "Value": intent.nodes[0]})
        request: dict[str, Any] = {
            "ImageId": settings.image_id,
            "InstanceType": intent.instance_type,
            "MinCount": 1,
            "MaxCount": len(intent.nodes),
            "ClientToken": intent.token,
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": tags},
                {"ResourceType": "volume", "Tags": tags[:2]},
            ],
            # version 2 only: a redirected request of a job must not reach the role's credentials
            "MetadataOptions": {
                "HttpTokens": "required",
                "HttpEndpoint": "enabled",
                "InstanceMetadataTags": "enabled",
            },
            "InstanceInitiatedShutdownBehavior": "terminate",
        }
        optional = {
            "SubnetId": intent.subnet_id,
            "SecurityGroupIds": list(settings.security_group_ids),
            "KeyName": settings.key_name,
            "UserData": settings.user_data_file.read_text(encoding="utf-8")
            if settings.user_data_file
            else None,
            "IamInstanceProfile": {"Name": settings.instance_profile} if settings.instance_profile else None,
            "InstanceMarketOptions": {"MarketType": "spot"} if intent.option is Capacity.SPOT else None,
        }
        request.update({name: value for name, value in optional.items() if value})
        return request

    def _record(self, intent: Intent, answer: Mapping[str, Any]) -> list[Launched]:
        """Write down which node got which instance, then tell the instances their names."""
        instances = [as_instance(raw) for raw in answer.get("Instances", [])]
        by_node = {
            intent.nodes[instance.launch_index]: instance
            for instance in instances
            if instance.launch_index < len(intent.nodes)
        }
        self.journal.launched(
            intent.token, {node: instance.instance_id for node, instance in by_node.items()}
        )
        if len(intent.nodes) > 1:
            self._name(by_node)
        pool = Pool(option=intent.option, instance_type=intent.instance_type, subnet_id=intent.subnet_id)
        return [
            Launched(node=node, instance_id=item.instance_id, private_ip=item.private_ip, pool=pool)
            for node, item in by_node.items()
        ]

    def _name(self, by_node: Mapping[str, Instance]) -> None:
        """Set the node tags; one that fails is set by `name_unnamed` later, the journal knows the node."""
        for node, instance in by_node.items():
            try:
                self._reads.create_tags(
                    Resources=[instance.instance_id], Tags=[{"Key": NODE_TAG, "Value": node}]
                )
            except Exception as error:
                failure = failure_of(error)
                if failure is None:
                    raise
                _log.warning("tag.failed", instance=instance.instance_id, node=node, code=failure.code)

    def name_unnamed(self) -> int:
        """Set missing node tags of instances the journal knows; how many were set."""
        unnamed = {
            instance.node: instance
            for instance in self.instances()
            if instance.is_alive and instance.node and not instance.has_node_tag
        }
        self._name(unnamed)
        return len(unnamed)

    # ------------------------------------------------------------------ after a crash

    def recover(self, wanted: Collection[str]) -> list[Launched]:
        """Settle intents of which the outcome is unknown (F09); never launch what nobody wants any more.

        If Slurm still waits for a node, EC2 is asked again with the same token and answers with the instances
        of the first call, or launches them now if there were none. Otherwise instances of the intent are only
        looked for; found ones are recorded (the reconciler collects them), and after five minutes without any
        the intent is closed.

        Parameters
        ----------
        wanted : collection of str
            Nodes that are powering up.

        Returns
        -------
        list of Launched
            Instances that were adopted.
        """
        found: list[Launched] = []
        for intent in self.journal.open_intents():
            if not set(intent.nodes).isdisjoint(wanted):
                answer, failure = self._run_instances(intent)
                if failure is None:
                    found.extend(self._record(intent, answer))
                elif failure.kind is not FailureClass.SERVER:
                    self.journal.refused(intent.token, failure.code)
                continue
            raw = self._described({f"tag:{INTENT_TAG}": intent.token})
            if raw:
                found.extend(self._record(intent, {"Instances": raw}))
            elif not 0 <= self._now() - intent.time < _UNSETTLED_SECONDS:
                self.journal.refused(intent.token, "never seen")
        return found

    # ------------------------------------------------------------------ looking and terminating

    def instances(self) -> list[Instance]:
        """Every instance with our owner tag that EC2 still lists, terminated ones included.

        Raises
        ------
        AdvisorError
            When EC2 can't be read to the end: half a list is no list, and no list means no action (F23).
        """
        nodes = self.journal.instances()
        return [
            as_instance(raw, node=nodes.get(raw["InstanceId"]))
            for raw in self._described({f"tag:{CLUSTER_TAG}": self.cluster})
        ]

    def _described(self, filters: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """Read all pages; a page that can't be read fails the whole."""
        pages = self._reads.get_paginator("describe_instances").paginate(
            Filters=[{"Name": name, "Values": [value]} for name, value in filters.items()]
        )
        try:
            return [
                raw
                for page in pages
                for reservation in page["Reservations"]
                for raw in reservation["Instances"]
            ]
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            raise failure.as_error() from error

    def suspend(self, nodes: Sequence[str]) -> list[str]:
        """Terminate the instances of nodes; the ids of those that were told to go."""
        wanted = set(nodes)
        return self.terminate(
            [item.instance_id for item in self.instances() if item.is_alive and item.node in wanted]
        )

    def terminate(self, instance_ids: Sequence[str]) -> list[str]:
        """Terminate instances; one unknown id fails a whole batch of EC2's, so a failed batch is split (F08).

        Returns
        -------
        list of str
            Ids that are going or gone. The others are tried again by the reconciler until they are.
        """
        done: list[str] = []
        stack = [
            list(instance_ids[start : start + _TERMINATE_BATCH])
            for start in range(0, len(instance_ids), _TERMINATE_BATCH)
        ]
        while stack:
            batch = stack.pop()
            failure = self._terminate_once(batch)
            if failure is None:
                done.extend(batch)
            elif len(batch) > 1 and failure.kind in (FailureClass.GONE, FailureClass.ADMIN):
                middle = len(batch) // 2
                stack += [batch[:middle], batch[middle:]]
            elif failure.kind is FailureClass.GONE:
                done.extend(batch)
            else:
                _log.warning("terminate.failed", code=failure.code, instances=len(batch))
        return done

    def _terminate_once(self, batch: list[str]) -> Failure | None:
        if not batch:
            return None
        try:
            self._reads.terminate_instances(InstanceIds=batch)
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            return failure
        return None
