"""The event loop of a cluster of changing nodes, compiled.

Rules (Agarwal et al., section 4.1): a task takes its cores from start to end and gains nothing from more.
When a node shrinks below what its tasks use, tasks are killed in increasing order of their start time until
the rest fits, or the caller is asked which; they start again from nothing, or from their last checkpoint. At
one moment: ends first, then changes, then arrivals, then a decision. The kernel stops when a decision is due
and leaves it to the caller.
"""

from __future__ import annotations

import math

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.papers.stability.world._state import (
    DONE,
    DROPPED,
    FINISHED,
    RUNNING,
    SCHEDULE,
    SHORT,
    TICK,
    WAITING,
    Checkpoints,
    State,
)
from advisor.simulate.heap import Records, heap_pop, heap_push

_GROWTH, _SHRINK = 0, 1


@compiled
def _queue_insert(queue: Ints, cluster: Records, row: int) -> None:
    at = cluster[0].waiting
    while at > 0 and queue[at - 1] > row:
        queue[at] = queue[at - 1]
        at -= 1
    queue[at] = row
    cluster[0].waiting += 1


@compiled
def _queue_remove(queue: Ints, cluster: Records, row: int) -> None:
    count = cluster[0].waiting
    at = np.searchsorted(queue[:count], row)
    for later in range(at, count - 1):
        queue[later] = queue[later + 1]
    cluster[0].waiting -= 1


@compiled
def _leave_node(state: State, row: int) -> None:
    """Give a running task's cores back."""
    task = state.task[row]
    node = state.node[task.node]
    mine = state.running[task.node]
    at = 0
    while mine[at] != row:
        at += 1
    for later in range(at, node.running - 1):
        mine[later] = mine[later + 1]
    node.running -= 1
    node.used -= task.cores
    state.cluster[0].dirty = 1
    if node.draining and node.running == 0:
        release(state, task.node)


@compiled
def _saved(checkpoints: Checkpoints, elapsed: float) -> float:
    """Work that survives a kill after so many seconds."""
    if math.isinf(checkpoints.every):
        return 0.0
    return math.floor(elapsed / (checkpoints.every + checkpoints.cost)) * checkpoints.every


@compiled
def _stop(state: State, checkpoints: Checkpoints, row: int) -> None:
    """End a running attempt that will not finish: what it did and did not save is lost."""
    task = state.task[row]
    it = state.cluster[0]
    elapsed = it.now - task.start
    saved = min(_saved(checkpoints, elapsed), task.duration - task.done_before)
    task.done_before += saved
    it.wasted += (elapsed - saved) * task.cores
    it.useful += saved * task.cores
    _leave_node(state, row)


@compiled
def _drop(state: State, checkpoints: Checkpoints, row: int) -> None:
    """A copy is not needed any more: another one is done."""
    task = state.task[row]
    if task.where == RUNNING:
        before = state.cluster[0].useful
        _stop(state, checkpoints, row)
        state.cluster[0].wasted += state.cluster[0].useful - before  # saved for nobody
        state.cluster[0].useful = before
    elif task.where == WAITING:
        _queue_remove(state.queue, state.cluster, row)
    task.where = DROPPED


@compiled
def _end_due(state: State, checkpoints: Checkpoints) -> None:
    it = state.cluster[0]
    while it.endings > 0 and state.ending[0].time <= it.now:
        time, row = state.ending[0].time, state.ending[0].job
        heap_pop(state.ending, it.endings)
        it.endings -= 1
        task = state.task[row]
        if task.where != RUNNING or task.end != time:
            continue  # killed meanwhile
        work = task.duration - task.done_before
        it.useful += work * task.cores
        it.wasted += (it.now - task.start - work) * task.cores  # checkpointing
        task.where = DONE
        it.open -= 1
        _leave_node(state, row)
        original = task.original
        if original != row:
            _drop(state, checkpoints, original)
            state.task[original].where = DONE
            state.task[original].end = it.now
        for copy in state.copies[original]:
            if copy != row:
                _drop(state, checkpoints, copy)


@compiled
def _note_interval(state: State, who: int, completed: int, ended: int, size: float) -> None:
    """Remember how long a node stayed as it was; nobody watches nodes that are down."""
    node = state.node[who]
    it = state.cluster[0]
    if node.cores > 0 and it.now > node.changed:
        found = state.interval[it.intervals]
        found.node, found.start, found.end = who, node.changed, it.now
        found.completed, found.began, found.ended, found.size = completed, node.last, ended, size
        it.intervals += 1


@compiled
def release(state: State, who: int) -> None:
    """Give an empty node back."""
    _note_interval(state, who, 0, _GROWTH, 0.0)
    state.node[who].rented = 0
    state.node[who].draining = 0


@compiled
def rent(state: State, who: int) -> None:
    """Get a node: of it nothing is known, so it counts as grown just now (the paper's Table 1)."""
    node = state.node[who]
    node.rented, node.draining, node.last = 1, 0, _GROWTH
    node.changed = state.cluster[0].now
    state.cluster[0].dirty = 1


@compiled
def preempt(state: State, checkpoints: Checkpoints, row: int) -> None:
    """A running task gives way and waits again."""
    task = state.task[row]
    task.where = WAITING
    task.preempted += 1
    state.cluster[0].preemptions += 1
    _stop(state, checkpoints, row)
    _queue_insert(state.queue, state.cluster, row)


