"""A clock that stands still until the rehearsal moves it on."""

from __future__ import annotations

from advisor.service.running.clock import Clock


class VirtualTime:
    """Wall clock and monotonic clock, which agree.

    Attributes:
        now: Epoch seconds.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        self.clock = Clock(wall=self.read, monotonic=self.read)

    def read(self) -> float:
        """Epoch seconds."""
        return self.now

    def move_to(self, time: float) -> None:
        """Move on to ``time``, epoch seconds; never back."""
        self.now = max(self.now, time)
