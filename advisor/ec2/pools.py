"""Capacity pools and their circuit breakers.

A pool is (purchase option, instance type, subnet): the grain at which EC2 runs out of machines. A breaker
remembers an empty pool for 180 s, doubling to 1,800 s while it stays empty, and lets one probe through when
its time is up (Karpenter's and Google's numbers). A quota parks the whole option. Throttling says
nothing about capacity and never marks anything (F03).
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
_PROBE_SECONDS: Final = 60.0  # a probe that dies unanswered holds the pool no longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One place where instances may be had.

    Attributes
    ----------
    option : Capacity
        Reserved instances are launched as on-demand ones; the discount is a matter of billing.
    instance_type : str
        EC2's name of the type.
    subnet_id : str or None
        None: the account's default subnet.
    """

    option: Capacity
    instance_type: str
    subnet_id: str | None = None

    @property
    def key(self) -> str:
        """Stable name, for breakers, metrics and logs."""
        return "|".join((self.option.value, self.instance_type, self.subnet_id or "default"))


def pools_for(wish: Capacity, settings: Ec2Settings) -> tuple[Pool, ...]:
    """Pools to try for a wish, in order.

    Reserved first if that was the advice, then spot, then on-demand. A job that was promised on-demand (it
    may not be requeued) never falls back to spot (docs/designs/0001, rule 1).
    """
    order = {
        Capacity.RESERVED: (Capacity.RESERVED, Capacity.ON_DEMAND),
        Capacity.SPOT: (Capacity.SPOT, Capacity.ON_DEMAND),
        Capacity.ON_DEMAND: (Capacity.ON_DEMAND,),
    }[wish]
    subnets: Sequence[str | None] = settings.subnet_ids or (None,)
    return tuple(
        Pool(option=option, instance_type=settings.instance_type, subnet_id=subnet)
        for option in order
        for subnet in subnets
    )


class Breakers:
    """Which pools and options are closed, and until when; survives restarts.

    Parameters
    ----------
    state : StateFile
        Where it is kept. Unreadable state counts as empty: the worst that follows is one refused launch.
    now : callable
        Wall clock, seconds since the epoch (it must mean the same after a restart).
    """

    def __init__(self, state: StateFile, now: Callable[[], float]) -> None:
        self._state = state
        self._now = now
        self._lock = threading.Lock()  # one loop launches while another one looks
        content = state.read()
        self._pools = _entries(content.get("pools"), ("set", "until", "pause"))
        self._options = _entries(content.get("options"), ("set", "until"))

    def allows(self, pool: Pool) -> bool:
        """Whether a launch may be tried; a pool whose pause is over lets one probe through at a time."""
        now = self._now()
        with self._lock:
            if _still(self._options.get(_market(pool), {}), now):
                return False
            entry = self._pools.get(pool.key)
            if entry is None:
                return True
            if _still(entry, now):
                return False
            # The probe: others wait until it has succeeded or failed.
            entry["set"], entry["until"] = now, now + min(_PROBE_SECONDS, entry["pause"])
            return True

    def failed(self, pool: Pool, kind: FailureClass, code: str) -> bool:
        """Take note of a refused launch; True when an option was parked just now (tell the admin, once)."""
        now = self._now()
        news = False
        with self._lock:
            if kind is FailureClass.CAPACITY:
                before = self._pools.get(pool.key)
                pause = FIRST_PAUSE_SECONDS
                if before is not None:
                    pause = min(MAX_PAUSE_SECONDS, 2.0 * before["pause"])
                self._pools[pool.key] = {"set": now, "until": now + pause, "pause": pause}
            elif kind is FailureClass.QUOTA:
                news = not _still(self._options.get(_market(pool), {}), now)
                self._options[_market(pool)] = {"set": now, "until": now + QUOTA_PAUSE_SECONDS, "code": code}
            else:
                return False
            self._save()
        return news

    def succeeded(self, pool: Pool) -> None:
        """Open the pool again."""
        with self._lock:
            if self._pools.pop(pool.key, None) is not None:
                self._save()

    def option_open(self, option: Capacity, settings: Ec2Settings) -> bool:
        """Whether any pool of an option may be tried (for `CloudState`); claims no probe."""
        now = self._now()
        pools = [pool for pool in pools_for(option, settings) if pool.option is option]
        with self._lock:
            return any(
                not _still(self._options.get(_market(pool), {}), now)
                and not _still(self._pools.get(pool.key, {}), now)
                for pool in pools
            )

    def table(self) -> dict[str, dict[str, Any]]:
        """Everything that is closed now: name to {until, pause or code}; for `advisor pools` and metrics."""
        now = self._now()
        with self._lock:
            return {
                name: {key: value for key, value in entry.items() if key != "set"}
                for name, entry in (*self._pools.items(), *self._options.items())
                if _still(entry, now)
            }

    def _save(self) -> None:
        self._state.keep({"pools": self._pools, "options": self._options}, "breakers.not_saved")


def _entries(content: object, numbers: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What a state file holds, as far as it makes sense: an entry without its numbers is left out."""
    if not isinstance(content, Mapping):
        return {}
    return {
        str(name): dict(entry)
        for name, entry in content.items()
        if isinstance(entry, Mapping) and all(isinstance(entry.get(key), int | float) for key in numbers)
    }


def _market(pool: Pool) -> str:
    """Quotas know spot and on-demand; reserved instances are launched as on-demand."""
    return "spot" if pool.option is Capacity.SPOT else "on-demand"


def _still(entry: dict[str, Any], now: float) -> bool:
    """Whether a pause is running; a clock set back before the pause began ends it (F32)."""
    until = entry.get("until")
    return until is not None and float(entry.get("set", now)) - 60.0 <= now < float(until)
