"""What the control loops have learned of the cloud: boot times, boot failures, money spent today."""

from __future__ import annotations

import json
import os
import statistics
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import structlog

from advisor.service.clock import Clock

log = structlog.get_logger(__name__)

_BOOTS: Final = 50
_BOOTS_NEEDED: Final = 3
_FAILURES_UNTIL_PROTECTED: Final = 10
_LONGEST_GAP_SECONDS: Final = 3600.0


@dataclass(slots=True)
class _Content:
    boots: list[float] = field(default_factory=list)
    failures_in_a_row: int = 0
    day: str = ""
    usd: float = 0.0
    usd_by_account: dict[str, float] = field(default_factory=dict)
    counted_until: float = 0.0


class CloudRecord:
    """Kept in a small file, replaced atomically; a file that cannot be read means a fresh start.

    Parameters
    ----------
    path : Path
        The file.
    clock : Clock
        Time.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._content = _read(path)

    @property
    def boot_seconds(self) -> float | None:
        """Median of the last boots; None until three were seen."""
        with self._lock:
            boots = self._content.boots
            return statistics.median(boots) if len(boots) >= _BOOTS_NEEDED else None

    @property
    def protected(self) -> str:
        """Why nothing is sent to the cloud; empty when all is well."""
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

    def booted(self, seconds: float) -> None:
        """A node came up so long after it was asked for; protection ends."""
        with self._lock:
            self._content.boots = [*self._content.boots, max(0.0, seconds)][-_BOOTS:]
            self._content.failures_in_a_row = 0
            self._save()

    def boot_failed(self, nodes: int) -> None:
        """So many nodes did not come up."""
        with self._lock:
            self._content.failures_in_a_row += nodes
            self._save()

    def trust_again(self) -> None:
        """End protection (an administrator's word, or a clean start)."""
        with self._lock:
            self._content.failures_in_a_row = 0
            self._save()

    def spend(self, usd_per_hour_by_account: Mapping[str, float]) -> None:
        """Count what runs now as having run since the last call; a new UTC day begins at nothing.

        Parameters
        ----------
        usd_per_hour_by_account : mapping
            Price of what runs now, by the account that uses it; ``""`` for what nobody uses.
        """
        now = self._clock.wall()
        with self._lock:
            content = self._content
            today = datetime.fromtimestamp(now, UTC).date().isoformat()
            if content.day != today:
                content.day, content.usd, content.usd_by_account = today, 0.0, {}
            # a clock that was set, or a long absence, must not invent hours
            hours = min(max(0.0, now - content.counted_until), _LONGEST_GAP_SECONDS) / 3600.0
            if content.counted_until > 0:
                for account, usd_per_hour in usd_per_hour_by_account.items():
                    content.usd += hours * usd_per_hour
                    if account:
                        spent = content.usd_by_account.get(account, 0.0)
                        content.usd_by_account[account] = spent + hours * usd_per_hour
            content.counted_until = now
            self._save()

    def spent_today(self) -> tuple[float, MappingProxyType[str, float]]:
        """Dollars since midnight UTC, in all and by account."""
        today = datetime.fromtimestamp(self._clock.wall(), UTC).date().isoformat()
        with self._lock:
            if self._content.day != today:
                return 0.0, MappingProxyType({})
            return self._content.usd, MappingProxyType(dict(self._content.usd_by_account))

    def _save(self) -> None:
        content = {name: getattr(self._content, name) for name in _Content.__dataclass_fields__}
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            temporary.write_text(json.dumps(content), encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:  # known in memory still; a restart then begins with the older record
            log.warning("cloud_record.not_saved", file=str(self._path), error=error.strerror)


def _read(path: Path) -> _Content:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return _Content(
            boots=[float(seconds) for seconds in found["boots"]][-_BOOTS:],
            failures_in_a_row=max(0, int(found["failures_in_a_row"])),
            day=str(found["day"]),
            usd=max(0.0, float(found["usd"])),
            usd_by_account={str(name): float(usd) for name, usd in found["usd_by_account"].items()},
            counted_until=float(found["counted_until"]),
        )
    except FileNotFoundError:
        return _Content()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("cloud_record.unreadable", file=str(path), error=str(error))
        return _Content()


AskWhetherOpen = Callable[[], tuple[bool, bool]]
"""Whether spot and on-demand capacity can be had at all now (the breakers of all pools)."""
