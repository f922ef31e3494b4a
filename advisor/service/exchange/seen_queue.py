"""The on-premise queue of a snapshot, from which `advisor serve` forecasts the wait of a new job.

The simulator that reads it is imported late: commands that read a snapshot need no numba.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from advisor.arrays import Floats
from advisor.model.machine import Machine

if TYPE_CHECKING:
    from advisor.simulate.pool.closed_queue import ClosedQueue


class SeenQueue(msgspec.Struct, frozen=True, gc=False):
    """The jobs that run or wait on a machine on-premise, packed for the snapshot's file.

    Attributes:
        running: Bytes of a float64 array, shape ``(r, 3 + k + m)``: processors, start (epoch seconds), time
            limit and expected run time (seconds) of each running job, what it has of the machine's further
            resources, and what it takes of each row of ``reserved``.
        waiting: Bytes of a float64 array, shape ``(w, 2 + k)``: processors, time limit and expected run time
            (seconds) of each waiting job, and what it needs of the further resources, in the order of the
            queue. The first tasks of an array are a row each; the rest of a large array is one row.
        reserved, limited, groups: Bytes of the float64 arrays of `ClosedQueue`: what reservations take, and
            the jobs of groups that have a limit together.
        priorities: Bytes of a float64 array, shape ``(w,)``: Slurm's of each waiting job, descending; empty
            where they are not known.
        nodes: Bytes of a float64 array, shape ``(n, NODE_COLUMNS)``: the room on the nodes, as
            :func:`~advisor.simulate.pool.start_profile.no_sooner` reads it; empty where it is not known.
        before_small: Number of the first rows of ``waiting`` that are before a small job that is submitted
            now; None: all are.
    """

    machine: Machine
    running: bytes
    waiting: bytes
    reserved: bytes = b""
    limited: bytes = b""
    groups: bytes = bytes(8)
    priorities: bytes = b""
    nodes: bytes = b""
    before_small: int | None = None

    @classmethod
    def of(
        cls,
        machine: Machine,
        running: Floats,
        waiting: Floats,
        *others: Floats,
        priorities: Floats | None = None,
        nodes: Floats | None = None,
    ) -> SeenQueue:
        """Pack the arrays of a machine's `ClosedQueue`, in their order there; it needs none of the others."""
        from advisor.simulate.pool.closed_queue import ClosedQueue  # noqa: PLC0415 (loads numba)

        arrays = ClosedQueue(np.zeros(0), running, waiting, *others)[1:]
        here, behind, reserved, limited, groups = map(_packed, arrays)
        return cls(
            machine,
            here,
            behind,
            reserved,
            limited,
            groups,
            priorities=_packed(priorities),
            nodes=_packed(nodes),
        )

    def room(self) -> Floats:
        """The room on the nodes, writable: numba would compile anew for an array that is not.

        Raises:
            ValueError: It is damaged.
        """
        from advisor.simulate.pool.start_profile import NODE_COLUMNS  # noqa: PLC0415 (loads numba)

        return _array(self.nodes, NODE_COLUMNS).copy()

    def ranks(self) -> list[float]:
        """The waiting rows' priorities, ascending.

        Raises:
            ValueError: They are damaged.
        """
        found: list[float] = np.frombuffer(self.priorities, "<f8")[::-1].tolist()
        return found

    def closed(self, rows: int | None = None) -> ClosedQueue:
        """The queue, of its waiting jobs the first rows; None: all.

        Raises:
            ValueError: It is damaged.
        """
        from advisor.simulate.pool.closed_queue import ClosedQueue  # noqa: PLC0415 (loads numba)

        sizes, reserved = np.array(self.machine.sizes, np.float64), _array(self.reserved, 4)
        running = _array(self.running, 3 + len(sizes) + len(reserved))
        waiting = _array(self.waiting, 2 + len(sizes))[:rows]
        limited = _array(self.limited, 2)[: len(running) + len(waiting)]
        return ClosedQueue(sizes, running, waiting, reserved, limited, _array(self.groups, 1)[:, 0])


def _packed(array: Floats | None) -> bytes:
    return b"" if array is None else array.astype("<f8").tobytes()


def _array(packed: bytes, columns: int) -> Floats:
    return np.frombuffer(packed, "<f8").reshape(-1, columns)
