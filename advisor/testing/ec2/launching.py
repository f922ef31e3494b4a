"""RunInstances as EC2 does it: client tokens, capacity per pool, short answers, spot prices."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.utils import parse_user_data

from advisor.testing.ec2 import capacity
from advisor.testing.ec2.answers import fail
from advisor.testing.ec2.lifecycle import Lifecycle
from advisor.testing.ec2.placing import check_group
from advisor.testing.ec2.reserving import named, open_for, seconds_left, take_named
from advisor.testing.ec2.state import EmulatorState, PoolKey
from advisor.testing.ec2.tokens import Repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Instances of one pool whose capacity has been taken.

    Attributes:
        response: moto's request-and-answer object.
        params: Parameters of the call; where they say nothing, those of the launch template.
        held: Capacity reservations of the first instances.
    """

    response: Any
    params: Mapping[str, Any]
    template: Mapping[str, Any]
    pool: PoolKey
    number: int
    subnet: str | None
    held: Sequence[str] = ()


class Launching:
    """Answers RunInstances.

    Args:
        state: Capacity, tokens and prices.
        lifecycle: Gets the new instances.
    """

    def __init__(self, state: EmulatorState, lifecycle: Lifecycle) -> None:
        self.state = state
        self.lifecycle = lifecycle

    def run_instances(self, response: Any) -> Any:
        """Carry out one call; `response` is moto's request-and-answer object."""
        repetition = Repetition(self.state, response, "RunInstances")
        known = repetition.answer()
        if known is not None:
            return ActionResult(known)
        response.error_on_dryrun()
        reservation = self._launch(response)
        repetition.remember(reservation)
        return ActionResult(reservation)

    def _launch(self, response: Any) -> Any:
        params = response.params
        low, high = int(params.get("MinCount", 1)), int(params.get("MaxCount", 1))
        if not 1 <= low <= high:
            fail("InvalidParameterValue", f"Value ({low}) for parameter minCount is invalid.")
        template = template_of(response.ec2_backend, params.get("LaunchTemplate"))
        kind = params.get("InstanceType") or template.get("InstanceType") or "m1.small"
        options = params.get("InstanceMarketOptions") or template.get("InstanceMarketOptions") or {}
        market = options.get("MarketType") or "on-demand"
        cards = params.get("NetworkInterfaces") or template.get("NetworkInterfaces") or [{}]
        subnet = params.get("SubnetId") or cards[0].get("SubnetId") or template.get("SubnetId")
        placement = params.get("Placement") or template.get("Placement") or {}
        zone = self._zone(response.ec2_backend, subnet, placement.get("AvailabilityZone"), (kind, market))
        limit = (options.get("SpotOptions") or {}).get("MaxPrice")
        if market == "spot" and is_too_low(self.state, limit, kind, zone):
            fail("SpotMaxPriceTooLow", f"Your Spot request price of {limit} is lower than the minimum.")
        if params.get("NetworkInterfaces") and (params.get("SubnetId") or params.get("SecurityGroupIds")):
            text = "Network interfaces and an instance-level subnet or security groups are not both allowed."
            fail("InvalidParameterCombination", text)
        if group := placement.get("GroupName"):
            check_group(self.state, group, zone)
        number, held = self._room((kind, zone, market), params, low, high)
        return self.spawn(
            Launch(
                response=response,
                params=params,
                template=template,
                pool=(kind, zone, market),
                number=number,
                subnet=subnet,
                held=held,
            )
        )

    def _room(self, pool: PoolKey, params: Mapping[str, Any], low: int, high: int) -> tuple[int, list[str]]:
        """How many instances there are, and the capacity reservations of the first of them."""
        market = pool[2]
        name = named(params)
        if name is not None:
            block = market == "capacity-block"
            number = take_named(self.state, name, pool, low, high, block=block)
            return number, [name] * number
        found = open_for(self.state, pool) if market == "on-demand" else None
        if found is None:
            return capacity.take(self.state, pool, low, high)[0], []
        inside = min(high, capacity.free_of(self.state, found))
        more = capacity.take(self.state, pool, low - inside, high - inside)[0] if high > inside else 0
        return inside + more, [found["CapacityReservationId"]] * inside

    def _zone(self, backend: Any, subnet: str | None, zone: str | None, wanted: tuple[str, str]) -> str:
        """Zone of the subnet, the one that was named, or the one with most room."""
        if subnet:
            return str(backend.get_subnet(subnet).availability_zone)
        if zone:
            return zone
        kind, market = wanted
        return max(
            zones_of(backend), key=lambda candidate: capacity.left(self.state, (kind, candidate, market))
        )

    def spawn(self, launch: Launch) -> Any:
        """Let moto make the instances (one reservation, all tags) and begin their lives."""
        reservation = _made_by_moto(launch)
        params, held = launch.params, launch.held
        cards = params.get("NetworkInterfaces") or [{}]
        for number_of, instance in enumerate(reservation.instances):
            is_held = number_of < len(held)
            instance.emulator_pool = None if is_held else capacity.key_for(self.state, launch.pool)
            instance.capacity_reservation_id = held[number_of] if is_held else None
            instance.emulator_efa = cards[0].get("InterfaceType") == "efa"
            instance._placement.group_name = (params.get("Placement") or {}).get("GroupName")  # noqa: SLF001 - moto has no setter
            self._mark_market(instance, launch)
            self.lifecycle.born(instance)
            if is_held:
                self._end_with_block(instance.id, held[number_of])
        return reservation

    def _end_with_block(self, instance_id: str, name: str) -> None:
        row = next(each for each in self.state.reservations if each["CapacityReservationId"] == name)
        left = seconds_left(row)
        if left is not None:
            self.state.timers.after(left, lambda: self.lifecycle.end_of_block(instance_id))

    def _mark_market(self, instance: Any, launch: Launch) -> None:
        kind, zone, market = launch.pool
        spot = market == "spot"
        instance.instance_lifecycle = instance.lifecycle = None if market == "on-demand" else market
        if not spot:
            return
        request_id = "sir-" + uuid.uuid4().hex[:8]
        tags = _tags(launch.template, launch.params).get("spot-instances-request", {})
        instance.spot_instance_request_id = request_id
        self.state.spot_requests[request_id] = {
            "SpotInstanceRequestId": request_id,
            "InstanceId": instance.id,
            "State": "active",
            "Type": "one-time",
            "Status": {"Code": "fulfilled", "Message": "Your Spot request is fulfilled."},
            "LaunchedAvailabilityZone": zone,
            "InstanceInterruptionBehavior": "terminate",
            "LaunchSpecification": {"InstanceType": kind},
            "Tags": [{"Key": name, "Value": value} for name, value in tags.items()],
        }


