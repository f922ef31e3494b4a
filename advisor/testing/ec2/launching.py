"""RunInstances as EC2 does it: client tokens, capacity per pool, short answers, spot prices."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.utils import parse_user_data

from advisor.testing.ec2.answers import fail
from advisor.testing.ec2.lifecycle import Lifecycle
from advisor.testing.ec2.state import EmulatorState, PoolKey

_TERMINATED_CODE: Final = 48


class Launching:
    """Answers RunInstances.

    Parameters
    ----------
    state : EmulatorState
        Capacity, tokens and prices.
    lifecycle : Lifecycle
        Gets the new instances.
    """

    def __init__(self, state: EmulatorState, lifecycle: Lifecycle) -> None:
        self.state = state
        self.lifecycle = lifecycle

    def run_instances(self, response: Any) -> Any:
        """Carry out one call; `response` is moto's request-and-answer object."""
        params = response.params
        key, digest = _token_of(response)
        if key is not None and key in self.state.tokens:
            return self._again(key, digest)
        response.error_on_dryrun()
        low, high = int(params.get("MinCount", 1)), int(params.get("MaxCount", 1))
        if not 1 <= low <= high:
            fail("InvalidParameterValue", f"Value ({low}) for parameter minCount is invalid.")
        template = _template(response.ec2_backend, params.get("LaunchTemplate"))
        kind = params.get("InstanceType") or template.get("InstanceType") or "m1.small"
        options = params.get("InstanceMarketOptions") or template.get("InstanceMarketOptions") or {}
        market = "spot" if options.get("MarketType") == "spot" else "on-demand"
        subnet = params.get("SubnetId") or template.get("SubnetId")
        zone = self._zone(response.ec2_backend, params, template, subnet, (kind, market))
        self._check_price(kind, zone, market, (options.get("SpotOptions") or {}).get("MaxPrice"))
        number, pool = self._take((kind, zone, market), low, high)
        reservation = self._spawn(response, params, template, (kind, zone, market), number, subnet)
        for instance in reservation.instances:
            instance.emulator_pool = pool
            self._mark_market(instance, kind, zone, market)
            self.lifecycle.born(instance)
        if key is not None:
            self.state.tokens[key] = (digest, reservation)
        return ActionResult(reservation)

    def _again(self, key: tuple[str, ...], digest: str) -> Any:
        """Answer a repeated token: the same instances, or why not."""
        known, reservation = self.state.tokens[key]
        if known != digest:
            text = "Arguments on this idempotent request are inconsistent with an earlier request's."
            fail("IdempotentParameterMismatch", text)
        if all(i._state.code == _TERMINATED_CODE for i in reservation.instances):  # noqa: SLF001
            text = "The client token you have provided is associated with a terminated instance."
            fail("IdempotentInstanceTerminated", text)
        return ActionResult(reservation)

    def _zone(
        self,
        backend: Any,
        params: Mapping[str, Any],
        template: Mapping[str, Any],
        subnet: str | None,
        wanted: tuple[str, str],
    ) -> str:
        if subnet:
            return str(backend.get_subnet(subnet).availability_zone)
        placement = params.get("Placement") or template.get("Placement") or {}
        if placement.get("AvailabilityZone"):
            return str(placement["AvailabilityZone"])
        zones = sorted(
            {subnet.availability_zone for group in backend.subnets.values() for subnet in group.values()}
        )

        def room(zone: str) -> float:
            left = self._left((wanted[0], zone, wanted[1]))[1]
            return float("inf") if left is None else left

        return str(max(zones, key=room))

    def _left(self, wanted: PoolKey) -> tuple[PoolKey | None, int | None]:
        """Most specific pool that was set, and what it has left."""
        kind, zone, market = wanted
        for key in ((kind, zone, market), (kind, zone, "*"), (kind, "*", market), (kind, "*", "*")):
            if key in self.state.capacity:
                return key, self.state.capacity[key]
        return None, self.state.behaviour.default_capacity

    def _take(self, wanted: PoolKey, low: int, high: int) -> tuple[int, PoolKey | None]:
        key, left = self._left(wanted)
        number = high if left is None else min(high, left)
        if number < low:
            kind, zone, _ = wanted
            text = f"We currently do not have sufficient {kind} capacity in the zone you requested ({zone})."
            fail("InsufficientInstanceCapacity", text)
        if key is not None:
            self.state.capacity[key] -= number
        return number, key

    def _check_price(self, kind: str, zone: str, market: str, limit: str | None) -> None:
        price = self.state.prices.get((kind, zone))
        if market == "spot" and limit and price is not None and float(limit) < price:
            text = f"Your Spot request price of {limit} is lower than the minimum required price of {price}."
            fail("SpotMaxPriceTooLow", text)

    def _spawn(
        self,
        response: Any,
        params: Mapping[str, Any],
        template: Mapping[str, Any],
        pool: PoolKey,
        number: int,
        subnet: str | None,
    ) -> Any:
        """Let moto make the instances: one reservation, all tags."""
        kind, zone, market = pool
        tags: dict[str, dict[str, str]] = {}
        for source in (template.get("TagSpecifications") or [], params.get("TagSpecifications") or []):
            for group in source:
                values = {tag["Key"]: tag.get("Value", "") for tag in group.get("Tags", [])}
                tags.setdefault(group.get("ResourceType", "instance"), {}).update(values)
        user_data = params.get("UserData")
        return response.ec2_backend.run_instances(
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
            tags=tags,
            launch_template=params.get("LaunchTemplate") or {},
            instance_market_options="spot" if market == "spot" else {},
            client_token=params.get("ClientToken") or str(uuid.uuid4()),
            metadata_options=params.get("MetadataOptions") or template.get("MetadataOptions") or {},
            instance_initiated_shutdown_behavior=params.get("InstanceInitiatedShutdownBehavior"),
            disable_api_termination=False,
        )

    def _mark_market(self, instance: Any, kind: str, zone: str, market: str) -> None:
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
        }


def _token_of(response: Any) -> tuple[tuple[str, ...] | None, str]:
    """Key of the client token, and a digest of everything it was sent with."""
    token = response.params.get("ClientToken")
    if not token:
        return None, ""
    rest = {name: value for name, value in response.params.items() if name not in ("ClientToken", "DryRun")}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True, default=str).encode()).hexdigest()
    return (response.current_account, response.region, "RunInstances", token), digest


def _template(backend: Any, specification: Any) -> Mapping[str, Any]:
    if not specification:
        return {}
    data: Mapping[str, Any] = backend._get_template_from_args(specification).data  # noqa: SLF001
    return data
