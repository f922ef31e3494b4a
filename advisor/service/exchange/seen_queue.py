"""The on-premise queue as a poll saw it, in the snapshot: what a submission's forecast wait rests on."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NO_LIMIT_SECONDS: Final = 365.0 * 86_400.0
"""Stands for the time limit of a job that has none."""


class SeenQueue(msgspec.Struct, frozen=True, gc=False):
    """Jobs that have or wait for on-premise processors.

    Attributes:
        processors: Of the nodes that are usable.
        running: float64, shape ``(r, 3)``: processors, start (epoch seconds) and limit (seconds).
        waiting: float64, shape ``(w, 2)``: processors and limit (seconds), first of the queue first; the
            tasks of an array one by one, and many of them as one wide job.
    """

    processors: int
    running: bytes
    waiting: bytes

    @classmethod
    def of(cls, processors: int, running: Floats, waiting: Floats) -> SeenQueue:
        """Pack the arrays."""
        return cls(processors, running.astype("<f8").tobytes(), waiting.astype("<f8").tobytes())

    @property
    def running_jobs(self) -> Floats:
        """``running`` as an array.

        Raises:
            ValueError: It is damaged.
        """
        return np.frombuffer(self.running, "<f8").reshape(-1, 3)

    @property
    def waiting_jobs(self) -> Floats:
        """``waiting`` as an array.

        Raises:
            ValueError: It is damaged.
        """
        return np.frombuffer(self.waiting, "<f8").reshape(-1, 2)
