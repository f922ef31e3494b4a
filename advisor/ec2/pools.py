"""Capacity pools, and which of them are unavailable now.

A pool is (purchase option, instance type, subnet): EC2 runs out of capacity pool by pool. An empty pool is
unavailable for 180 s, doubling to 1,800 s while it stays empty; then one launch may probe it (Karpenter's and
Google's numbers). A quota error makes the whole purchase option unavailable. Throttling says nothing about
capacity and marks no pool (F03).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from advisor.ec2.errors import FailureClass
from advisor.files.state_file import StateFile
from advisor.model.advice import Capacity
from advisor.model.settings import Ec2Settings

FIRST_PAUSE_SECONDS: Final = 180.0
MAX_PAUSE_SECONDS: Final = 1800.0
QUOTA_PAUSE_SECONDS: Final = 3600.0
_PROBE_SECONDS: Final = 60.0  # longest time for which a probe without an answer keeps others away


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A purchase option, an instance type and a subnet (None: the account's default subnet).

    Reserved instances are launched as on-demand ones; only their bill differs.
    """

    option: Capacity
    instance_type: str
    subnet_id: str | None = None

    @property
    def key(self) -> str:
        """Name of the pool in state files, metrics and logs."""
        return "|".join((self.option.value, self.instance_type, self.subnet_id or "default"))


def pools_for(requested: Capacity, settings: Ec2Settings) -> tuple[Pool, ...]:
    """Pools to try for a requested capacity, in order.

    Reserved and spot fall back to on-demand. On-demand never falls back to spot: its job may not be one that
    can be requeued (docs/designs/0001, rule 1).
    """
    order = {
        Capacity.RESERVED: (Capacity.RESERVED, Capacity.ON_DEMAND),
        Capacity.SPOT: (Capacity.SPOT, Capacity.ON_DEMAND),
        Capacity.ON_DEMAND: (Capacity.ON_DEMAND,),
    }[requested]
    subnets: Sequence[str | None] = settings.subnet_ids or (None,)
    return tuple(
        Pool(option=option, instance_type=settings.instance_type, subnet_id=subnet)
        for option in order
        for subnet in subnets
    )


class UnavailablePools:
    """Pools and purchase options that are unavailable, and until when; kept in a state file.

    A state file that cannot be read counts as empty; at worst one more launch is refused. `now` is the wall
    clock in epoch seconds. The methods may be called from several threads.
    """

    def __init__(self, state: StateFile, now: Callable[[], float]) -> None:
        self._state = state
        self._now = now
        self._lock = threading.Lock()
        content = state.read()
        self._pools = _entries(content.get("pools"), ("set", "until", "pause"))
        self._options = _entries(content.get("options"), ("set", "until"))

    def claim(self, pool: Pool) -> bool:
        """Whether the caller may launch in a pool; after a pause, one caller at a time may probe it."""
        now = self._now()
        with self._lock:
            if _is_unavailable(self._options.get(_quota_of(pool), {}), now):
                return False
            entry = self._pools.get(pool.key)
            if entry is None:
                return True
            if _is_unavailable(entry, now):
                return False
            # this caller probes the pool: others wait until it has succeeded or failed
            entry["set"], entry["until"] = now, now + min(_PROBE_SECONDS, entry["pause"])
            return True

    def mark_unavailable(self, pool: Pool, kind: FailureClass, code: str) -> bool:
        """Record a refused launch; True when it made a purchase option unavailable (tell the admin)."""
        now = self._now()
        is_new = False
        with self._lock:
            if kind is FailureClass.CAPACITY:
                before = self._pools.get(pool.key)
                pause = FIRST_PAUSE_SECONDS
                if before is not None:
                    pause = min(MAX_PAUSE_SECONDS, 2.0 * before["pause"])
                self._pools[pool.key] = {"set": now, "until": now + pause, "pause": pause}
            elif kind is FailureClass.QUOTA:
                quota = _quota_of(pool)
                is_new = not _is_unavailable(self._options.get(quota, {}), now)
                self._options[quota] = {"set": now, "until": now + QUOTA_PAUSE_SECONDS, "code": code}
            else:
                return False
            self._save()
        return is_new

    def mark_available(self, pool: Pool) -> None:
        """Record a successful launch."""
        with self._lock:
            if self._pools.pop(pool.key, None) is not None:
                self._save()

    def is_option_available(self, option: Capacity, settings: Ec2Settings) -> bool:
        """Whether any pool of a purchase option is available; probes none."""
        now = self._now()
        pools = [pool for pool in pools_for(option, settings) if pool.option is option]
        with self._lock:
            return any(
                not _is_unavailable(self._options.get(_quota_of(pool), {}), now)
                and not _is_unavailable(self._pools.get(pool.key, {}), now)
                for pool in pools
            )

    def unavailable(self) -> dict[str, dict[str, Any]]:
        """Unavailable pools and options: name to {until, pause or code}, for `advisor pools` and metrics."""
        now = self._now()
        with self._lock:
            return {
                name: {key: value for key, value in entry.items() if key != "set"}
                for name, entry in (*self._pools.items(), *self._options.items())
                if _is_unavailable(entry, now)
            }

    def _save(self) -> None:
        self._state.keep({"pools": self._pools, "options": self._options}, "pools.not_saved")


def _entries(content: object, numbers: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Entries of a state file that have these numbers; others are left out."""
    if not isinstance(content, Mapping):
        return {}
    return {
        str(name): dict(entry)
        for name, entry in content.items()
        if isinstance(entry, Mapping) and all(isinstance(entry.get(key), int | float) for key in numbers)
    }


def _quota_of(pool: Pool) -> str:
    """The quota that applies: reserved instances are launched as on-demand."""
    return "spot" if pool.option is Capacity.SPOT else "on-demand"


def _is_unavailable(entry: dict[str, Any], now: float) -> bool:
    """Whether an entry's pause lasts; a clock that was set back before the pause began ends it (F32)."""
    until = entry.get("until")
    return until is not None and float(entry.get("set", now)) - 60.0 <= now < float(until)
