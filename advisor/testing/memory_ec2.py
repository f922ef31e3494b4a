"""EC2 in memory: thousands of whole stories a minute, where the HTTP emulator tells dozens.

It answers the calls that `advisor.ec2` makes, as EC2 does where it matters to them: client tokens, launch
indices, instances that are listed late and in a state of a while ago, empty pools, throttling, answers that
are lost on the way, spot instances that are taken back; where it has a market, also room, prices, stock-outs
and quotas. Arguments and filters that it does not know are refused, so that a misspelt one fails a test. What
needs no speed is better tested against `advisor.testing.ec2`, which speaks HTTP.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.exceptions import ClientError, ConnectionClosedError, ConnectTimeoutError
from botocore.parsers import ResponseParserError

from advisor.ec2.tags import node_of
from advisor.testing.memory_ec2_clients import client_of
from advisor.testing.memory_ec2_fleets import MemoryFleets
from advisor.testing.memory_ec2_market import NOTICE_SECONDS, QUOTA_CODE, SPOT, Ec2Market
from advisor.testing.memory_ec2_paid import MemoryPaid
from advisor.testing.memory_ec2_records import (
    ALIVE,
    Ec2Times,
    MemoryInstance,
    as_raw,
    as_spot_request,
    fits,
    refusal,
    subnet_of,
    tags_of,
)

__all__ = ["ALIVE", "Ec2Times", "MemoryEc2", "MemoryInstance"]

_RUN_KEYS: Final = frozenset(
    {
        "ImageId", "InstanceType", "MinCount", "MaxCount", "ClientToken", "TagSpecifications", "KeyName",
        "MetadataOptions", "InstanceInitiatedShutdownBehavior", "SubnetId", "SecurityGroupIds", "UserData",
        "IamInstanceProfile", "InstanceMarketOptions", "CapacityReservationSpecification", "Placement",
        "NetworkInterfaces",
    }
)  # fmt: skip
_REFUSALS: Final = frozenset(
    {
        "InsufficientInstanceCapacity", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded",
        "InsufficientFreeAddressesInSubnet", "UnfulfillableCapacity", "SpotMaxPriceTooLow",
    }
)  # fmt: skip
_TOKEN_SECONDS: Final = 86_400.0  # EC2 knows a token for a day after its instances
_LOST: Final = "answer-lost"
_CUT: Final = "never-arrives"
_HTML: Final = "html"


@dataclass
class MemoryEc2:
    """One account. `connect` stands in for `advisor.ec2.clients.client`.

    Attributes:
        now: Epoch seconds.
        times: How long things take.
        market: What there is to buy, and at which price.
        room: Most instances that may be alive in a market, or (``spot|c5.xlarge``) of a type in it; no entry:
            any number.
        instances: All there ever were, by id.
        notices: Spot instances that EC2 has said it will take back.
        paid: Capacity reservations, reserved instances and Savings Plans.
        refused: Launches that were refused, by code.
        observe: Told each call as ``(action, stage)``, stage ``before`` or ``after``; it may raise.
        launched, terminating: Told of each new instance (one of a fleet: when it is named), and of each that
            a call ends; they may raise.
        forgotten: Told of each instance that no call lists any more and that goes; None: all are kept.
        page_size: Launches on a page of DescribeInstances.
        is_away: No call arrives.
    """

    now: Callable[[], float]
    times: Ec2Times = field(default_factory=Ec2Times)
    market: Ec2Market = field(default_factory=Ec2Market)
    room: dict[str, int] = field(default_factory=dict)
    paid: MemoryPaid = field(default_factory=MemoryPaid)
    instances: dict[str, MemoryInstance] = field(default_factory=dict)
    observe: Callable[[str, str], None] = lambda _action, _stage: None
    launched: Callable[[MemoryInstance], None] = lambda _instance: None
    terminating: Callable[[MemoryInstance], None] = lambda _instance: None
    forgotten: Callable[[MemoryInstance], None] | None = None
    page_size: int = 2
    is_away: bool = False

    def __post_init__(self) -> None:
        self._number = itertools.count(1)
        self._tokens: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._ended: deque[tuple[float, str]] = deque()  # since when no instance of a token is left
        self._faults: dict[str, deque[str]] = {}
        self._messages: dict[str, str] = {}
        self._lots = random.Random(1)  # noqa: S311 -- which spot instances are taken back
        self.fleets = MemoryFleets(self)
        self.notices = 0
        self.refused: Counter[str] = Counter()

    def connect(self, service: str, _settings: object = None, _config: object = None) -> Any:
        """Client of one service."""
        return client_of(self, service)

    # ------------------------------------------------------------------ what a test does

    def fail(self, action: str, how: str, times: int = 1) -> None:
        """Let the next calls of an action fail.

        Args:
            action: As in boto3 (``run_instances``); ``next_page``: pages of a list after its first.
            how: An error code of EC2, ``answer-lost`` (done, but the answer is lost), ``never-arrives``,
                ``html``.
            times: How many calls.
        """
        self._faults.setdefault(action, deque()).extend([how] * times)

    def heal(self) -> None:
        """Forget all faults, empty pools and lag."""
        self._faults.clear()
        self.is_away = False
        self.room.clear()
        self.times.lag = 0.0

    def alive(self) -> list[MemoryInstance]:
        """Instances that are pending or running now, in truth."""
        now = self.now()
        return [item for item in self.instances.values() if item.state_at(now) in ALIVE]

    def reclaim(self, instance_id: str, notice_seconds: float, *, by_message: bool = True) -> None:
        """Take a spot instance back after a notice; the message of it may be lost."""
        item = self.instances[instance_id]
        if item.ends_at is None:
            item.ends_at = self.now() + notice_seconds
            item.spot_status = "marked-for-termination"
            self.notices += 1
            if by_message:
                self._tell(item, "EC2 Spot Instance Interruption Warning")

    def reclaim_pool(self, kind: str, subnet_id: str | None, notice_seconds: float) -> list[str]:
        """Take all living spot instances of a type in a subnet back together; returns their ids."""
        there = [
            item.instance_id
            for item in self.alive()
            if (item.market, item.instance_type, item.subnet_id) == ("spot", kind, subnet_id)
        ]
        for instance_id in there:
            self.reclaim(instance_id, notice_seconds)
        return there

    def recommend_leaving(self, instance_id: str) -> None:
        """Say that an instance is more likely than others to be taken back."""
        self._tell(self.instances[instance_id], "EC2 Instance Rebalance Recommendation")

    def stop(self, instance_id: str) -> None:
        """A person stops an instance by hand (F21)."""
        item = self.instances[instance_id]
        if item.state_at(self.now()) in ALIVE:
            item.history = [(t, s) for t, s in item.history if t <= self.now()] + [(self.now(), "stopped")]
            item.reason = "Client.UserInitiatedShutdown"

    def advance(self) -> None:
        """Do what is due."""
        now = self.now()
        self._take_back(now)
        for item in self.instances.values():
            if item.ends_at is not None and item.ends_at <= now and item.state_at(now) in ALIVE:
                is_spot = item.market == SPOT
                self._end(item, "Server.SpotInstanceTermination" if is_spot else "Server.CapacityBlockEnded")
                item.spot_status = "instance-terminated-no-capacity" if is_spot else ""
                self._tell(item, "EC2 Instance State-change Notification", state="terminated")
        if self.forgotten is not None:
            for item in [each for each in self.instances.values() if self._is_forgotten(each)]:
                self.forgotten(item)
                del self.instances[item.instance_id]
                if not any(name in self.instances for name in self._tokens.get(item.token, ("", ()))[1]):
                    self._ended.append((now, item.token))
            while self._ended and self._ended[0][0] <= now - _TOKEN_SECONDS:
                self._tokens.pop(self._ended.popleft()[1], None)

    def next_event(self) -> float:
        """When EC2 next takes a spot instance back, or may say that it will, epoch seconds."""
        spot = [item for item in self.alive() if item.market == SPOT]
        ends = [item.ends_at for item in spot if item.ends_at is not None]
        if spot:
            seen = self.now() + NOTICE_SECONDS
            ends.append(max(self.market.next_room(seen), seen + 1.0) - NOTICE_SECONDS)
        return min(ends, default=math.inf)

    # ------------------------------------------------------------------ what EC2 does

    def _take_back(self, now: float) -> None:
        """Warn the spot instances for which there will be no room when a notice is over."""
        if not self.market.spot_rooms:
            return
        staying = [item for item in self.alive() if item.market == SPOT and item.ends_at is None]
        excess = len(staying) - int(self.market.spot_room(now + NOTICE_SECONDS))
        for item in self._lots.sample(staying, max(0, excess)):
            self.reclaim(item.instance_id, NOTICE_SECONDS)

    def call(self, action: str, do: Callable[[], Any], *, token: str = "") -> Any:
        """Carry out one call, or let it fail as was asked.

        A launch that was carried out is not refused when it is asked for again: EC2 knows its token.
        """
        self.observe(action, "before")
        faults = self._faults.get(action)
        how = faults.popleft() if faults else ""
        if how == _CUT or self.is_away:
            raise ConnectTimeoutError(endpoint_url="memory")
        if how == _HTML:
            raise ResponseParserError("<html>")
        if how in _REFUSALS and token in self._tokens:
            how = ""
        if how and how != _LOST:
            raise refusal(how, action)
        answer = do()
        self.observe(action, "after")
        if how == _LOST:
            raise ConnectionClosedError(endpoint_url="memory")
        return answer

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """RunInstances."""
        if unknown := request.keys() - _RUN_KEYS:
            msg = f"RunInstances knows no {sorted(unknown)}"
            raise TypeError(msg)
        token, digest = request["ClientToken"], json.dumps(request, sort_keys=True)
        if token in self._tokens:
            return self._again(token, digest)
        market = request.get("InstanceMarketOptions", {}).get("MarketType", "on-demand")
        least, most = request["MinCount"], request["MaxCount"]
        held = self.paid.take(request, market, least, most, self.alive())
        number = held.number
        if not held.is_named and number < most:
            number += self._launchable(market, request["InstanceType"], max(0, least - number), most - number)
        said = request["TagSpecifications"]
        made = [self._make(request, token, market, index, said) for index in range(number)]
        for item in made[: held.number]:
            item.reservation_id = held.reservation_id
            item.ends_at = held.ends_at
        self._tokens[token] = digest, tuple(item.instance_id for item in made)
        for item in made:
            self.launched(item)
        return {"Instances": [as_raw(item, "pending") for item in made]}

    def available(self, market: str, kind: str, most: int) -> tuple[int, str]:
        """How many instances of a type there are, up to ``most``; why there are fewer, as a code."""
        alive = [item for item in self.alive() if item.market == market]
        allowed = self.market.quota(market) - len(alive)
        of_kind = self.room.get(f"{market}|{kind}", math.inf) - sum(i.instance_type == kind for i in alive)
        room = min(self.room.get(market, math.inf), self.market.room(market, self.now())) - len(alive)
        number = max(0, int(min(most, allowed, room, of_kind)))
        if number == most:
            return number, ""
        return number, QUOTA_CODE[market] if allowed <= number else "UnfulfillableCapacity"

    def make_of_fleet(
        self, request: Mapping[str, Any], override: Mapping[str, Any], number: int
    ) -> list[MemoryInstance]:
        """Launch spot instances of one type of a fleet, whose tags name no node."""
        (config,), token = request["LaunchTemplateConfigs"], request["ClientToken"]
        template = self.fleets.templates[config["LaunchTemplateSpecification"]["LaunchTemplateName"]]
        said = [*template.get("TagSpecifications", ()), *request["TagSpecifications"]]
        return [self._make(override, token, SPOT, index, said) for index in range(number)]

    def _launchable(self, market: str, kind: str, least: int, most: int) -> int:
        """How many instances a launch gets, up to ``most``; fewer than ``least`` are refused."""
        number, code = self.available(market, kind, most)
        if number < least:
            is_quota = code == QUOTA_CODE[market]
            raise self._refused(code if is_quota else "InsufficientInstanceCapacity")
        return number

    def _refused(self, code: str) -> ClientError:
        self.refused[code] += 1
        return refusal(code, "run_instances")

    def _again(self, token: str, digest: str) -> dict[str, Any]:
        before, ids = self._tokens[token]
        if before != digest:
            raise refusal("IdempotentParameterMismatch", "run_instances")
        found = [(one, one.state_at(self.now()) or "") for name in ids if (one := self.instances.get(name))]
        if all(state == "terminated" for _, state in found):
            raise refusal("IdempotentInstanceTerminated", "run_instances")
        return {"Instances": [as_raw(item, state) for item, state in found]}

    def _make(
        self, request: Mapping[str, Any], token: str, market: str, index: int, said: list[dict[str, Any]]
    ) -> MemoryInstance:
        now, number = self.now(), next(self._number)
        item = MemoryInstance(
            instance_id=f"i-{number:017x}",
            instance_type=request["InstanceType"],
            market=market,
            private_ip=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            token=token,
            subnet_id=subnet_of(request),
            group=request.get("Placement", {}).get("GroupName", ""),
            launch_index=index,
            tags=tags_of(said, "instance"),
            spot_status="fulfilled" if market == SPOT else "",
            spot_tags=tags_of(said, "spot-instances-request"),
            history=[(now, "pending"), (now + self.times.pending, "running")],
        )
        self.instances[item.instance_id] = item
        return item

    def _all_of(self, ids: list[str], action: str) -> list[MemoryInstance]:
        """Instances by id: a call on several is carried out on all or on none."""
        found = [self.instances.get(name) for name in ids]
        known = [item for item in found if item is not None and self._seen(item) is not None]
        if len(known) < len(ids):
            raise refusal("InvalidInstanceID.NotFound", action)
        return known

    def terminate(self, ids: list[str]) -> dict[str, Any]:
        """TerminateInstances."""
        for item in self._all_of(ids, "terminate_instances"):
            if item.state_at(self.now()) not in ("shutting-down", "terminated"):
                self.terminating(item)
                self._end(item, "Client.UserInitiatedShutdown")
                item.spot_status = item.spot_status and "instance-terminated-by-user"
        return {}

    def tag(self, ids: list[str], tags: list[dict[str, str]]) -> dict[str, Any]:
        """CreateTags."""
        for item in self._all_of(ids, "create_tags"):
            was_named = node_of(item.tags, item.launch_index) is not None
            item.tags |= {tag["Key"]: tag["Value"] for tag in tags}
            if not was_named and item.state_at(self.now()) in ALIVE:
                self.launched(item)
        return {}

    def pages(self, filters: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """DescribeInstances: some launches on each page, as they were `Ec2Times.lag` ago."""
        launches: dict[str, list[Mapping[str, Any]]] = {}

        def look() -> None:
            for item in self.instances.values():
                state = self._seen(item)
                if state is not None and fits(item.tags, filters, {"instance-state-name": state}):
                    launches.setdefault(item.token, []).append(as_raw(item, state))

        self.call("describe_instances", look)
        some = [{"Instances": found} for found in launches.values()]
        for start in range(0, len(some), self.page_size) or [0]:
            if start:
                self.call("next_page", lambda: None)
            yield {"Reservations": some[start : start + self.page_size]}

    def spot_requests(self, filters: list[dict[str, Any]]) -> dict[str, Any]:
        """DescribeSpotInstanceRequests."""
        return {
            "SpotInstanceRequests": [
                as_spot_request(item)
                for item in self.instances.values()
                if item.spot_status and self._seen(item) is not None
                and fits(item.spot_tags, filters, {"status-code": item.spot_status})
            ]
        }  # fmt: skip

    def receive(self, number: int) -> dict[str, Any]:
        """ReceiveMessage."""
        some = list(self._messages.items())[:number]
        return {"Messages": [{"ReceiptHandle": name, "Body": body} for name, body in some]}

    def delete(self, receipts: list[str]) -> dict[str, Any]:
        """DeleteMessageBatch."""
        for name in receipts:
            self._messages.pop(name, None)
        return {"Failed": []}

    def _seen(self, item: MemoryInstance) -> str | None:
        """State as calls see it: of a while ago; None before it is known and after it was forgotten."""
        then = self.now() - self.times.lag
        state = item.state_at(then)
        return None if state == "terminated" and self._is_forgotten(item) else state

    def _is_forgotten(self, item: MemoryInstance) -> bool:
        ended, state = item.history[-1]
        return state == "terminated" and self.now() - self.times.lag - ended > self.times.purge

    def _end(self, item: MemoryInstance, reason: str) -> None:
        now = self.now()
        item.history = [(since, state) for since, state in item.history if since <= now]
        item.history += [(now, "shutting-down"), (now + self.times.shutdown, "terminated")]
        item.reason = reason

    def _tell(self, item: MemoryInstance, kind: str, **detail: str) -> None:
        body = {"detail-type": kind, "detail": {"instance-id": item.instance_id, **detail}}
        self._messages[f"m-{next(self._number)}"] = json.dumps(body)
