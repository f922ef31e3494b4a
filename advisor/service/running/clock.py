"""The clocks that loops and servers get: the wall clock, and elapsed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Two clocks, because one of them may be set (docs/faults.md, F32).

    Attributes:
        wall: Epoch seconds: for records and for what Slurm and EC2 say. May jump.
        monotonic: Seconds that only ever grow: for every period, age and time-out.
        sleep: Waits for a number of seconds.
    """

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
