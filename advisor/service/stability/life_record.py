"""The lives of our spot instances: when each was had, and whether EC2 took it. Kept on disk.

From what EC2 lists and what it has said, seen by the reconciler; only what EC2 itself ends counts as taken.
An instance that we gave back, or that vanished while nobody looked, lived at least until then.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from advisor.ec2.instances import Instance
from advisor.ec2.reports import pool_of
from advisor.files.state_file import StateFile
from advisor.model.advice import Capacity
from advisor.predict.survival.pool_survival import Life

MAX_ENDED: Final = 4000
"""Ended lives remembered; more say nothing about today."""

_VANISHED_SECONDS: Final = 600.0  # not listed for so long: EC2 does not list it late, it is gone
_SAVE_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Open:
    pool: str
    start: float
    seen: float


class LifeRecord:
    """Lives by instance. Safe to be used by several threads.

    Parameters
    ----------
    state : StateFile
        Where it is kept; unreadable state counts as empty: survival is learned anew.
    """

    def __init__(self, state: StateFile) -> None:
        self._state = state
        self._lock = threading.Lock()
        content = state.read()
        self._open = _open_of(content.get("open"))
        self._ended: deque[Life] = deque(_ended_of(content.get("ended")), maxlen=MAX_ENDED)
        self._over = {item for item in _list(content.get("over")) if isinstance(item, str)}
        self._saved_at = 0.0
        self.changes = (
            0  # ends noted since the start: whoever has fitted a model knows whether to do so again
        )

    def observe(
        self, instances: Iterable[Instance], is_taken: Callable[[str], bool], listed_at: float
    ) -> None:
        """Note what EC2 lists.

        Parameters
        ----------
        instances : iterable of Instance
            All of ours that EC2 listed.
        is_taken : callable
            Whether EC2 said that it takes an instance back.
        listed_at : float
            When it was asked, epoch seconds.
        """
        with self._lock:
            changes = self.changes
            listed = {item.instance_id: item for item in instances if item.option is Capacity.SPOT}
            self._over &= listed.keys()
            for name, item in listed.items():
                if name not in self._over:
                    self._note(name, item, listed_at, was_said=is_taken(name))
            for name in [n for n, life in self._open.items() if listed_at - life.seen > _VANISHED_SECONDS]:
                self._end(name, self._open[name].seen, was_taken=False)
            if changes != self.changes or abs(listed_at - self._saved_at) > _SAVE_SECONDS:
                self._save(listed_at)

    def _note(self, name: str, item: Instance, now: float, *, was_said: bool) -> None:
        life = self._open.get(name)
        if life is None:
            start = min(item.launch_time or now, now)
            life = self._open[name] = _Open(pool_of(item).key, start, start)
        if item.is_alive and not was_said:
            life.seen = max(life.seen, now)
        else:
            # between two looks it was there; which moment it went is not known better than that
            end = max(life.seen, min(now, life.seen + _SAVE_SECONDS))
            self._end(name, end, was_taken=was_said or item.was_reclaimed)
            self._over.add(name)

    def _end(self, name: str, end: float, *, was_taken: bool) -> None:
        life = self._open.pop(name)
        self.changes += 1
        if end > life.start:
            self._ended.append(Life(pool=life.pool, start=life.start, end=end, was_taken=was_taken))

    def lives(self) -> list[Life]:
        """All lives known: ended ones, and those that go on, until they were last seen."""
        with self._lock:
            going_on = [
                Life(pool=life.pool, start=life.start, end=life.seen, was_taken=False)
                for life in self._open.values()
            ]
            return [*self._ended, *going_on]

    def table(self) -> dict[str, dict[str, Any]]:
        """Each pool: lives seen, how many EC2 took, how many go on, hours lived in all."""
        found: dict[str, dict[str, Any]] = {}
        with self._lock:
            open_pools = [life.pool for life in self._open.values()]
        for life in self.lives():
            row = found.setdefault(life.pool, {"lives": 0, "taken": 0, "alive": 0, "hours": 0.0})
            row["lives"] += 1
            row["taken"] += life.was_taken
            row["hours"] += (life.end - life.start) / 3600.0
        for pool in open_pools:
            found[pool]["alive"] += 1
        return found

    def _save(self, now: float) -> None:
        self._saved_at = now
        content = {
            "open": {name: asdict(life) for name, life in self._open.items()},
            "ended": [[life.pool, life.start, life.end, life.was_taken] for life in self._ended],
            "over": sorted(self._over),
        }
        self._state.keep(content, "lives.not_saved")


def _list(content: object) -> list[Any]:
    return content if isinstance(content, list) else []


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0.0 <= value < 1e12


def _open_of(content: object) -> dict[str, _Open]:
    found = {}
    for name, entry in content.items() if isinstance(content, dict) else ():
        if isinstance(entry, dict) and _is_time(entry.get("start")) and _is_time(entry.get("seen")):
            found[str(name)] = _Open(str(entry.get("pool", "")), float(entry["start"]), float(entry["seen"]))
    return found


def _ended_of(content: object) -> list[Life]:
    return [
        Life(pool=str(row[0]), start=float(row[1]), end=float(row[2]), was_taken=row[3] is True)
        for row in _list(content)
        if isinstance(row, list) and len(row) == 4 and _is_time(row[1]) and _is_time(row[2])
    ]
