"""Schedulers to compare with: the capacity scheduler and the clairvoyant one."""

from __future__ import annotations

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.decide.matching.matching import NOWHERE
from advisor.model.node_view import NodeRecords
from advisor.papers.stability.world.nodes import NodeChanges


@compiled
def any_node(nodes: NodeRecords, cores: Ints, draws: Floats) -> Ints:
    """Give each task in order a node with room, each equally likely: the paper's CapacityScheduler.

    YARN places a task on whichever node happens to report next. ``draws``: one number in [0, 1) a task.
    """
    chosen = np.full(len(cores), NOWHERE)
    free = np.empty(len(nodes), np.int64)
    for at in range(len(nodes)):
        free[at] = nodes[at].free if nodes[at].open else 0
    candidates = np.empty(len(nodes), np.int64)
    for task in range(len(cores)):
        count = 0
        for at in range(len(nodes)):
            if free[at] >= cores[task]:
                candidates[count] = at
                count += 1
        if count > 0:
            node = candidates[min(int(draws[task] * count), count - 1)]
            chosen[task] = node
            free[node] -= cores[task]
    return chosen


@compiled
def lasting_node(nodes: NodeRecords, cores: Ints, during: Floats, until_shrink: Floats) -> Ints:
    """Give each task in order a node that is sure to last until the task's end: the paper's Oracle.

    A task waits as long as there is none with room. Of several it gets the one that shrinks soonest, a choice
    that the paper leaves open. ``until_shrink``: seconds to each node's next shrink.
    """
    chosen = np.full(len(cores), NOWHERE)
    free = np.empty(len(nodes), np.int64)
    for at in range(len(nodes)):
        free[at] = nodes[at].free if nodes[at].open else 0
    for task in range(len(cores)):
        soonest = np.inf
        for at in range(len(nodes)):
            lasts = until_shrink[at] >= during[task] and (
                until_shrink[at] < soonest or chosen[task] == NOWHERE
            )
            if free[at] >= cores[task] and lasts:
                chosen[task], soonest = at, until_shrink[at]
        if chosen[task] != NOWHERE:
            free[chosen[task]] -= cores[task]
    return chosen


class Shrinks:
    """When each node shrinks next, for the clairvoyant.

    Args:
        changes: The whole truth.
    """

    def __init__(self, changes: NodeChanges) -> None:
        down = changes.after < changes.before()
        self._times = [changes.time[down & (changes.node == node)] for node in range(changes.nodes)]
        self._next = np.zeros(changes.nodes, np.int64)

    def after(self, now: float, rows: Ints) -> Floats:
        """Seconds to the next shrink of nodes; infinite when there is none."""
        found = np.full(len(rows), np.inf)
        for at, node in enumerate(rows):
            times = self._times[node]
            place = self._next[node]
            while place < len(times) and times[place] <= now:
                place += 1
            self._next[node] = place
            if place < len(times):
                found[at] = times[place] - now
        return found