@compiled
def _settle(state: State, checkpoints: Checkpoints, who: int) -> None:
    """What has no room on a node that has changed is killed, oldest first; an empty one may be given back."""
    node = state.node[who]
    while node.used > node.cores:
        preempt(state, checkpoints, state.running[who, 0])
    if node.rented and node.draining and node.running == 0:
        release(state, who)


@compiled
def _change_due(state: State, checkpoints: Checkpoints, asks: bool) -> bool:  # noqa: FBT001 - compiled
    """Everything that changes now; False after a change upon which the caller chooses who gives way."""
    it = state.cluster[0]
    while it.changes < len(state.time) and state.time[it.changes] <= it.now:
        who, after = state.who[it.changes], state.after[it.changes]
        it.changes += 1
        node = state.node[who]
        if node.rented:
            direction = _SHRINK if after < node.cores else _GROWTH
            _note_interval(state, who, 1, direction, abs(after - node.cores))
            node.last, node.changed = direction, it.now
            it.dirty = 1
        node.cores = after
        if asks and node.used > after > 0:
            it.short = who
            return False
        _settle(state, checkpoints, who)
    return True


@compiled
def _arrive_due(state: State) -> None:
    it = state.cluster[0]
    originals = len(state.copies)
    while it.arrived < originals and state.task[it.arrived].submit <= it.now:
        row = it.arrived
        it.arrived += 1
        it.dirty = 1
        state.task[row].where = WAITING
        _queue_insert(state.queue, state.cluster, row)
        for copy in state.copies[row]:
            state.task[copy].where = WAITING
            _queue_insert(state.queue, state.cluster, copy)


@compiled
def _next_moment(state: State) -> float:
    """When something happens next; infinite: never."""
    it = state.cluster[0]
    time = math.inf
    if it.arrived < len(state.copies):
        time = state.task[it.arrived].submit
    if it.endings > 0:
        time = min(time, state.ending[0].time)
    if it.changes < len(state.time):
        time = min(time, state.time[it.changes])
    return time


@compiled
def advance(state: State, checkpoints: Checkpoints, until: float, asks: bool) -> int:  # noqa: FBT001 - compiled
    """Go on to the next decision, to ``until``, or to the end; returns why it stopped.

    With ``asks`` it stops where a node has shrunk to less than its tasks use (``SHORT``): the caller ends
    those that give way and calls again. What still has no room then is killed oldest first.
    """
    it = state.cluster[0]
    while it.open > 0:
        if it.short >= 0:  # in the middle of a moment
            _settle(state, checkpoints, it.short)
            it.short = -1
        else:
            if it.dirty and it.waiting > 0:
                return SCHEDULE
            it.dirty = 0
            time = _next_moment(state)
            if time > until or time == math.inf:
                if until < math.inf:
                    it.now = max(it.now, until)
                return TICK
            it.now = max(it.now, time)
            _end_due(state, checkpoints)
        if not _change_due(state, checkpoints, asks):
            return SHORT
        _arrive_due(state)
    return FINISHED


@compiled
def start(state: State, checkpoints: Checkpoints, rows: Ints, nodes: Ints) -> int:
    """Start waiting tasks on nodes; returns how many did, fewer where a placement was impossible."""
    it = state.cluster[0]
    started = 0
    for at in range(len(rows)):
        row, who = rows[at], nodes[at]
        task, node = state.task[row], state.node[who]
        fits = node.rented and not node.draining and node.cores - node.used >= task.cores
        if task.where != WAITING or not fits:
            continue
        _queue_remove(state.queue, state.cluster, row)
        work = task.duration - task.done_before
        taken = 0.0 if math.isinf(checkpoints.every) else max(math.ceil(work / checkpoints.every) - 1.0, 0.0)
        task.where, task.node, task.start = RUNNING, who, it.now
        task.end = it.now + work + taken * checkpoints.cost
        task.attempts += 1
        state.running[who, node.running] = row
        node.running += 1
        node.used += task.cores
        heap_push(state.ending, it.endings, task.end, row)
        it.endings += 1
        started += 1
    return started


@compiled
def look(state: State, rented: Ints, nodes: Records, remaining: Floats, held: Ints) -> None:
    """Fill in what a scheduler sees of the nodes of some rows: estimates, never true ends.

    A task that outlives its estimate is expected to run as long again as it has.
    """
    now = state.cluster[0].now
    entry = 0
    for at in range(len(rented)):
        who = rented[at]
        node, seen = state.node[who], nodes[at]
        seen.age, seen.cores, seen.last = now - node.changed, node.cores, node.last
        seen.free = max(node.cores - node.used, 0)
        seen.open = 1 - node.draining
        seen.first, seen.running = entry, node.running
        for slot in range(node.running):
            task = state.task[state.running[who, slot]]
            elapsed = now - task.start
            left = task.estimate - task.done_before - elapsed
            if left <= 0.0:
                left = max(elapsed, 1.0)
            place = entry + slot
            while place > entry and remaining[place - 1] > left:
                remaining[place], held[place] = remaining[place - 1], held[place - 1]
                place -= 1
            remaining[place], held[place] = left, task.cores
        entry += node.running
