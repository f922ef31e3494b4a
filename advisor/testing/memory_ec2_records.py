"""Instances of `advisor.testing.memory_ec2`, how long things take, and what Describe calls say of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final

from botocore.exceptions import ClientError

from advisor.testing.ec2.faults import STATUS_OF

ALIVE: Final = frozenset({"pending", "running"})


@dataclass(slots=True)
class MemoryInstance:
    """One instance as it truly is.

    Attributes:
        instance_id, instance_type, market, private_ip, token: As launched; the market is ``spot`` or
            ``on-demand``.
        subnet_id: Where.
        launch_index: Its number within its launch.
        tags: Name to value.
        history: Every state it was or will be in, oldest first.
        reason: EC2's code of why it ended.
        spot_status: Status code of its spot request; empty for an on-demand one.
        spot_tags: Tags of that request, which are not the instance's.
        ends_at: When EC2 will take it back.
        reservation_id: The capacity reservation that it runs in; empty: none.
        group: Its placement group; empty: none.
        said: What Describe calls have said last, and of what.
    """

    instance_id: str
    instance_type: str
    market: str
    private_ip: str
    token: str
    subnet_id: str | None
    launch_index: int
    tags: dict[str, str]
    history: list[tuple[float, str]]
    reason: str = ""
    spot_status: str = ""
    spot_tags: Mapping[str, str] = field(default_factory=dict)
    ends_at: float | None = None
    reservation_id: str = ""
    group: str = ""
    said: tuple[object, Mapping[str, Any]] = field(default=(None, {}), repr=False, compare=False)

    @property
    def launched_at(self) -> float:
        """Epoch seconds."""
        return self.history[0][0]

    def state_at(self, time: float) -> str | None:
        """State at a moment; None before its launch."""
        state = None
        for since, name in self.history:
            if since > time:
                break
            state = name
        return state

    def ended_at(self) -> float | None:
        """When it ceased to run; None while it runs."""
        return next((since for since, state in self.history if state not in ALIVE), None)


@dataclass(slots=True)
class Ec2Times:
    """How long things take, in seconds.

    Attributes:
        pending, shutdown: From launch to running, from the end to terminated.
        lag: How old the picture is that Describe calls give and other calls go by.
        purge: How long terminated instances stay listed.
    """

    pending: float = 5.0
    shutdown: float = 10.0
    lag: float = 0.0
    purge: float = 3600.0


def fits(
    tags: Mapping[str, str], filters: list[dict[str, Any]], known: Mapping[str, str] = MappingProxyType({})
) -> bool:
    """Whether tags, and values of other ``known`` filters, pass; a filter that is neither is refused."""
    for each in filters:
        kind, _, name = each["Name"].partition(":")
        if kind != "tag" and kind not in known:
            msg = f"no filter {each['Name']!r} here"
            raise ValueError(msg)
        value = tags.get(name) if kind == "tag" else known[kind]
        if value is None or not _is_one_of(value, each["Values"]):
            return False
    return True


def _is_one_of(value: str, patterns: list[str]) -> bool:
    return value in patterns or any("*" in each and fnmatchcase(value, each) for each in patterns)


def tags_of(specifications: Iterable[Mapping[str, Any]], kind: str) -> dict[str, str]:
    """The tags that TagSpecifications give to a kind of resource."""
    return {
        tag["Key"]: tag["Value"]
        for each in specifications
        if each["ResourceType"] == kind
        for tag in each["Tags"]
    }


def subnet_of(request: Mapping[str, Any]) -> str | None:
    """The subnet that a launch names; None: none."""
    interface = request.get("NetworkInterfaces", [{}])[0]
    found: str | None = request.get("SubnetId") or interface.get("SubnetId")
    return found


def as_spot_request(item: MemoryInstance) -> dict[str, Any]:
    """The spot request of an instance as DescribeSpotInstanceRequests says it."""
    return {
        "InstanceId": item.instance_id,
        "Status": {"Code": item.spot_status},
        "Tags": [{"Key": name, "Value": value} for name, value in item.spot_tags.items()],
    }


def as_raw(item: MemoryInstance, state: str) -> Mapping[str, Any]:
    """One instance as DescribeInstances says it; not to be written to: it is said again until it changes."""
    of = state, item.reason, item.reservation_id, item.group, *item.tags.items()
    if item.said[0] != of:
        item.said = of, _raw(item, state)
    return item.said[1]


def _raw(item: MemoryInstance, state: str) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "InstanceId": item.instance_id,
        "InstanceType": item.instance_type,
        "State": {"Name": state},
        "StateReason": {"Code": "" if state in ALIVE else item.reason},
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "PrivateIpAddress": item.private_ip,
        "AmiLaunchIndex": item.launch_index,
        "LaunchTime": datetime.fromtimestamp(item.launched_at, UTC),
        "Tags": [{"Key": name, "Value": value} for name, value in item.tags.items()],
    }
    if item.subnet_id:
        raw["SubnetId"] = item.subnet_id
    if item.market != "on-demand":
        raw["InstanceLifecycle"] = item.market
    if item.reservation_id:
        raw["CapacityReservationId"] = item.reservation_id
    if item.group:
        raw["Placement"]["GroupName"] = item.group
    return raw


def refusal(code: str, action: str) -> ClientError:
    """EC2's refusal of a call, as botocore raises it."""
    details: Any = {
        "Error": {"Code": code, "Message": "as the test wished"},
        "ResponseMetadata": {"HTTPStatusCode": STATUS_OF.get(code, 400)},
    }
    return ClientError(details, action)
