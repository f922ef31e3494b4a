"""The clock of a rehearsal's loops and of its site: it stands still until the rehearsal moves it on."""

from __future__ import annotations

from collections.abc import Callable

from advisor.service.running.clock import Clock


class VirtualTime:
    """Wall clock and monotonic clock, which agree, since nobody sets a rehearsal's clock.

    Attributes:
        now: Epoch seconds.
        slept: Called after a loop has slept: time has gone by for everything else.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        self.slept: Callable[[], None] = lambda: None
        self.clock = Clock(wall=self.read, monotonic=self.read, sleep=self.sleep)

    def read(self) -> float:
        """Epoch seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time go by within a round of a loop."""
        self.now += seconds
        self.slept()

    def move_to(self, time: float) -> None:
        """Move on to ``time``, epoch seconds; never back."""
        self.now = max(self.now, time)
