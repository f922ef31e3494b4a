"""Capacity reservations: which a launch names or falls into, what of them is free, and how a block ends.

A loaded row is as DescribeCapacityReservations gives it; ``others`` says how many of its instances others
use, and ``AvailableInstanceCount`` follows from what runs in it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

from advisor.testing.ec2.answers import fail
from advisor.testing.ec2.capacity import free_of, is_block
from advisor.testing.ec2.state import EmulatorState, PoolKey

BLOCK_ENDS_EARLY_SECONDS: Final = 1800.0
"""Before its end, EC2 begins to end the instances of a capacity block."""
_KEPT: Final = {"CapacityReservationId", "InstanceType", "AvailabilityZone", "TotalInstanceCount"}


def as_reservation(row: Mapping[str, Any]) -> dict[str, Any]:
    """A complete row from a loaded one."""
    if missing := _KEPT - row.keys():
        msg = f"a capacity reservation needs {', '.join(sorted(missing))}"
        raise ValueError(msg)
    default = {"InstanceMatchCriteria": "open", "State": "active", "InstancePlatform": "Linux/UNIX"}
    return {**default, "Tenancy": "default", **row}


def with_free(state: EmulatorState, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as it is told."""
    said = {name: value for name, value in row.items() if name != "others"}
    if isinstance(said.get("EndDate"), str):
        said["EndDate"] = dt.datetime.fromisoformat(said["EndDate"])
    return said | {"AvailableInstanceCount": free_of(state, row)}


def named(params: Mapping[str, Any]) -> str | None:
    """The reservation that a launch names."""
    target = (params.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    name = target.get("CapacityReservationId")
    return None if name is None else str(name)


def take_named(state: EmulatorState, name: str, pool: PoolKey, low: int, high: int, *, block: bool) -> int:
    """How many instances a launch gets in the reservation that it names.

    Raises:
        EC2ClientError: There is no such reservation, it is for other instances, or it has fewer than ``low``.
    """
    row = next((each for each in state.reservations if each["CapacityReservationId"] == name), None)
    if row is None or row["State"] != "active":
        fail("InvalidCapacityReservationId.NotFound", f"There is no capacity reservation {name}.")
    if (row["InstanceType"], row["AvailabilityZone"]) != pool[:2] or is_block(row) != block:
        fail("InvalidParameterValue", f"The launch does not match the capacity reservation {name}.")
    free = free_of(state, row)
    if free < low:
        fail("ReservationCapacityExceeded", f"The capacity reservation {name} has {free} instances left.")
    return min(free, high)


def open_for(state: EmulatorState, pool: PoolKey) -> dict[str, Any] | None:
    """An open reservation with room, into which a launch falls that names none."""
    for row in state.reservations:
        matches = (row["InstanceType"], row["AvailabilityZone"]) == pool[:2]
        if matches and row["InstanceMatchCriteria"] == "open" and not is_block(row) and free_of(state, row):
            return row
    return None


def seconds_left(row: Mapping[str, Any]) -> float | None:
    """Seconds until EC2 ends the instances of a capacity block; None: it never does."""
    end = row.get("EndDate")
    if end is None or not is_block(row):
        return None
    moment = dt.datetime.fromisoformat(end) if isinstance(end, str) else end
    left = (moment - dt.datetime.now(dt.UTC)).total_seconds()
    return max(0.0, left - BLOCK_ENDS_EARLY_SECONDS)
