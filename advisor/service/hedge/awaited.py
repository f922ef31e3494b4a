"""Hedged submissions that were announced and are not yet seen in the queue: when to look for them."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable
from typing import Final

from advisor.service.exchange.announcing import Announced
from advisor.service.running.clock import Clock

_DISTANCE_SECONDS: Final = 0.2
"""From the end of one look to the next, however many are announced; more after two that show nothing new."""
_LOOK_SHARE: Final = 2.0
"""A look that takes long says that slurmctld is busy: it rests by so many times its length."""
_EXPECTED_SECONDS: Final = 3.0
"""slurmctld may have refused the job after it was answered."""
_MOST: Final = 5000


class Awaited:
    """Announced and not yet found. For several threads.

    Parameters
    ----------
    clock : Clock
        Time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[Announced, float] = {}
        self._looked = -math.inf
        self._seconds = 0.0
        self._in_vain = 0

    def expect(self, jobs: Iterable[Announced]) -> None:
        """Await some more; of more than some thousands the rest is left to the next look at the queue."""
        until = self._clock.monotonic() + _EXPECTED_SECONDS
        with self._lock:
            for job in jobs:
                if len(self._until) < _MOST:
                    self._until[job] = until
            self._in_vain = 0

    def due_in(self) -> float:
        """Seconds until a look is due; infinity where nobody is awaited."""
        with self._lock:
            self._give_up()
            if not self._until:
                return math.inf
            distance = _DISTANCE_SECONDS * 2.0 ** max(0, self._in_vain - 1)
            rest = max(distance, _LOOK_SHARE * self._seconds)
            return max(0.0, self._looked + rest - self._clock.monotonic())

    def due(self) -> tuple[Announced, ...]:
        """Who is to be looked for now; empty before a look is due."""
        if self.due_in() > 0.0:
            return ()
        with self._lock:
            return tuple(self._until)

    def looked(self, seconds: float, *, settled: Collection[str] = (), seen: Collection[str] = ()) -> None:
        """Say what a look has shown.

        Parameters
        ----------
        seconds : float
            How long Slurm took to answer.
        settled : collection of str
            Ids of advices that need not be looked for any more.
        seen : collection of str
            Of those whose jobs are there, and that have yet to be seen to: they are awaited anew.
        """
        with self._lock:
            self._looked, self._seconds = self._clock.monotonic(), seconds
            self._in_vain = 0 if settled or seen else self._in_vain + 1
            until = self._looked + _EXPECTED_SECONDS
            self._until = {
                job: until if job.id in seen else known
                for job, known in self._until.items()
                if job.id not in settled
            }

    def _give_up(self) -> None:
        now = self._clock.monotonic()
        if any(until <= now for until in self._until.values()):
            self._until = {job: until for job, until in self._until.items() if until > now}
