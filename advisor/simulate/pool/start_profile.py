"""The start of a job that joins the end of a queue, from one simulation of the queue without it.

Under EASY backfilling the last job of a queue delays no other job before it starts itself. So it starts at
the first scheduling pass that leaves it room: the free processors suffice, and it either ends before the
head's reservation or takes only processors that stay free then.

The submission path needs this wait for every job, and a simulation for each would take too long. So one
simulation, by the run times that are expected, is made for each snapshot of the queue, and serves every job
that might join it: finding a start in it takes a microsecond.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled, compiled_in_place
from advisor.simulate.pool._kernel import advance
from advisor.simulate.pool._state import EXTRA, FREE, Arrays
from advisor.simulate.pool.closed_queue import NONE_RESERVED, ClosedQueue, simulation_of

NODE_SLOTS: Final = 4
"""The ends of running jobs of a node that are told apart."""
NODE_COLUMNS: Final = 4 + 3 * NODE_SLOTS
"""Of an array of nodes: how many are alike; the bits of the subsets that they are in; the processors and the
memory that are free; and of each job that runs there its end, and the processors and memory it gives back."""
_HALVINGS: Final = 60
_FOUND: Final = 32
"""Number of the last starts found that are remembered."""


class StartProfile:
    """What each scheduling pass leaves free, with the jobs that have joined the queue.

    Args:
        passes: Shape ``(2 + 2 (k + m), n)``: the times of the passes, seconds, ascending; when the head of
            the queue is reserved to start, seconds, infinite where no job waits; and of each of the ``k``
            resources, processors first, and each row of ``reserved``, what is free, and what stays free at
            the head's start.
        reserved: See `ClosedQueue`, shape ``(m, 4)``.
    """

    def __init__(self, passes: Floats, reserved: Floats = NONE_RESERVED) -> None:
        self._passes = passes
        self._reserved = reserved
        self._count = passes.shape[1]
        self._found = np.full((1 + len(passes) // 2 - len(reserved), _FOUND), np.inf)
        self._oldest = np.zeros(1, np.int64)

    @property
    def passes(self) -> Floats:
        """As given, with two passes for each job that has joined."""
        return self._passes[:, : self._count]

    def copy(self) -> StartProfile:
        """Return a profile that other jobs may join."""
        return StartProfile(self.passes.copy(), self._reserved)

    def start_of(self, needs: Floats, limit: float, now: float) -> float:
        """When a job that joins now would start, seconds; infinite where the machine is too small.

        Args:
            needs: What it takes of each resource, shape ``(k,)``.
            limit: Its time limit, seconds.
            now: The present time, seconds, not before the first pass.
        """
        found = self._found, self._oldest
        return _start_of(self._passes, self._count, self._reserved, *found, needs, limit, now)

    def join(self, needs: Floats, limit: float, now: float, run: float) -> None:
        """Let a job join the queue, without a new simulation.

        The job keeps the start that it has now. In a whole simulation it might delay jobs that wait before it
        and are not the head, and jobs that join later might delay it: the next simulation shows that.

        Args:
            run: Its expected run time, seconds.
        """
        if self._count + 2 > self._passes.shape[1]:
            more = np.empty((len(self._passes), 2 * self._count + 2))
            more[:, : self._count] = self.passes
            self._passes = more
        start = self.start_of(needs, limit, now)
        if start < np.inf:
            times = start, start + min(run, limit), start + limit
            _join(self._passes, self._count, self._reserved, needs, times)
            self._count += 2


class QueueProfiles(NamedTuple):
    """The profiles of one queue.

    Attributes:
        expected: Jobs run as long as expected.
        planned: Jobs run to their limits.
    """

    expected: StartProfile
    planned: StartProfile


def queue_profiles(queue: ClosedQueue, now: float) -> QueueProfiles:
    """Both profiles; see :func:`start_profile`."""
    return QueueProfiles(start_profile(queue, now), start_profile(queue.run_to_limits(), now))


def start_profile(queue: ClosedQueue, now: float) -> StartProfile:
    """Simulate a queue until it is empty. Jobs are planned by their limits, as Slurm does.

    Args:
        now: The present time, seconds, on the clock of the starts.
    """
    arrays = simulation_of(queue, now)
    resources = len(queue.sizes) + len(queue.reserved)
    found = np.empty((2 + 2 * resources, 2 * len(arrays.jobs) + 2))
    # a copy: numba would compile anew, within an answer, for the read-only array of a snapshot
    return StartProfile(found[:, : _follow(arrays, found)].copy(), queue.reserved.copy())


@compiled
def _follow(arrays: Arrays, found: Floats) -> int:
    """Write the passes to ``found``, as `StartProfile` has them; return their number."""
    scalars, ending = arrays.scalars[0], arrays.ending
    until, count = scalars.now, 0
    while count < found.shape[1]:
        advance(arrays, until, arrays.events.shape[0])
        is_empty = scalars.waiting == 0
        found[0, count] = scalars.now
        found[1, count] = np.inf if is_empty else scalars.shadow
        found[2, count] = scalars.free
        found[3, count] = scalars.free if is_empty else scalars.extra
        for k in range(arrays.stock.shape[1]):
            found[4 + 2 * k, count] = arrays.stock[FREE, k]
            found[5 + 2 * k, count] = arrays.stock[FREE if is_empty else EXTRA, k]
        count += 1
        if scalars.endings == 0:
            break
        until = ending[0].time
    return count


@compiled_in_place
def _start_of(
    passes: Floats,
    count: int,
    reserved: Floats,
    found: Floats,
    oldest: Ints,
    needs: Floats,
    limit: float,
    now: float,
) -> float:
    """Find a start; a column of ``found`` keeps the start, the limit and the needs of a job.

    Jobs that join only take room, so a job starts no sooner than a smaller one did.
    """
    times, shadows = passes[0], passes[1]
    no_sooner, place = now, -1
    for j in range(found.shape[1]):
        if found[1, j] <= limit and _is_at_most(found[2:, j], needs):
            no_sooner = max(no_sooner, found[0, j])
            if found[1, j] == limit and _is_at_most(needs, found[2:, j]):
                place = j
    first = max(0, int(np.searchsorted(times[:count], no_sooner, side="right")) - 1)
    while first > 0 and times[first - 1] == times[first] > now:
        first -= 1
    start = np.inf
    for i in range(first, count):
        time = max(float(times[i]), now)
        if _has_room(passes[2:, i], reserved, needs, time, time + limit, shadows[i]):
            start = time
            break
    if place < 0:
        place = oldest[0]
        oldest[0] = (place + 1) % found.shape[1]
    found[0, place], found[1, place] = start, limit
    for k in range(len(needs)):
        found[2 + k, place] = needs[k]
    return start


@compiled_in_place
def _is_at_most(needs: Floats, others: Floats) -> bool:
    is_less = True
    for k in range(len(needs)):
        is_less = is_less and needs[k] <= others[k]
    return is_less


@compiled_in_place
def _meets(reserved: Floats, j: int, start: float, planned_end: float) -> bool:
    """Whether a job may run within the time of a reservation."""
    return bool(start < reserved[j, 1] and planned_end > reserved[j, 0])


@compiled_in_place
def _has_room(
    left: Floats, reserved: Floats, needs: Floats, start: float, planned_end: float, shadow: float
) -> bool:
    """Whether what a pass leaves suffices for a job that would start then and be planned to end then."""
    fits = True
    for k in range(len(needs)):
        fits = fits and needs[k] <= left[2 * k] and (planned_end <= shadow or needs[k] <= left[2 * k + 1])
    for j in range(len(reserved)):
        if _meets(reserved, j, start, planned_end):
            need, k = needs[int(reserved[j, 2])], len(needs) + j
            now, then = max(0.0, left[2 * k]), left[2 * k + 1]
            fits = fits and need <= now and (planned_end <= shadow or need <= then)
    return fits


@compiled
def _takes(reserved: Floats, needs: Floats, start: float, planned_end: float) -> Floats:
    """What a job takes of the resources and of what reservations leave."""
    takes = np.zeros(len(needs) + len(reserved))
    takes[: len(needs)] = needs
    for j in range(len(reserved)):
        if _meets(reserved, j, start, planned_end):
            takes[len(needs) + j] = needs[int(reserved[j, 2])]
    return takes


@compiled
def _join(
    passes: Floats, count: int, reserved: Floats, needs: Floats, when: tuple[float, float, float]
) -> None:
    """Add passes at a job's start and end, and take what it needs between them.

    ``when``: its start, end and planned end.
    """
    start, end, planned_end = when
    takes = _takes(reserved, needs, start, planned_end)
    times, shadows = passes[0], passes[1]
    first = int(np.searchsorted(times[:count], start, side="left"))
    at_start = int(np.searchsorted(times[:count], start, side="right"))
    at_end = int(np.searchsorted(times[:count], end, side="right"))
    for column in passes:
        before, last = column[max(0, at_start - 1)], column[max(0, at_end - 1)]
        for i in range(count - 1, at_end - 1, -1):
            column[i + 2] = column[i]
        for i in range(at_end - 1, at_start - 1, -1):
            column[i + 1] = column[i]
        column[at_start], column[at_end + 1] = before, last
    times[at_start], times[at_end + 1] = start, end
    for i in range(first, at_end + 1):
        if times[i] >= end:
            break
        is_later = planned_end > shadows[i] or shadows[i] == np.inf
        for k in range(len(takes)):
            passes[2 + 2 * k, i] -= takes[k]
            if is_later:
                passes[3 + 2 * k, i] = max(0.0, passes[3 + 2 * k, i] - takes[k])
    for i in range(first - 1, -1, -1):
        if shadows[i] != np.inf:
            break
        shadows[i] = start  # no job waits before it: it is the head
        passes[3::2, i] = passes[2::2, at_start]


@compiled
def no_sooner(nodes: Floats, room: Floats, now: float) -> float:
    """The moment at which enough nodes have room for a job, if no other job takes it; infinite: never.

    A queue that counts what all nodes have together lets a job start where no single node has enough.

    Args:
        nodes: Shape ``(n, NODE_COLUMNS)``, times in seconds.
        room: Bits of the subsets in which the nodes have to be; their number; the processors and the memory
            that each must have; and 1 where nothing else may run there, else 0.
        now: The present time, seconds.
    """
    times, last = np.empty(len(nodes)), now
    for i in range(len(nodes)):
        times[i] = _room_at(nodes[i], room, now)
        if times[i] < np.inf:
            last = max(last, times[i])
    if _number_by(nodes, times, now) >= room[1]:
        return now
    if _number_by(nodes, times, last) < room[1]:
        return np.inf
    # not by np.argsort: numba 0.68 crashes where the caches of several functions have sorts of their own
    before, after = now, last
    for _ in range(_HALVINGS):
        middle = 0.5 * (before + after)
        if _number_by(nodes, times, middle) >= room[1]:
            after = middle
        else:
            before = middle
    found = np.inf
    for i in range(len(nodes)):
        if times[i] > before:
            found = min(found, times[i])
    return found


@compiled_in_place
def _number_by(nodes: Floats, times: Floats, time: float) -> float:
    """The number of nodes that have room by then."""
    number = 0.0
    for i in range(len(nodes)):
        if times[i] <= time:
            number += nodes[i, 0]
    return number


@compiled_in_place
def _room_at(node: Floats, room: Floats, now: float) -> float:
    """When a node has room; infinite: never."""
    if int(node[1]) & int(room[0]) != int(room[0]):
        return np.inf
    free, left, time = node[2], node[3], now
    for k in range(4, NODE_COLUMNS, 3):
        if room[4] == 0.0 and free >= room[2] and left >= room[3]:
            break
        if node[k + 1] > 0.0:
            free, left, time = free + node[k + 1], left + node[k + 2], max(time, node[k])
    return time if free >= room[2] and left >= room[3] else np.inf
