"""The on-premise queue of a snapshot, from which `advisor serve` forecasts the wait of a new job."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from advisor.arrays import Floats
from advisor.model.machine import Machine

_NONE: Final = np.zeros((0, 4))


class SeenQueue(msgspec.Struct, frozen=True, gc=False):
    """The jobs that run or wait on a machine on-premise, packed for the snapshot's file.

    Attributes:
        running: Bytes of a float64 array, shape ``(r, 3 + k + m)``: processors, start (epoch seconds), time
            limit and expected run time (seconds) of each running job, what it has of the machine's further
            resources, and what it takes of each row of ``reserved``.
        waiting: Bytes of a float64 array, shape ``(w, 2 + k)``: processors, time limit and expected run time
            (seconds) of each waiting job, and what it needs of the further resources, in the order of the
            queue. The first tasks of an array are a row each; the rest of a large array is one row.
        reserved: Bytes of a float64 array, shape ``(m, 4)``: what reservations take, as `ClosedQueue` has it.
        before_small: Number of the first rows of ``waiting`` that are before a small job that is submitted
            now; None: all are.
    """

    machine: Machine
    running: bytes
    waiting: bytes
    reserved: bytes = b""
    before_small: int | None = None

    @classmethod
    def of(cls, machine: Machine, running: Floats, waiting: Floats, reserved: Floats = _NONE) -> SeenQueue:
        """Pack the arrays."""
        packed = [array.astype("<f8").tobytes() for array in (running, waiting, reserved)]
        return cls(machine, packed[0], packed[1], packed[2])

    @property
    def running_jobs(self) -> Floats:
        """``running`` as an array.

        Raises:
            ValueError: It is damaged.
        """
        columns = 3 + len(self.machine.sizes) + len(self.reservations)
        return np.frombuffer(self.running, "<f8").reshape(-1, columns)

    @property
    def reservations(self) -> Floats:
        """``reserved`` as an array.

        Raises:
            ValueError: It is damaged.
        """
        return np.frombuffer(self.reserved, "<f8").reshape(-1, 4)

    @property
    def waiting_jobs(self) -> Floats:
        """``waiting`` as an array.

        Raises:
            ValueError: It is damaged.
        """
        return np.frombuffer(self.waiting, "<f8").reshape(-1, 2 + len(self.machine.sizes))
