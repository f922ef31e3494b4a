"""Hedged submissions that were announced and are not yet seen in the queue: when the watch loop polls."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable
from typing import Final

from advisor.service.exchange.announcing import Announced
from advisor.service.running.clock import Clock

_PAUSE_SECONDS: Final = 0.2
"""Pause between polls, whatever the number of jobs; it doubles after each poll without news but the first."""
_PAUSE_SHARE: Final = 2.0
"""The pause is at least this many times the last poll's duration: a slow answer means a busy slurmctld."""
_EXPECTED_SECONDS: Final = 3.0
"""Then the job is given up: slurmctld may have refused it after the hook's answer."""
_MAX_JOBS: Final = 5000


class Awaited:
    """Jobs that were announced and not yet found. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[Announced, float] = {}
        self._polled = -math.inf  # monotonic seconds
        self._poll_seconds = 0.0
        self._without_news = 0

    def expect(self, jobs: Iterable[Announced]) -> None:
        """Await more jobs; those beyond 5,000 are left to the next poll of the whole queue."""
        until = self._clock.monotonic() + _EXPECTED_SECONDS
        with self._lock:
            for job in jobs:
                if len(self._until) < _MAX_JOBS:
                    self._until[job] = until
            self._without_news = 0

    def due_in(self) -> float:
        """Seconds until a poll is due; infinity where no job is awaited."""
        with self._lock:
            self._give_up()
            if not self._until:
                return math.inf
            pause = _PAUSE_SECONDS * 2.0 ** max(0, self._without_news - 1)
            pause = max(pause, _PAUSE_SHARE * self._poll_seconds)
            return max(0.0, self._polled + pause - self._clock.monotonic())

    def due(self) -> tuple[Announced, ...]:
        """The jobs to poll for now; empty before a poll is due."""
        if self.due_in() > 0.0:
            return ()
        with self._lock:
            return tuple(self._until)

    def polled(self, seconds: float, *, settled: Collection[str] = (), seen: Collection[str] = ()) -> None:
        """Record what a poll has shown.

        Args:
            seconds: How long Slurm took to answer.
            settled: Ids of advice whose jobs are no longer awaited.
            seen: Ids of advice whose jobs are in the queue and have no placeholder yet: their time begins
                again.
        """
        with self._lock:
            self._polled, self._poll_seconds = self._clock.monotonic(), seconds
            self._without_news = 0 if settled or seen else self._without_news + 1
            until = self._polled + _EXPECTED_SECONDS
            self._until = {
                job: until if job.id in seen else known
                for job, known in self._until.items()
                if job.id not in settled
            }

    def _give_up(self) -> None:
        now = self._clock.monotonic()
        if any(until <= now for until in self._until.values()):
            self._until = {job: until for job, until in self._until.items() if until > now}
