"""CreateFleet (instant): several pools in one call, with instances and errors in one answer.

The strategies are rankings by the prices and capacities that were set; EC2's own signal of how deep a pool is
can't be known. An answer may hold instances *and* errors, with HTTP status 200.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from moto.core.responses import ActionResult

from advisor.testing.ec2 import capacity
from advisor.testing.ec2.answers import fail
from advisor.testing.ec2.launching import Launch, Launching, is_too_low, template_of, zones_of
from advisor.testing.ec2.state import EmulatorState, PoolKey
from advisor.testing.ec2.tokens import Repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """One override of one launch template, in one market."""

    kind: str
    zone: str
    market: str
    subnet: str | None
    weight: float
    price: float
    room: float
    override: Mapping[str, Any]
    template: Mapping[str, Any]
    specification: Mapping[str, Any]
    version: Any

    @property
    def pool(self) -> PoolKey:
        """Where its instances come from."""
        return self.kind, self.zone, self.market

    @property
    def reference(self) -> dict[str, Any]:
        """How answers name it."""
        named = {"LaunchTemplateId": self.version.template.id, "Version": str(self.version.number)}
        overrides = {**self.override, "AvailabilityZone": self.zone}
        return {"LaunchTemplateSpecification": named, "Overrides": overrides}

    def error(self, code: str, message: str) -> dict[str, Any]:
        """An entry of ``Errors``."""
        return {
            "LaunchTemplateAndOverrides": self.reference,
            "Lifecycle": self.market,
            "ErrorCode": code,
            "ErrorMessage": message,
        }


def _priority(candidate: _Candidate) -> float:
    return float(candidate.override.get("Priority", math.inf))


_RANKINGS: Final[Mapping[str, Callable[[_Candidate], Any]]] = {
    "lowest-price": lambda c: c.price,
    "price-capacity-optimized": lambda c: (c.room <= 0, c.price),
    "capacity-optimized": lambda c: -c.room,
    "capacity-optimized-prioritized": lambda c: (c.room <= 0, _priority(c)),
    "prioritized": _priority,
    "diversified": lambda _: 0,
}
_DEFAULT_STRATEGY: Final = {"on-demand": "lowest-price", "spot": "price-capacity-optimized"}


class Fleets:
    """Answers CreateFleet.

    Args:
        state: Capacity, tokens and prices.
        launching: Makes the instances.
    """

    def __init__(self, state: EmulatorState, launching: Launching) -> None:
        self.state = state
        self.launching = launching

    def create_fleet(self, response: Any) -> Any:
        """Carry out one call; `response` is moto's request-and-answer object."""
        params = response.params
        if params.get("Type") != "instant":
            fail("UnsupportedOperation", "this emulator has instant fleets only")
        repetition = Repetition(self.state, response, "CreateFleet")
        known = repetition.answer()
        if known is not None:
            return ActionResult(known)
        answer: dict[str, Any] = {"FleetId": f"fleet-{uuid.uuid4()}", "Instances": [], "Errors": []}
        for market, wanted in _targets(params["TargetCapacitySpecification"]):
            if wanted > 0:
                self._fill(response, market, wanted, answer)
        repetition.remember(answer)
        return ActionResult(answer)

    def _fill(self, response: Any, market: str, wanted: int, answer: dict[str, Any]) -> None:
        options = response.params.get("SpotOptions" if market == "spot" else "OnDemandOptions") or {}
        strategy = options.get("AllocationStrategy") or _DEFAULT_STRATEGY[market]
        if strategy not in _RANKINGS:
            fail("InvalidParameterValue", f"AllocationStrategy {strategy}")
        candidates = sorted(self._candidates(response, market), key=_RANKINGS[strategy])
        share = -(-wanted // max(1, len(candidates))) if strategy == "diversified" else wanted
        plan: list[tuple[_Candidate, int]] = []
        missing = float(wanted)
        for candidate in candidates:
            if missing <= 0:
                break
            if plan and _is_excluded(candidate, plan[0][0], options):
                continue
            number = self._number(candidate, min(math.ceil(missing / candidate.weight), share), plan, answer)
            if number:
                plan.append((candidate, number))
                missing -= number * candidate.weight
        if wanted - missing < float(options.get("MinTargetCapacity", 0)):
            for candidate, number in plan:
                for _ in range(number):
                    capacity.give_back(self.state, capacity.key_for(self.state, candidate.pool))
            return
        for candidate, number in plan:
            answer["Instances"].append(self._spawn(response, candidate, number, answer["FleetId"]))

    def _number(
        self, candidate: _Candidate, needed: int, plan: list[tuple[_Candidate, int]], answer: dict[str, Any]
    ) -> int:
        """Take what one candidate gives; note why it gives fewer than are needed."""
        errors: list[dict[str, Any]] = answer["Errors"]
        if candidate.market == "spot" and is_too_low(
            self.state, candidate.override.get("MaxPrice"), candidate.kind, candidate.zone
        ):
            errors.append(candidate.error("SpotMaxPriceTooLow", "Your price is lower than the minimum."))
            return 0
        planned = [(each.kind, number) for each, number in plan]
        may = capacity.allowed(self.state, candidate.pool, planned)
        if may < needed:
            code = capacity.QUOTA_CODE[candidate.market]
            errors.append(candidate.error(code, "Your quota of vCPUs does not allow it."))
        room = min(may, capacity.left(self.state, candidate.pool))  # now: candidates may share a number
        if room < min(may, needed):
            code = "UnfulfillableCapacity" if candidate.market == "spot" else "InsufficientInstanceCapacity"
            text = f"There is not enough {candidate.kind} capacity in {candidate.zone}."
            errors.append(candidate.error(code, text))
        if room <= 0:
            return 0
        return capacity.take(self.state, candidate.pool, 1, int(min(needed, room)))[0]

    def _candidates(self, response: Any, market: str) -> Iterator[_Candidate]:
        backend = response.ec2_backend
        for config in response.params["LaunchTemplateConfigs"]:
            specification = config["LaunchTemplateSpecification"]
            template = template_of(backend, specification)
            version = backend._get_template_from_args(specification)  # noqa: SLF001
            for override in config.get("Overrides") or [{}]:
                kind = str(override.get("InstanceType") or template.get("InstanceType"))
                weight = float(override.get("WeightedCapacity") or 1)
                for subnet in (override.get("SubnetId") or "").split(","):
                    zone = str(
                        backend.get_subnet(subnet).availability_zone
                        if subnet
                        else override.get("AvailabilityZone") or zones_of(backend)[0]
                    )
                    price = self.state.prices.get((kind, zone if market == "spot" else None), math.inf)
                    yield _Candidate(
                        kind=kind,
                        zone=zone,
                        market=market,
                        subnet=subnet or None,
                        weight=weight,
                        price=price / weight,
                        room=capacity.left(self.state, (kind, zone, market)),
                        override=override,
                        template=template,
                        specification=specification,
                        version=version,
                    )

    def _spawn(self, response: Any, candidate: _Candidate, number: int, fleet_id: str) -> dict[str, Any]:
        own = {"ResourceType": "instance", "Tags": [{"Key": "aws:ec2:fleet-id", "Value": fleet_id}]}
        given = response.params.get("TagSpecifications") or []
        params = {
            "ImageId": candidate.override.get("ImageId"),
            "LaunchTemplate": candidate.specification,
            "TagSpecifications": [own, *(t for t in given if t.get("ResourceType") != "fleet")],
        }
        reservation = self.launching.spawn(
            Launch(
                response=response,
                params=params,
                template=candidate.template,
                pool=candidate.pool,
                number=number,
                subnet=candidate.subnet,
            )
        )
        return {
            "Lifecycle": candidate.market,
            "InstanceIds": [instance.id for instance in reservation.instances],
            "InstanceType": candidate.kind,
            "LaunchTemplateAndOverrides": candidate.reference,
        }


def _targets(specification: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Capacity wanted of each market."""
    on_demand = int(specification.get("OnDemandTargetCapacity", 0))
    spot = int(specification.get("SpotTargetCapacity", 0))
    rest = int(specification["TotalTargetCapacity"]) - on_demand - spot
    if specification.get("DefaultTargetCapacityType", "on-demand") == "spot":
        return [("on-demand", on_demand), ("spot", spot + rest)]
    return [("on-demand", on_demand + rest), ("spot", spot)]


def _is_excluded(candidate: _Candidate, first: _Candidate, options: Mapping[str, Any]) -> bool:
    """Whether a fleet that wants one type or one zone only has chosen another already."""
    if options.get("SingleInstanceType") and candidate.kind != first.kind:
        return True
    return bool(options.get("SingleAvailabilityZone")) and candidate.zone != first.zone
