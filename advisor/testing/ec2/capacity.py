"""What pools can still give and the account may still have: what you say, not what EC2 has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from moto.ec2.models.instance_types import INSTANCE_TYPES

from advisor.testing.ec2.answers import fail
from advisor.testing.ec2.state import EmulatorState, PoolKey

QUOTA_CODE: Final = {"spot": "MaxSpotInstanceCountExceeded", "on-demand": "VcpuLimitExceeded"}
STANDARD_QUOTAS: Final = {"spot": "L-34B43A08", "on-demand": "L-1216C47A"}
"""Codes of the quotas of the standard families; here they hold for all types."""
_ALIVE: Final = ("pending", "running")


def allowed(state: EmulatorState, wanted: PoolKey, planned: Iterable[tuple[str, int]] = ()) -> float:
    """Instances of a type that the account may still start in a market; infinite without a quota.

    `planned`: types and numbers of instances that the same call is about to start.
    """
    kind, _, market = wanted
    if market not in state.quotas:
        return math.inf
    alive = [item for item in state.instances.values() if item.state in _ALIVE]
    used = sum(_vcpus(i.instance_type) for i in alive if (i.lifecycle or "on-demand") == market)
    if market == "on-demand":  # what reservations hold free counts as well
        used += sum(
            _vcpus(row["InstanceType"]) * free_of(state, row)
            for row in state.reservations
            if not is_block(row)
        )
    used += sum(_vcpus(other) * number for other, number in planned)
    return max(0, state.quotas[market] - used) // _vcpus(kind)


def is_block(row: Mapping[str, Any]) -> bool:
    """Whether a capacity reservation is a capacity block."""
    return bool(row.get("ReservationType") == "capacity-block")


def free_of(state: EmulatorState, row: Mapping[str, Any]) -> int:
    """Free instances of a capacity reservation."""
    name = row["CapacityReservationId"]
    inside: int = sum(
        item.state in _ALIVE and getattr(item, "capacity_reservation_id", None) == name
        for item in state.instances.values()
    )
    return max(0, int(row["TotalInstanceCount"]) - inside - int(row.get("others", 0)))


def _vcpus(kind: str) -> int:
    return int(INSTANCE_TYPES[kind]["VCpuInfo"]["DefaultVCpus"])


def key_for(state: EmulatorState, wanted: PoolKey) -> PoolKey | None:
    """Most specific pool that was set and that covers `wanted`."""
    kind, zone, market = wanted
    covering = ((kind, zone, market), (kind, zone, "*"), (kind, "*", market), (kind, "*", "*"))
    return next((key for key in covering if key in state.capacity), None)


def left(state: EmulatorState, wanted: PoolKey) -> float:
    """Instances a pool can still give; infinite where no number was set."""
    key = key_for(state, wanted)
    number = state.behaviour.default_capacity if key is None else state.capacity[key]
    return math.inf if number is None else number


def take(state: EmulatorState, wanted: PoolKey, low: int, high: int) -> tuple[int, PoolKey | None]:
    """Take as many of `high` as there are, at least `low`.

    Returns:
        number: Instances taken.
        key: Where they go back to when they end.

    Raises:
        ServerFault: InsufficientInstanceCapacity: fewer than `low`.
        EC2ClientError: The account's quota allows fewer than `low`.
    """
    may = allowed(state, wanted)
    if may < low:
        fail(
            QUOTA_CODE[wanted[2]],
            f"You have requested more {wanted[2]} vCPU capacity than your current limit.",
        )
    room = left(state, wanted)
    if room < low:
        kind, zone, _ = wanted
        text = f"We currently do not have sufficient {kind} capacity in the zone you requested ({zone})."
        fail("InsufficientInstanceCapacity", text)
    number = int(min(high, room, may))
    key = key_for(state, wanted)
    if key is not None:
        state.capacity[key] -= number
    return number, key


def give_back(state: EmulatorState, key: PoolKey | None) -> None:
    """One instance has ended."""
    if key is not None and key in state.capacity:
        state.capacity[key] += 1
