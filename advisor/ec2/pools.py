"""Capacity pools, and which of them are unavailable now.

A pool is (purchase option, instance type, subnet): EC2 runs out of capacity pool by pool. An empty pool is
unavailable for 180 s, doubling to 1,800 s while it stays empty; then one launch may probe it (the numbers of
Karpenter and of Google's autoscaler). So is a pool in which EC2 refuses a launch for a reason that only the
admin can mend. A quota error makes the whole purchase option unavailable for an hour.
Throttling says nothing about capacity and marks no pool (fault F03 in docs/faults.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from advisor.ec2.errors import FailureClass
from advisor.files.state_file import StateFile
from advisor.model.advice import Capacity
from advisor.model.node_classes import ClosedCapacity
from advisor.model.settings_cloud import Ec2Settings

FIRST_PAUSE_SECONDS: Final = 180.0
MAX_PAUSE_SECONDS: Final = 1800.0
QUOTA_PAUSE_SECONDS: Final = 3600.0
NO_CAPACITY: Final = "InsufficientInstanceCapacity"
_PROBE_SECONDS: Final = 60.0  # longest time for which a probe without an answer keeps others away

Rounds = tuple[tuple[str, ...], ...]
"""Names of spot pools in the rounds that are tried one after another, of each round the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The capacity reservation that a launch names.

    Attributes:
        zone: The availability zone of its instances.
        is_block: Whether it is a capacity block, whose launches have the market type ``capacity-block``.
    """

    reservation_id: str
    zone: str
    is_block: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A purchase option, an instance type and a subnet (None: the account's default subnet).

    Reserved instances are launched as on-demand ones; only their bill differs. A launch into a capacity
    reservation names it by `target`.
    """

    option: Capacity
    instance_type: str
    subnet_id: str | None = None
    target: Target | None = None

    @property
    def where(self) -> tuple[str, str | None]:
        """Instance type and subnet."""
        return self.instance_type, self.subnet_id

    @property
    def key(self) -> str:
        """Name of the pool in state files, metrics and logs."""
        reserved = () if self.target is None else (self.target.reservation_id,)
        return "|".join((self.option.value, self.instance_type, self.subnet_id or "default", *reserved))


def pools_for(
    requested: Capacity, settings: Ec2Settings, instance_types: Sequence[str] = ()
) -> tuple[Pool, ...]:
    """Pools to try for a requested capacity, in order; the default type is ``ec2.instance_type``.

    Reserved and spot fall back to on-demand. On-demand never falls back to spot, because its job may be one
    that must not be requeued (rule 1 in docs/designs/0001-the-house.md).
    """
    order = {
        Capacity.RESERVED: (Capacity.RESERVED, Capacity.ON_DEMAND),
        Capacity.SPOT: (Capacity.SPOT, Capacity.ON_DEMAND),
        Capacity.ON_DEMAND: (Capacity.ON_DEMAND,),
    }[requested]
    subnets: Sequence[str | None] = settings.subnet_ids or (None,)
    return tuple(
        Pool(option=option, instance_type=instance_type, subnet_id=subnet)
        for option in order
        for instance_type in instance_types or (settings.instance_type,)
        for subnet in subnets
    )


def instance_types(settings: Ec2Settings) -> tuple[str, ...]:
    """Every instance type that may be launched: ``ec2.instance_type``, then those of the classes."""
    of_classes = (name for each in settings.classes.values() for name in each.instance_types)
    return tuple(dict.fromkeys((settings.instance_type, *of_classes)))


