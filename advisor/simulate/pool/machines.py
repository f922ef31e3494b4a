"""The machines of a closed loop on one clock: a job waits for the processors of its own machine alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.simulate.pool.pool import Event, Pool, Resources
from advisor.simulate.pool.rules import Rules


class Machines:
    """A :class:`Pool` for each machine, driven like one.

    Args:
        processors: Of each machine.
        places: The number of the machine of each row, shape ``(capacity,)``.
        time: The clock's start, seconds.
        rules: See :class:`Pool`.
        resources: What jobs wait for beside processors, of each machine; empty: nothing.
    """

    def __init__(
        self,
        processors: Sequence[int],
        places: Ints,
        time: float = 0.0,
        rules: Rules | None = None,
        resources: Sequence[Resources] = (),
    ) -> None:
        self._pools = [
            Pool(count, len(places), time, rules, more)
            for count, more in zip(processors, resources or (None,) * len(processors), strict=True)
        ]
        self._places = places
        self._now = time
        self.is_interrupted = False
        """Whether the last `advance` returned at a watched job's start."""

    @property
    def waiting(self) -> Ints:
        """Rows in the order of their numbers."""
        return np.sort(np.concatenate([pool.waiting for pool in self._pools]))

    @property
    def running(self) -> Ints:
        """Rows of running jobs."""
        return np.concatenate([pool.running for pool in self._pools])

    @property
    def ran(self) -> Floats:
        """The time that each of :attr:`running` has run, seconds."""
        return np.concatenate([pool.ran for pool in self._pools])

    def is_waiting(self, row: int) -> bool:
        """Whether the job is in a queue."""
        return self._of(row).is_waiting(row)

    def add(
        self, row: int, *, processors: int, limit: float, run: float, order: float, rank: float = 0.0
    ) -> None:
        """Put a job in the queue of its machine; see :meth:`Pool.add`."""
        self._of(row).add(row, processors=processors, limit=limit, run=run, order=order, rank=rank)

    def watch(self, row: int, *, is_watched: bool) -> None:
        """Let `advance` return at the job's start, or no longer."""
        self._of(row).watch(row, is_watched=is_watched)

    def remove(self, row: int) -> None:
        """Take a waiting job out of its queue."""
        self._of(row).remove(row)

    def stop(self, row: int) -> None:
        """End a running job now; it may be added again."""
        self._of(row).stop(row)

    def set_other_ends(self, ends: Sequence[float]) -> None:
        """See :meth:`Pool.set_other_ends`."""
        for pool in self._pools:
            pool.set_other_ends(ends)

    def advance(self, until: float) -> list[Event]:
        """See :meth:`Pool.advance`.

        No machine's clock goes beyond the next event of another one.
        """
        found: list[Event] = []
        while True:
            # what the caller has changed since may start at once, and end before any event that is known
            if self._advance_all(self._now, found) or self._now >= until:
                return found
            upto = min(until, *(pool.next_event for pool in self._pools))
            if upto == math.inf:
                return found
            self._now = max(self._now, upto)

    def forecast(self, runs: Floats, starts: Floats | None = None) -> Floats:
        """Forecast the start of each waiting job; see :meth:`Pool.forecast`."""
        if starts is None:
            starts = np.full(len(self._places), math.nan)
        for pool in self._pools:
            pool.forecast(runs, starts)
        return starts

    def _advance_all(self, until: float, found: list[Event]) -> bool:
        """Whether a watched job has started."""
        self.is_interrupted = False
        for pool in self._pools:
            found += pool.advance(until)
            if pool.is_interrupted:
                self.is_interrupted = True
                return True
        return False

    def _of(self, row: int) -> Pool:
        return self._pools[int(self._places[row])]
