"""Match long tasks with nodes that are likely to survive (Agarwal et al., NSDI 2023, section 3.1.2).

The match loop does so with jobs and cloud nodes, `advisor replay stability` with tasks of a trace.

A task's expected worst-case completion on a node (Eq. 2) is ``a + p d + (1 - p)(w + r)``: the wait for the
node's cores, the run if nothing happens, else what is wasted until the change and the restart. Read literally
it does harm: every waiting task counts on the same cores becoming free, and a restart is expected on a node
that has just changed, so tasks wait too much. Ours differs in these points; each can be switched off:

* a waiting task reserves the cores it waits for, so that those behind it count on others;
* each node has its own change rate (``advisor.predict.survival.node_survival``);
* the longest of the tasks that can start chooses first, because in the queue's order short tasks would take
  the nodes that long ones need;
* no task waits for a better node while tasks request many more cores than are free: on nodes that fail
  often, idle cores cost more than restarts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.model.node_view import NodeRecords, NodeView
from advisor.predict.survival.hazard import stays, wasted
from advisor.predict.survival.node_survival import GROWTH, SurvivalModel

NOWHERE = -1
BACKLOG = 0.25
"""Share of all cores by which requested cores may exceed free ones while tasks still wait. With 0 each
arrival of a large job stops all waiting; without a bound overloaded nodes idle."""
_DEPTH = 64  # tasks that fit nowhere now, after which a decision ends
_MIN_CHANCE = 0.02  # a task that can hardly end anywhere would expect to restart for ever
_MIN_UNHURT = 1e-9  # powers of less are lost in rounding
_RESTART_POINTS = 5  # durations whose restarts are computed; between them they are interpolated


class MatchRules(NamedTuple):
    """Variants of Eq. 2.

    Attributes:
        waits: Delayed scheduling: busy nodes are considered too.
        reserves: A waiting task reserves the cores it waits for.
        longest_first: Among tasks that fit free cores the longest choose first; False: the queue's order.
        keeps_busy: No task waits for a better node while tasks request more than the free cores and
            ``BACKLOG``.
        shielded: When a node shrinks, the tasks whose loss costs least end first, so that a new task is ended
            only by a shrink beyond the spare cores. Off where nodes vanish whole or others choose which tasks
            end.
    """

    waits: bool = True
    reserves: bool = True
    longest_first: bool = True
    keeps_busy: bool = True
    shielded: bool = False


OURS = MatchRules()


class Timetable(NamedTuple):
    """Cores that become free or are taken on each node later on, by time; shape (nodes, entries)."""

    time: Floats
    cores: Ints
    entries: Ints
    free: Ints


@compiled
def _insert(table: Timetable, node: int, time: float, cores: int) -> None:
    at = table.entries[node]
    while at > 0 and table.time[node, at - 1] > time:
        table.time[node, at] = table.time[node, at - 1]
        table.cores[node, at] = table.cores[node, at - 1]
        at -= 1
    table.time[node, at] = time
    table.cores[node, at] = cores
    table.entries[node] += 1


@compiled
def _occupy(table: Timetable, node: int, begin: float, during: float, cores: int) -> None:
    """Reserve cores from ``begin`` on; if the timetable is full, nothing is reserved."""
    if table.entries[node] + 2 > table.time.shape[1]:
        return
    if begin <= 0.0:
        table.free[node] -= cores
    else:
        _insert(table, node, begin, -cores)
    _insert(table, node, begin + during, cores)


@compiled
def _available(table: Timetable, node: int, cores: int, during: float) -> float:
    """Seconds until a node has so many cores free for so long; infinite when never: a of Table 1."""
    free = table.free[node]
    begin = 0.0 if free >= cores else math.inf
    for at in range(table.entries[node]):
        time = table.time[node, at]
        if time >= begin + during:
            return begin
        free += table.cores[node, at]
        is_last_of_moment = at + 1 == table.entries[node] or table.time[node, at + 1] > time
        if not is_last_of_moment:
            continue
        if free < cores:
            begin = math.inf
        elif math.isinf(begin):
            begin = time
    return begin


@compiled
def _timetable(view: NodeView) -> Timetable:
    count = len(view.nodes)
    most = 0
    for node in range(count):
        most = max(most, view.nodes[node].running)
    entries = most + 2 * _DEPTH + 2
    table = Timetable(
        np.empty((count, entries)),
        np.empty((count, entries), np.int64),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
    )
    for node in range(count):
        this = view.nodes[node]
        table.free[node] = this.free
        for at in range(this.first, this.first + this.running):
            _insert(table, node, view.remaining[at], view.held[at])
    return table


@compiled
def chance(node: NodeRecords, stability: SurvivalModel, at: int, wait: float, during: float) -> float:
    """P_c of Eq. 1: the probability that no shrink ends a task on node number ``at``.

    It starts in ``wait`` seconds and runs for ``during`` seconds.
    """
    unchanged = stays(stability.hazard, stability.shape[at], stability.rate[at], node.age + wait, during)
    return float(1.0 - stability.shrink_after[node.last] * (1.0 - unchanged))


@compiled
def _restart(stability: SurvivalModel, during: float) -> float:
    """Expected seconds to completion after a restart, E_wc(g, 0, 0, d) of Eq. 2, solved for itself.

    As published the task restarts on a node that has just changed.
    """
    unchanged = stays(stability.hazard, math.inf, 1.0, 0.0, during)
    probability = 1.0 - stability.shrink_after[GROWTH] * (1.0 - unchanged)
    waste = (1.0 - probability) * wasted(stability.hazard, math.inf, 1.0, 0.0, during)
    return float(during + waste / max(probability, _MIN_CHANCE))


@compiled
def _restarts(stability: SurvivalModel, during: Floats) -> Floats:
    """Durations between the shortest and the longest task, and what a restart costs; shape (2, points)."""
    found = np.empty((2, _RESTART_POINTS))
    shortest, longest = during.min(), during.max()
    for at in range(_RESTART_POINTS):
        found[0, at] = shortest + (longest - shortest) * at / (_RESTART_POINTS - 1)
        found[1, at] = _restart(stability, found[0, at])
    return found


@compiled
def _between(restarts: Floats, during: float) -> float:
    """Interpolate the cost of a restart."""
    shortest, longest = restarts[0, 0], restarts[0, -1]
    if longest <= shortest:
        return float(restarts[1, 0])
    place = (during - shortest) / (longest - shortest) * (_RESTART_POINTS - 1)
    low = min(int(place), _RESTART_POINTS - 2)
    return float(restarts[1, low] + (place - low) * (restarts[1, low + 1] - restarts[1, low]))


@compiled
def _unhurt(stability: SurvivalModel, spare: int, p: float) -> float:
    """P_c under ``shielded``: from ``p``, the `chance` of a task, and the ``spare`` cores beside it.

    Tasks that start later get the spare cores and end before it. So the first shrink ends it only if it takes
    more than these. How far the next ones do is not known: half of the hazard counts in full.
    """
    taken = stability.larger[min(spare, len(stability.larger) - 1)]
    return float(max(p, _MIN_UNHURT) ** (0.5 + 0.5 * taken))


@compiled
def _place_one(
    view: NodeView,
    table: Timetable,
    stability: SurvivalModel,
    cores: int,
    during: float,
    may_wait: bool,  # noqa: FBT001 - compiled code takes no keywords cheaply
    again: float,
    shielded: bool,  # noqa: FBT001 - as above
) -> tuple[int, float]:
    """Best node for a task and the seconds until it is free there: Algorithm 1."""
    best, best_wait, least = NOWHERE, 0.0, math.inf
    for at in range(len(view.nodes)):
        node = view.nodes[at]
        if not node.open or node.cores < cores:
            continue
        wait = _available(table, at, cores, during)
        if wait + during >= least or (wait > 0.0 and not may_wait):
            continue  # no completion is expected before the task could end there undisturbed
        p = chance(node, stability, at, wait, during)
        if shielded and wait <= 0.0:
            p = _unhurt(stability, table.free[at] - cores, p)
        w = wasted(stability.hazard, stability.shape[at], stability.rate[at], node.age + wait, during)
        completion = wait + p * during + (1.0 - p) * (w + again)
        if completion < least:
            best, best_wait, least = at, wait, completion
    return best, best_wait


@compiled
def _order(cores: Ints, during: Floats, room: int, longest_first: bool) -> Ints:  # noqa: FBT001 - compiled
    """Order of choosing: tasks for which there are free cores, longest first; then the others as queued."""
    order = np.arange(len(cores))
    fit = 0
    while fit < len(cores) and cores[fit] <= room:
        room -= cores[fit]
        fit += 1
    if longest_first:
        order[:fit] = np.argsort(-during[:fit])
    return order


@compiled
def match(
    view: NodeView, cores: Ints, during: Floats, stability: SurvivalModel, rules: MatchRules = OURS
) -> Ints:
    """Choose for each waiting task the node on which it starts now, if any.

    Args:
        cores: int64 array, shape (tasks,): Cores of each waiting task, in the queue's order.
        during: float64 array, shape (tasks,): Expected run time of each, seconds.

    Returns:
        int64 array, shape (tasks,): Row of the node, or ``NOWHERE`` for a task that waits for the next event.
    """
    chosen = np.full(len(cores), NOWHERE)
    if len(cores) == 0:
        return chosen
    table = _timetable(view)
    tried = 0
    room, total = 0, 0
    for at in range(len(view.nodes)):
        if view.nodes[at].open:
            room += view.nodes[at].free
            total += view.nodes[at].cores
    order = _order(cores, during, room, rules.longest_first)
    excess = cores.sum() - room
    may_wait = rules.waits and (not rules.keeps_busy or excess <= BACKLOG * total)
    restarts = _restarts(stability, during)
    free = table.free.max() if len(table.free) else 0
    for task in order:
        if tried >= _DEPTH or free <= 0:
            break
        if cores[task] > free and not may_wait:
            continue
        again = _between(restarts, during[task])
        node, wait = _place_one(
            view, table, stability, cores[task], during[task], may_wait, again, rules.shielded
        )
        if node == NOWHERE:
            tried += int(may_wait)
            continue
        if wait <= 0.0:
            chosen[task] = node
            _occupy(table, node, 0.0, during[task], cores[task])
            free = table.free.max()
        else:
            tried += 1
            if rules.reserves:
                _occupy(table, node, wait, during[task], cores[task])
    return chosen