def _made_by_moto(launch: Launch) -> Any:
    """The reservation that moto makes for a launch call."""
    kind, zone, market = launch.pool
    params, template = launch.params, launch.template
    user_data = params.get("UserData")
    return launch.response.ec2_backend.run_instances(
        params.get("ImageId") or template.get("ImageId") or "",
        launch.number,
        parse_user_data(user_data) if user_data else template.get("UserData"),
        list(params.get("SecurityGroups") or []),
        instance_type=kind,
        is_instance_type_default=False,
        placement=zone,
        region_name=launch.response.region,
        subnet_id=launch.subnet,
        key_name=params.get("KeyName") or template.get("KeyName"),
        security_group_ids=list(
            params.get("SecurityGroupIds") or (params.get("NetworkInterfaces") or [{}])[0].get("Groups") or []
        ),
        nics=[],
        tags=_tags(template, params),
        launch_template=params.get("LaunchTemplate") or {},
        instance_market_options="spot" if market == "spot" else {},
        client_token=params.get("ClientToken") or str(uuid.uuid4()),
        metadata_options=params.get("MetadataOptions") or template.get("MetadataOptions") or {},
        instance_initiated_shutdown_behavior=params.get("InstanceInitiatedShutdownBehavior"),
        disable_api_termination=bool(params.get("DisableApiTermination")),
    )


def is_too_low(state: EmulatorState, limit: str | None, kind: str, zone: str) -> bool:
    """Whether a spot price limit lies under the zone's price; no limit never does."""
    price = state.prices.get((kind, zone))
    return bool(limit) and price is not None and float(limit or 0) < price


def zones_of(backend: Any) -> list[str]:
    """Zones that have a subnet."""
    groups = backend.subnets.values()
    return sorted({subnet.availability_zone for group in groups for subnet in group.values()})


def template_of(backend: Any, specification: Any) -> Mapping[str, Any]:
    """Data of a launch template's version; nothing without one."""
    if not specification:
        return {}
    data: Mapping[str, Any] = backend._get_template_from_args(specification).data  # noqa: SLF001
    return data


def _tags(template: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Tags by kind of resource; the call's own win over the template's."""
    tags: dict[str, dict[str, str]] = {}
    for source in (template.get("TagSpecifications") or [], params.get("TagSpecifications") or []):
        for group in source:
            values = {tag["Key"]: tag.get("Value", "") for tag in group.get("Tags", [])}
            tags.setdefault(group.get("ResourceType", "instance"), {}).update(values)
    return tags
