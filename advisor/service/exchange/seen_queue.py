"""The on-premise queue of a snapshot, from which `advisor serve` forecasts the wait of a new job."""

from __future__ import annotations

import msgspec
import numpy as np

from advisor.arrays import Floats


class SeenQueue(msgspec.Struct, frozen=True, gc=False):
    """The jobs that run or wait on a machine on-premise, packed for the snapshot's file.

    Attributes:
        processors: Number of processors of the usable nodes.
        running: Bytes of a float64 array, shape ``(r, 4)``: processors, start (epoch seconds), time limit
            and expected run time (seconds) of each running job.
        waiting: Bytes of a float64 array, shape ``(w, 3)``: processors, time limit and expected run time
            (seconds) of each waiting job, in the order of the queue. The first tasks of an array are a row
            each; the rest of a large array is one row.
        partitions: The partitions whose jobs wait for it.
        before_small: Number of the first rows of ``waiting`` that are before a small job that is submitted
            now; None: all are.
    """

    processors: int
    running: bytes
    waiting: bytes
    partitions: tuple[str, ...] = ()
    before_small: int | None = None

    @classmethod
    def of(
        cls, processors: int, running: Floats, waiting: Floats, *, partitions: tuple[str, ...] = ()
    ) -> SeenQueue:
        """Pack the arrays."""
        return cls(processors, running.astype("<f8").tobytes(), waiting.astype("<f8").tobytes(), partitions)

    @property
    def running_jobs(self) -> Floats:
        """``running`` as an array.

        Raises:
            ValueError: It is damaged.
        """
        return np.frombuffer(self.running, "<f8").reshape(-1, 4)

    @property
    def waiting_jobs(self) -> Floats:
        """``waiting`` as an array.

        Raises:
            ValueError: It is damaged.
        """
        return np.frombuffer(self.waiting, "<f8").reshape(-1, 3)
