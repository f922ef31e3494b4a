"""Compiled plan of Slurm's backfill scheduler, node by node, for jobs that take whole nodes.

It follows ``_attempt_backfill`` of sched/backfill and ``_will_run_test`` of select/cons_tres (Slurm 22.05): a
reservation is a set of nodes from its start to its end; a later job starts if it finds enough nodes that are
free now and not reserved before it ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.arrays import Bools, Floats, Ints
from advisor.compiled import compiled

_MAX_TRIES = 1000


class Running(NamedTuple):
    """Planned ends, ascending; those of other partitions; which of the first has each node, or -1."""

    ends: Floats
    others: Floats
    holder: Ints


@compiled
def pick_nodes(usable: Bools, count: int, chosen: Bools) -> None:
    """Choose ``count`` of the usable nodes: the smallest row of neighbours that suffices, or the longest."""
    chosen[:] = False
    left = usable.copy()
    while count > 0:
        best, best_length, length = -1, 0, 0
        for node in range(len(left) + 1):
            if node < len(left) and left[node]:
                length += 1
                continue
            if length and (
                best < 0
                or (length >= count and (best_length < count or length < best_length))
                or (length < count and length > best_length)
            ):
                best, best_length = node - length, length
            length = 0
        for node in range(best, best + min(count, best_length)):
            chosen[node], left[node] = True, False
        count -= min(count, best_length)


@compiled
def will_run(
    running: Running, avail: Bools, count: int, now: float, window: tuple[float, float], chosen: Bools
) -> float:
    """When ``count`` of the nodes ``avail`` are free by the limits of what runs; infinite: never.

    Jobs whose planned ends lie in one window are counted as ended at the last of them. The first window goes
    from the first end to the next multiple of ``window[0]`` seconds and one window more; each further one is
    longer by ``window[1]``, or twice as long where that is 0; ``window[0]`` 0: each job counts by itself.
    """
    total = len(running.ends)
    freed = np.zeros(total + 1, np.int64)  # the last: free now
    for node in range(len(avail)):
        if avail[node]:
            freed[running.holder[node]] += 1
    found = freed[total]
    last, time = -1, now
    done = 0
    limit, length = -np.inf, window[0]
    while found < count:
        if limit == -np.inf and window[0] > 0.0:
            limit = _first_limit(running.ends, freed, window[0])
        group, done, following = _end_of_group(running, freed, done, limit + length)
        if group < 0:
            return np.inf
        found += np.sum(freed[last + 1 : group + 1])
        last, time = group, max(running.ends[group], now + 1.0)
        if window[0] > 0.0 and following < np.inf:
            length += window[1] if window[1] > 0.0 else length
            while following > limit + length:
                length += window[1] if window[1] > 0.0 else length
    usable = np.empty(len(avail), np.bool_)
    for node in range(len(avail)):
        usable[node] = avail[node] and running.holder[node] <= last
    pick_nodes(usable, count, chosen)
    return float(time)


@compiled
def _first_limit(ends: Floats, freed: Ints, window: float) -> float:
    """The first multiple of the window behind the first end that frees a node."""
    for member in range(len(ends)):
        if freed[member]:
            return float(ends[member] + window - ends[member] % window)
    return np.inf


@compiled
def _end_of_group(running: Running, freed: Ints, done: int, limit: float) -> tuple[int, int, float]:
    """The last job that frees a node in a window that ends at ``limit``, or -1; the next job; the next end.

    Whether the window is over is asked only behind a job that frees a node, and of the next end of *any*
    partition. Where that one lies in the window, the next job that frees a node belongs to the group whenever
    it ends.
    """
    total, group, following = len(running.ends), -1, np.inf
    while done < total:
        end = running.ends[done]
        done += 1
        if freed[done - 1] == 0:
            continue
        group = done - 1
        following = running.ends[done] if done < total else np.inf
        other = np.searchsorted(running.others, end, side="right")
        if other < len(running.others):
            following = min(following, running.others[other])
        if following > limit:
            break
    return group, done, following


@compiled
def planned_start(
    running: Running,
    times: Floats,
    open_nodes: Bools,
    steps: int,
    job: tuple[int, float, bool],
    window: tuple[float, float],
    chosen: Bools,
) -> float:
    """When a job may start on the nodes ``chosen`` beside the reservations; infinite: not, or not now.

    ``open_nodes[i]``: nodes that no job has reserved from ``times[i]`` to ``times[i + 1]``; ``job``: its
    nodes, its limit, and whether it may get a reservation.
    """
    count, limit, may_reserve = job
    now = times[0]
    avail = np.empty(open_nodes.shape[1], np.bool_)
    begin = now
    for _ in range(_MAX_TRIES):
        later = _usable(times, open_nodes, steps, begin, begin + limit, avail)
        start = will_run(running, avail, count, now, window, chosen)
        start = max(start, begin)
        if start <= now:
            return float(now)
        if not may_reserve:
            return np.inf
        if later < np.inf and start > later:
            begin = later
        elif start == np.inf:
            return np.inf
        elif _overlaps(times, open_nodes, steps, start, start + limit, chosen):
            begin = start
        else:
            return float(start)
    return np.inf


@compiled
def _usable(times: Floats, open_nodes: Bools, steps: int, begin: float, end: float, avail: Bools) -> float:
    """Find the nodes that are open from ``begin`` to ``end``, and when others open; infinite: never."""
    avail[:] = True
    later = np.inf
    for step in range(steps):
        until = times[step + 1] if step + 1 < steps else np.inf
        if until <= begin:
            continue
        if step + 1 < steps and later == np.inf:
            for node in range(len(avail)):
                if open_nodes[step + 1, node] and not (avail[node] and open_nodes[step, node]):
                    later = until
                    break
        if times[step] > end:
            break
        for node in range(len(avail)):
            avail[node] = avail[node] and open_nodes[step, node]
    return later


@compiled
def _overlaps(times: Floats, open_nodes: Bools, steps: int, start: float, end: float, chosen: Bools) -> bool:
    for step in range(steps):
        until = times[step + 1] if step + 1 < steps else np.inf
        if times[step] < end and until > start:
            for node in range(len(chosen)):
                if chosen[node] and not open_nodes[step, node]:
                    return True
    return False


@compiled
def reserve(times: Floats, open_nodes: Bools, steps: int, start: float, end: float, chosen: Bools) -> int:
    """Close the nodes ``chosen`` from ``start`` to ``end``; the new number of steps, larger by 2 at most."""
    for time in (start, end):
        place = steps
        while place > 0 and times[place - 1] > time:
            place -= 1
        if times[place - 1] != time:
            for step in range(steps, place, -1):
                times[step] = times[step - 1]
                open_nodes[step] = open_nodes[step - 1]
            times[place] = time
            open_nodes[place] = open_nodes[place - 1]
            steps += 1
    for step in range(steps):
        if start <= times[step] < end:
            for node in range(len(chosen)):
                open_nodes[step, node] = open_nodes[step, node] and not chosen[node]
    return steps
