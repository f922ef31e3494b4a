"""How many instances each pool can still give: what you say, not what EC2 has."""

from __future__ import annotations

import math

from advisor.testing.ec2.answers import fail
from advisor.testing.ec2.state import EmulatorState, PoolKey


def key_for(state: EmulatorState, wanted: PoolKey) -> PoolKey | None:
    """Most specific pool that was set and that covers `wanted`."""
    kind, zone, market = wanted
    covering = ((kind, zone, market), (kind, zone, "*"), (kind, "*", market), (kind, "*", "*"))
    return next((key for key in covering if key in state.capacity), None)


def left(state: EmulatorState, wanted: PoolKey) -> float:
    """Instances a pool can still give; infinite when nobody set a number."""
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
    """
    room = left(state, wanted)
    if room < low:
        kind, zone, _ = wanted
        text = f"We currently do not have sufficient {kind} capacity in the zone you requested ({zone})."
        fail("InsufficientInstanceCapacity", text)
    number = int(min(high, room))
    key = key_for(state, wanted)
    if key is not None:
        state.capacity[key] -= number
    return number, key


def give_back(state: EmulatorState, key: PoolKey | None) -> None:
    """One instance has ended."""
    if key is not None and key in state.capacity:
        state.capacity[key] += 1
