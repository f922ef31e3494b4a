"""RunInstances as EC2 does it: client tokens, capacity per pool, short answers, spot prices."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.utils import parse_user_data

from advisor.testing.ec2 import capacity
from advisor.testing.ec2.answers import fail
from advisor.testing.ec2.lifecycle import Lifecycle
from advisor.testing.ec2.state import EmulatorState, PoolKey
from advisor.testing.ec2.tokens import Repetition


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
        market = "spot" if options.get("MarketType") == "spot" else "on-demand"
        cards = params.get("NetworkInterfaces") or template.get("NetworkInterfaces") or [{}]
        subnet = params.get("SubnetId") or cards[0].get("SubnetId") or template.get("SubnetId")
        placement = params.get("Placement") or template.get("Placement") or {}
        zone = self._zone(response.ec2_backend, subnet, placement.get("AvailabilityZone"), (kind, market))
        limit = (options.get("SpotOptions") or {}).get("MaxPrice")
        if market == "spot" and is_too_low(self.state, limit, kind, zone):
            fail("SpotMaxPriceTooLow", f"Your Spot request price of {limit} is lower than the minimum.")
        number, _ = capacity.take(self.state, (kind, zone, market), low, high)
        return self.spawn(response, params, template, (kind, zone, market), number, subnet=subnet)

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

    def spawn(
        self,
        response: Any,
        params: Mapping[str, Any],
        template: Mapping[str, Any],
        pool: PoolKey,
        number: int,
        *,
        subnet: str | None,
    ) -> Any:
        """Let moto make the instances (one reservation, all tags) and begin their lives.

        Their capacity must have been taken.
        """
        kind, zone, market = pool
        user_data = params.get("UserData")
        reservation = response.ec2_backend.run_instances(
            params.get("ImageId") or template.get("ImageId") or "",
            number,
            parse_user_data(user_data) if user_data else template.get("UserData"),
            list(params.get("SecurityGroups") or []),
            instance_type=kind,
            is_instance_type_default=False,
            placement=zone,
            region_name=response.region,
            subnet_id=subnet,
            key_name=params.get("KeyName") or template.get("KeyName"),
            security_group_ids=list(params.get("SecurityGroupIds") or []),
            nics=[],
            tags=_tags(template, params),
            launch_template=params.get("LaunchTemplate") or {},
            instance_market_options="spot" if market == "spot" else {},
            client_token=params.get("ClientToken") or str(uuid.uuid4()),
            metadata_options=params.get("MetadataOptions") or template.get("MetadataOptions") or {},
            instance_initiated_shutdown_behavior=params.get("InstanceInitiatedShutdownBehavior"),
            disable_api_termination=bool(params.get("DisableApiTermination")),
        )
        for instance in reservation.instances:
            instance.emulator_pool = capacity.key_for(self.state, pool)
            self._mark_market(instance, pool, params)
            self.lifecycle.born(instance)
        return reservation

    def _mark_market(self, instance: Any, pool: PoolKey, params: Mapping[str, Any]) -> None:
        kind, zone, market = pool
        spot = market == "spot"
        instance.instance_lifecycle = instance.lifecycle = "spot" if spot else None
        if not spot:
            return
        request_id = "sir-" + uuid.uuid4().hex[:8]
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
            "Tags": [
                tag
                for group in params.get("TagSpecifications") or []
                if group.get("ResourceType") == "spot-instances-request"
                for tag in group.get("Tags") or []
            ],
        }


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
