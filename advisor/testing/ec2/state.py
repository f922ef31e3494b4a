"""Everything the emulator knows beyond moto: one object, one lock."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from advisor.testing.ec2.faults import FaultRules

PoolKey = tuple[str, str, str]
"""Instance type, availability zone, ``spot`` or ``on-demand``; zone and market may be ``*``."""


@dataclass(slots=True)
class Behaviour:
    """How long things take.

    Attributes:
        pending_s, shutdown_s: Seconds an instance stays pending, and shutting down.
        visible_after_s: Seconds until a launched instance shows in Describe calls (F06).
        address_after_s: Seconds until an instance's private address is told (F06).
        purge_s: Seconds until a terminated instance is no longer listed.
        time_scale: Multiplies all of them and the notice of a reclaim.
        reuse_addresses: Whether a new instance gets the private address of the one that ended longest ago
            (F07).
        default_capacity: Instances that a pool without a setting may give; None: as many as asked for.
    """

    pending_s: float = 0.0
    shutdown_s: float = 0.0
    visible_after_s: float = 0.0
    address_after_s: float = 0.0
    purge_s: float = 3600.0
    time_scale: float = 1.0
    reuse_addresses: bool = False
    default_capacity: int | None = None


class Timers:
    """Functions to be called later, by one thread, under the emulator's lock."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._wake = threading.Condition()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def after(self, seconds: float, function: Callable[[], None]) -> None:
        """Call `function` so many seconds from now."""
        with self._wake:
            heapq.heappush(self._heap, (time.monotonic() + seconds, next(self._number), function))
            self._wake.notify()

    def clear(self) -> None:
        """Forget everything that was to be called."""
        with self._wake:
            self._heap.clear()

    def run_forever(self) -> None:
        """Body of the timer thread."""
        while True:
            with self._wake:
                while not self._heap or self._heap[0][0] > time.monotonic():
                    left = self._heap[0][0] - time.monotonic() if self._heap else None
                    self._wake.wait(left)
                function = heapq.heappop(self._heap)[2]
            with self._lock:
                function()


@dataclass(slots=True)
class EmulatorState:
    """The emulator's own memory.

    Attributes:
        capacity: Instances each pool can still give.
        quotas: Virtual CPUs that may be alive in a market; no entry: any number.
        tokens: Client tokens seen: key to (digest of the request, answer).
        prices: Spot price of a zone; None: on-demand.
        history, reserved, reservations, products, savings: Rows of DescribeSpotPriceHistory,
            DescribeReservedInstances, DescribeCapacityReservations, GetProducts and DescribeSavingsPlans.
        groups: Placement groups: name to strategy.
        placement_scores: Answers of GetSpotPlacementScores; 5 where nothing is said.
        free_addresses: Private addresses of ended instances, to be given again.
        spot_requests: Spot requests by id.
        instances: moto's instance objects by id.
        calls: Every request: service, action, client token, whether a fault was injected.
        resets: How often the account was emptied.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    behaviour: Behaviour = field(default_factory=Behaviour)
    capacity: dict[PoolKey, int] = field(default_factory=dict)
    quotas: dict[str, int] = field(default_factory=dict)
    tokens: dict[tuple[str, ...], tuple[str, Any]] = field(default_factory=dict)
    prices: dict[tuple[str, str | None], float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    reserved: list[dict[str, Any]] = field(default_factory=list)
    reservations: list[dict[str, Any]] = field(default_factory=list)
    products: list[dict[str, Any]] = field(default_factory=list)
    savings: list[dict[str, Any]] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)
    placement_scores: dict[str, int] = field(default_factory=dict)
    free_addresses: list[str] = field(default_factory=list)
    spot_requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    instances: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    faults: FaultRules = field(default_factory=FaultRules)
    timers: Timers = field(init=False)
    resets: int = 0

    def __post_init__(self) -> None:
        self.timers = Timers(self.lock)

    def scaled(self, seconds: float) -> float:
        """Seconds of the real thing in seconds of the emulator."""
        return seconds * self.behaviour.time_scale

    def forget_everything(self) -> None:
        """Back to an empty account."""
        self.resets += 1
        tables: list[dict[Any, Any] | list[Any]] = [
            self.capacity, self.quotas, self.tokens, self.prices, self.history, self.reserved,
            self.reservations, self.products, self.savings, self.groups, self.placement_scores,
            self.free_addresses, self.spot_requests, self.instances, self.calls,
        ]  # fmt: skip
        for table in tables:
            table.clear()
        self.behaviour = Behaviour()
        self.faults.replace([])
        self.timers.clear()
