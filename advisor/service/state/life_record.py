"""The lives of our spot instances: from when until when, and whether EC2 took them back. Kept on disk.

The match loop notes them, and learns from them how long pools last. The source is what EC2 lists and its
notices. Only an end by EC2 counts as taken. An instance that we terminated or that vanished unseen is known
to have lived until it was last seen (a censored life).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from advisor.ec2.instances import Instance
from advisor.ec2.reports import pool_of
from advisor.files.state_file import StateFile
from advisor.model.advice import Capacity
from advisor.predict.survival.pool_survival import Life, losses_of
from advisor.service.state.records import EndedLife, Lives, OpenLife

MAX_ENDED: Final = 4000
"""Ended lives remembered; older ones say nothing about today."""

NO_LIVES: Final = {"lives": 0, "taken": 0, "alive": 0, "hours": 0.0, "losses": 0, "lost_together": 0}
"""A pool in which nothing was seen, as a row of `LifeRecord.table`."""
_VANISHED_SECONDS: Final = 600.0  # not listed for so long means gone, not listed late
_SAVE_SECONDS: Final = 60.0
_MAX_SINCE_SEEN: Final = 60.0  # seconds from the last listing of a life to its supposed end, at most


class LifeRecord:
    """Lives by instance id. Thread-safe. An unreadable state counts as empty: survival is learned anew.

    Attributes:
        changes: Ends noted since the process started; a change means that a model must be fitted again.
    """

    def __init__(self, state: StateFile[Lives]) -> None:
        self._state = state
        self._lock = threading.Lock()
        content = state.read()
        self._open = content.open
        self._over = content.over  # ids of ended instances that EC2 still lists
        self._ended: deque[EndedLife] = deque(content.ended, maxlen=MAX_ENDED)
        self._saved_at = 0.0
        self.changes = 0
        self._lost_together = {life for loss in self._losses() if len(loss) > 1 for life in loss}

    def observe(
        self, instances: Iterable[Instance], is_taken: Callable[[str], bool], listed_at: float
    ) -> list[str]:
        """Note what EC2 listed at ``listed_at`` (epoch seconds).

        ``is_taken`` says whether EC2 has sent an interruption notice for an instance id.

        Returns:
            The pool of each loss of several instances that was not known before: once for a loss, however
            many instances it takes and however many lists show it.
        """
        with self._lock:
            changes = self.changes
            listed = {item.instance_id: item for item in instances if item.option is Capacity.SPOT}
            self._over &= listed.keys()
            for name, item in listed.items():
                if name not in self._over:
                    self._note(name, item, listed_at, has_notice=is_taken(name))
            for name in [n for n, life in self._open.items() if listed_at - life.seen > _VANISHED_SECONDS]:
                self._end(name, self._open[name].seen, was_taken=False)
            if changes != self.changes or abs(listed_at - self._saved_at) > _SAVE_SECONDS:
                self._save(listed_at)
            if changes == self.changes:
                return []
            together = [loss for loss in self._losses() if len(loss) > 1]
            # an instance that is noted later may have ended first: the begin of a loss does not identify it
            fresh = [loss for loss in together if self._lost_together.isdisjoint(loss)]
            self._lost_together = {life for loss in together for life in loss}
            return sorted({loss[0].pool for loss in fresh})

    def _losses(self) -> list[list[Life]]:
        return losses_of(map(_as_life, self._ended))

    def _note(self, name: str, item: Instance, now: float, *, has_notice: bool) -> None:
        life = self._open.get(name)
        if life is None:
            start = min(item.launch_time or now, now)
            life = self._open[name] = OpenLife(pool_of(item).key, start, start)
        if item.is_alive and not has_notice:
            life.seen = max(life.seen, now)
        else:
            # it ended between two listings; the exact time is unknown
            end = max(life.seen, min(now, life.seen + _MAX_SINCE_SEEN))
            self._end(name, end, was_taken=has_notice or item.was_reclaimed)
            self._over.add(name)

    def _end(self, name: str, end: float, *, was_taken: bool) -> None:
        life = self._open.pop(name)
        self.changes += 1
        if end > life.start:
            self._ended.append(EndedLife(life.pool, life.start, end, was_taken))

    @property
    def seen(self) -> int:
        """Instances whose lives are known, ended or not."""
        with self._lock:
            return len(self._open) + len(self._ended)

    def lives(self) -> list[Life]:
        """All known lives: ended ones, and those that go on, until they were last seen."""
        with self._lock:
            going_on = [
                Life(pool=life.pool, start=life.start, end=life.seen, was_taken=False)
                for life in self._open.values()
            ]
            return [*map(_as_life, self._ended), *going_on]

    def table(self) -> dict[str, dict[str, Any]]:
        """For each pool: lives seen, how many EC2 took, how many go on, hours lived in total.

        And losses, where instances that were lost together are one, and how many were lost so.
        """
        found: dict[str, dict[str, Any]] = {}
        with self._lock:
            open_pools = [life.pool for life in self._open.values()]
        for life in self.lives():
            row = found.setdefault(life.pool, dict(NO_LIVES))
            row["lives"] += 1
            row["taken"] += life.was_taken
            row["hours"] += (life.end - life.start) / 3600.0
        for pool in open_pools:
            found[pool]["alive"] += 1
        with self._lock:
            losses = self._losses()
        for loss in losses:
            row = found[loss[0].pool]
            row["losses"] += 1
            row["lost_together"] += len(loss) if len(loss) > 1 else 0
        return found

    def _save(self, now: float) -> None:
        self._saved_at = now
        content = Lives(open=self._open, ended=list(self._ended), over=self._over)
        self._state.keep(content, "lives.not_saved")


def _as_life(life: EndedLife) -> Life:
    return Life(pool=life.pool, start=life.start, end=life.end, was_taken=life.was_taken)
