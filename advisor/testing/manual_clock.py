"""Clocks that stand still until a test moves them."""

from __future__ import annotations

from dataclasses import dataclass, field

from advisor.service.running.clock import Clock


@dataclass
class ManualClock:
    """Wall clock and monotonic clock in a test's hand.

    Attributes:
        wall: Epoch seconds; may be set to and fro (docs/faults.md, F32).
        steady: Monotonic seconds.
        waited: Every wait that was asked for.

    Examples:
        >>> clock = ManualClock(wall=100.0)
        >>> clock.sleep(5.0)
        >>> clock.clock.wall(), clock.waited
        (105.0, [5.0])
    """

    wall: float = 1_800_000_000.0
    steady: float = 1000.0
    waited: list[float] = field(default_factory=list)

    @property
    def clock(self) -> Clock:
        """What the service's parts take."""
        return Clock(wall=lambda: self.wall, monotonic=lambda: self.steady)

    def sleep(self, seconds: float) -> None:
        """Take a wait for done."""
        self.waited.append(seconds)
        self.pass_by(seconds)

    def pass_by(self, seconds: float) -> None:
        """Time goes by."""
        self.wall += seconds
        self.steady += seconds
