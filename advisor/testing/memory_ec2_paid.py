"""What the account of a `MemoryEc2` has paid for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from advisor.testing.memory_ec2_records import MemoryInstance, refusal

_BLOCK_ENDS_EARLY_SECONDS = 1800.0


@dataclass(slots=True, kw_only=True)
class MemoryReservation:
    """One capacity reservation.

    Attributes:
        others: Its instances that others use.
        ends_at: Epoch seconds; None: it does not end.
        is_open: Whether launches that name none fall into it.
    """

    reservation_id: str
    instance_type: str
    total: int
    zone: str = "us-east-1a"
    others: int = 0
    ends_at: float | None = None
    is_block: bool = False
    is_open: bool = True
    tags: Mapping[str, str] = field(default_factory=dict)

    def free(self, alive: Sequence[MemoryInstance]) -> int:
        """Free instances."""
        inside = sum(item.reservation_id == self.reservation_id for item in alive)
        return max(0, self.total - self.others - inside)

    def as_raw(self, alive: Sequence[MemoryInstance]) -> dict[str, Any]:
        """As DescribeCapacityReservations says it."""
        raw: dict[str, Any] = {
            "CapacityReservationId": self.reservation_id,
            "InstanceType": self.instance_type,
            "AvailabilityZone": self.zone,
            "InstancePlatform": "Linux/UNIX",
            "Tenancy": "default",
            "TotalInstanceCount": self.total,
            "AvailableInstanceCount": self.free(alive),
            "State": "active",
            "InstanceMatchCriteria": "open" if self.is_open else "targeted",
            "ReservationType": "capacity-block" if self.is_block else "default",
            "Tags": [{"Key": name, "Value": value} for name, value in self.tags.items()],
        }
        if self.ends_at is not None:
            raw["EndDate"] = datetime.fromtimestamp(self.ends_at, UTC)
        return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How many instances of a launch are in a reservation, and when EC2 ends them."""

    number: int = 0
    reservation_id: str = ""
    ends_at: float | None = None
    is_named: bool = False


@dataclass(slots=True)
class MemoryPaid:
    """Purchases of one account.

    Attributes:
        reserved: Rows of DescribeReservedInstances.
        plans: Rows of DescribeSavingsPlans, with ``rates`` by instance type.
        groups: Names of placement groups.
    """

    reservations: list[MemoryReservation] = field(default_factory=list)
    reserved: list[dict[str, Any]] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)

    def take(
        self, request: Mapping[str, Any], market: str, least: int, most: int, alive: Sequence[MemoryInstance]
    ) -> Held:
        """What a launch gets of the reservation that it names, else of an open one."""
        kind = request["InstanceType"]
        named = request.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
        name = named.get("CapacityReservationId")
        if name is None:
            fitting = (each for each in self.reservations if each.is_open and each.instance_type == kind)
            found = next((each for each in fitting if market == "on-demand" and each.free(alive)), None)
            if found is None:
                return Held()
            return Held(number=min(most, found.free(alive)), reservation_id=found.reservation_id)
        one = next((each for each in self.reservations if each.reservation_id == name), None)
        if one is None:
            raise refusal("InvalidCapacityReservationId.NotFound", "run_instances")
        if one.instance_type != kind or one.is_block != (market == "capacity-block"):
            raise refusal("InvalidParameterValue", "run_instances")
        if one.free(alive) < least:
            raise refusal("ReservationCapacityExceeded", "run_instances")
        over = one.ends_at - _BLOCK_ENDS_EARLY_SECONDS if one.is_block and one.ends_at is not None else None
        return Held(number=min(most, one.free(alive)), reservation_id=name, ends_at=over, is_named=True)

    def make_group(self, name: str) -> dict[str, Any]:
        """CreatePlacementGroup."""
        if name in self.groups:
            raise refusal("InvalidPlacementGroup.Duplicate", "create_placement_group")
        self.groups.add(name)
        return {"PlacementGroup": {"GroupName": name}}

    def rates(self, plan: str, types: Sequence[str]) -> dict[str, Any]:
        """DescribeSavingsPlanRates."""
        known = next(row["rates"] for row in self.plans if row["savingsPlanId"] == plan)
        return {
            "savingsPlanId": plan,
            "searchResults": [
                {"rate": rate, "unit": "Hrs", "properties": [{"name": "instanceType", "value": kind}]}
                for kind, rate in known.items()
                if kind in types
            ],
        }