class Pause(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Why and until when a pool or a purchase option is closed.

    Attributes:
        began, until: Epoch seconds.
        pause: Length of the pause, seconds; the next one is twice as long. None for a purchase option.
        code: EC2's error code; None in files of releases that did not keep a pool's.
        least: It is closed for launches of at least this number of nodes at once. A pool, or a quota, without
            room for four nodes may have room for one.
    """

    began: float = msgspec.field(name="set")
    until: float
    pause: float | None = None
    code: str | None = None
    least: int = 1

    def is_running(self, now: float) -> bool:
        """Whether the pause lasts. A clock that was set back by more than a minute ends it (fault F32)."""
        return self.began - 60.0 <= now < self.until


class ClosedPools(msgspec.Struct):
    """The pools and purchase options that are or were closed, by name."""

    pools: dict[str, Pause] = {}
    options: dict[str, Pause] = {}


class UnavailablePools:
    """Pools and purchase options that are unavailable, and until when; stored in a state file.

    A state file that cannot be read counts as empty; at worst EC2 refuses one more launch. `now` is the wall
    clock in epoch seconds. Several threads may call the methods.
    """

    def __init__(self, state: StateFile[ClosedPools], now: Callable[[], float]) -> None:
        self._state = state
        self._now = now
        self._lock = threading.Lock()  # one loop launches while another one looks
        self._closed = state.read()
        self._pools, self._options = self._closed.pools, self._closed.options

    def claim(self, pool: Pool, least: int = 1) -> bool:
        """Whether the caller may launch ``least`` nodes at once.

        After a pause one caller gets True and probes the pool. The probe is not written to disk: after a
        restart another launch may probe it.
        """
        now = self._now()
        with self._lock:
            if _is_unavailable(self._options.get(quota_of(pool)), now, least):
                return False
            entry = self._pools.get(pool.key)
            if entry is None or least < entry.least:
                return True
            if entry.is_running(now):
                return False
            # The probe: others, of so many nodes, wait until it has succeeded or failed.
            entry.least = least
            entry.began, entry.until = now, now + min(_PROBE_SECONDS, entry.pause or FIRST_PAUSE_SECONDS)
            return True

    def mark_unavailable(self, pool: Pool, kind: FailureClass, code: str, least: int = 1) -> bool:
        """Record a launch of ``least`` nodes that EC2 refused.

        Returns:
            True if something has become unavailable by it that the admin is to know: a purchase option, or a
            pool in which only they can mend the error.
        """
        now = self._now()
        is_new = False
        if kind is FailureClass.ADMIN:
            least = 1  # it does not depend on the number of nodes
        with self._lock:
            if kind in (FailureClass.CAPACITY, FailureClass.ADMIN):
                before = self._pools.get(pool.key)
                is_told = kind is FailureClass.ADMIN and before is not None and before.code == code
                is_new = kind is FailureClass.ADMIN and not is_told
                pause = FIRST_PAUSE_SECONDS
                # the probe of a wide job has raised `least`
                if before is not None and (is_told or before.least <= least):
                    pause = min(MAX_PAUSE_SECONDS, 2.0 * (before.pause or FIRST_PAUSE_SECONDS))
                    least = min(least, before.least)
                self._pools[pool.key] = Pause(
                    began=now, until=now + pause, pause=pause, code=code, least=least
                )
            elif kind is FailureClass.QUOTA:
                of_quota = self._options.get(quota_of(pool))
                is_new = not _is_unavailable(of_quota, now, least)
                if of_quota is not None and not is_new:
                    least = of_quota.least
                self._options[quota_of(pool)] = Pause(
                    began=now, until=now + QUOTA_PAUSE_SECONDS, code=code, least=least
                )
            else:
                return False
            self._save()
        return is_new

    def lost_together(self, pool: Pool) -> None:
        """Close a spot pool that has just lost several instances at once: it is short of capacity."""
        self.mark_unavailable(pool, FailureClass.CAPACITY, "LostTogether")

    def mark_available(self, pool: Pool, number: int) -> None:
        """Record a successful launch of ``number`` nodes at once."""
        with self._lock:
            before = self._pools.get(pool.key)
            if before is not None and number >= before.least:
                del self._pools[pool.key]
                self._save()

    def closed(
        self, option: Capacity, settings: Ec2Settings, types: Sequence[str] = ()
    ) -> ClosedCapacity | None:
        """Until when all pools of a purchase option are closed, and why; None while one of them is open.

        It looks at the pools of ``types``, or of all types, and probes none.
        """
        now = self._now()
        every = pools_for(option, settings, types or instance_types(settings))
        with self._lock:
            shut = [self._pause_of(pool, now) for pool in every if pool.option is option]
        pauses = [pause for pause in shut if pause is not None]
        if len(pauses) < len(shut):
            return None
        first = min(pauses, key=lambda pause: pause.until)
        return ClosedCapacity(until=first.until, code=first.code or NO_CAPACITY)

    def unavailable(self) -> dict[str, dict[str, Any]]:
        """Unavailable pools and options, for `advisor pools` and metrics: name to until and code."""
        now = self._now()
        with self._lock:
            return {
                name: {"until": entry.until, "code": entry.code or NO_CAPACITY}
                for name, entry in (*self._pools.items(), *self._options.items())
                if entry.is_running(now) and entry.least == 1
            }

    def _pause_of(self, pool: Pool, now: float) -> Pause | None:
        """The pause that closes a pool for any launch, the longer one of its option's and its own."""
        own = self._pools.get(pool.key)
        of_option = self._options.get(quota_of(pool))
        found = [one for one in (of_option, own) if one is not None and one.least == 1]
        return max((one for one in found if one.is_running(now)), key=lambda one: one.until, default=None)

    def _save(self) -> None:
        self._state.keep(self._closed, "pools.not_saved")


def quota_of(pool: Pool) -> str:
    """Name of the quota that limits a pool: spot, on-demand, or the id of a capacity reservation.

    Reserved instances are launched as on-demand ones.
    """
    if pool.target is not None:
        return pool.target.reservation_id
    return "spot" if pool.option is Capacity.SPOT else "on-demand"


def _is_unavailable(entry: Pause | None, now: float, least: int) -> bool:
    return entry is not None and least >= entry.least and entry.is_running(now)
