"""What the loops have learned of boots: how long they take in each pool, and how often they failed."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from advisor.files.state_file import StateFile
from advisor.files.whole_file import replace_file
from advisor.model.errors import AdvisorError
from advisor.service.cloud.budget import SpendingBudget
from advisor.service.running.clock import Clock

log = structlog.get_logger(__name__)

_BOOTS: Final = 50
_BOOTS_NEEDED: Final = 3
_BOOT_QUANTILE: Final = 0.8
"""Decisions expect a boot time that 8 of 10 boots keep; every second boot would exceed the median."""
_FAILURES_UNTIL_PROTECTED: Final = 10


@dataclass(slots=True)
class _Content:
    boots: dict[str, list[float]] = field(default_factory=dict)
    failures_in_a_row: int = 0
    boots_seen: int = 0
    failures_seen: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BootTimes:
    """Boots of one pool: their number, and quantiles of their length in seconds."""

    boots: int
    median_seconds: float
    p90_seconds: float


class CloudRecord:
    """The record of boots, in a small file, replaced atomically; the day's `budget` is stored beside it.

    If the file cannot be read it is set aside. Then one more failed boot protects the cloud.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._content = _read(path)
        self.budget = SpendingBudget(StateFile(path.with_name("budget.json")), clock)

    @property
    def boot_seconds(self) -> float | None:
        """Boot time to expect over all pools, seconds; None until three boots were seen."""
        return self.boot_seconds_of("")

    def boot_seconds_of(self, option: str) -> float | None:
        """Boot time to expect in the pools of one purchase option, seconds.

        It is taken over all pools if that option has had fewer than three boots; None until three were seen.
        """
        with self._lock:
            pools = dict(self._content.boots)
        of_option = [s for key, boots in pools.items() if key.partition("|")[0] == option for s in boots]
        boots = (
            of_option if len(of_option) >= _BOOTS_NEEDED else [s for known in pools.values() for s in known]
        )
        return quantile(boots, _BOOT_QUANTILE) if len(boots) >= _BOOTS_NEEDED else None

    def boot_times(self) -> dict[str, BootTimes]:
        """Boot times of each pool that has booted a node."""
        with self._lock:
            pools = {key: list(boots) for key, boots in self._content.boots.items() if boots}
        return {
            key: BootTimes(
                boots=len(boots), median_seconds=quantile(boots, 0.5), p90_seconds=quantile(boots, 0.9)
            )
            for key, boots in pools.items()
        }

    @property
    def protected(self) -> str:
        """Why no node is started in the cloud; empty if nodes may start."""
        with self._lock:
            failures = self._content.failures_in_a_row
        if failures < _FAILURES_UNTIL_PROTECTED:
            return ""
        return f"{failures} cloud nodes in a row did not boot"

    @property
    def boot_failures(self) -> int:
        """Boots that failed since the last one that succeeded."""
        with self._lock:
            return self._content.failures_in_a_row

    @property
    def boots_seen(self) -> tuple[int, int]:
        """Boots that succeeded and boots that failed, since the record began."""
        with self._lock:
            return self._content.boots_seen, self._content.failures_seen

    def booted(self, seconds: float, pool: str = "") -> None:
        """Note that a node came up so many seconds after it was asked for; this ends protection."""
        with self._lock:
            known = self._content.boots.get(pool, [])
            self._content.boots[pool] = [*known, max(0.0, seconds)][-_BOOTS:]
            self._content.failures_in_a_row = 0
            self._content.boots_seen += 1
            self._save()

    def boot_failed(self, nodes: int) -> None:
        """Note that so many nodes did not come up."""
        with self._lock:
            self._content.failures_in_a_row += nodes
            self._content.failures_seen += nodes
            self._save()

    def try_one_boot(self) -> None:
        """End protection for one boot; another failure brings it back."""
        with self._lock:
            self._content.failures_in_a_row = min(
                self._content.failures_in_a_row, _FAILURES_UNTIL_PROTECTED - 1
            )
            self._save()

    def _save(self) -> None:
        content = {name: getattr(self._content, name) for name in _Content.__dataclass_fields__}
        try:
            replace_file(self._path, json.dumps(content).encode())
        except OSError as error:  # memory still has it; a restart would begin with the older record
            log.warning("cloud_record.not_saved", file=str(self._path), error=error.strerror)


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _read(path: Path) -> _Content:
    file = StateFile(path)
    try:
        found = file.load()
        if found is None:
            return _Content()
        boots: Mapping[str, Any] = found["boots"]
        return _Content(
            boots={str(pool): [float(s) for s in seconds][-_BOOTS:] for pool, seconds in boots.items()},
            failures_in_a_row=max(0, int(found["failures_in_a_row"])),
            boots_seen=max(0, int(found["boots_seen"])),
            failures_seen=max(0, int(found["failures_seen"])),
        )
    except (AdvisorError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        file.set_aside(f"{type(error).__name__}: {error}")
        # the number of failed boots is unknown: one node may boot, and if it fails no other may
        return _Content(failures_in_a_row=_FAILURES_UNTIL_PROTECTED - 1)


AskWhetherOpen = Callable[[], tuple[bool, bool]]
"""Whether spot and on-demand capacity can be launched now, by the breakers of all pools."""
