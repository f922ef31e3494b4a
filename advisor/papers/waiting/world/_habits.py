"""What a user's finished jobs say about the next one, kept while the world turns.

Three kinds of habit, each by a code of the job: its user, what the user runs, and the user's jobs that asked
for the same processors and time. A finished job is learned from at the moment it ends in this world.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.papers.waiting.world._state import Forest
from advisor.papers.waiting.world._trees import between, leaf_of
from advisor.simulate.heap import Records

KINDS: Final = 3
_PER_KIND: Final = 7
_OWN: Final = 6
RUN_FEATURES: Final = _OWN + KINDS * _PER_KIND
HABIT: Final = 7
"""Columns of a habit: newest three run times, number, weighted share of short ones, weighted log of the run
time, last submission."""

_WEIGHT: Final = 0.2  # of the newest job: about the last ten count
_UNKNOWN: Final = -1.0
NOT_SURE: Final = 0.9  # a few jobs make nobody sure of the next one
_WEEK: Final = 604_800.0
_DAY: Final = 86_400.0


@compiled
def look(job: Records, row: int, habits: Floats, out: Floats) -> None:
    """Fill ``out`` for a job that is submitted now, and note its submission."""
    this = job[row]
    now = this.submit
    out[0] = this.processors
    out[1] = this.requested
    out[2] = now % _DAY
    out[3] = now % _WEEK
    out[4] = this.queue_code
    out[5] = this.user
    for kind in range(KINDS):
        code = this.user if kind == 0 else this.program if kind == 1 else this.alike
        habit = habits[code]
        at = _OWN + kind * _PER_KIND
        for back in range(3):
            out[at + back] = habit[back] if habit[3] > back else _UNKNOWN
        out[at + 3] = habit[3]
        out[at + 4] = habit[4] if habit[3] > 0 else _UNKNOWN
        out[at + 5] = habit[5] if habit[3] > 0 else _UNKNOWN
        out[at + 6] = min(now - habit[6], _WEEK)
        habit[6] = now


@compiled
def learn(job: Records, row: int, short: float, habits: Floats) -> None:
    """Learn from a job that ended."""
    this = job[row]
    for kind in range(KINDS):
        code = this.user if kind == 0 else this.program if kind == 1 else this.alike
        habit = habits[code]
        habit[2] = habit[1]
        habit[1] = habit[0]
        habit[0] = this.run
        habit[3] += 1.0
        weight = max(_WEIGHT, 1.0 / habit[3])
        habit[4] += weight * ((1.0 if this.run <= short else 0.0) - habit[4])
        habit[5] += weight * (np.log1p(this.run) - habit[5])


@compiled
def guess(job: Records, row: int, habits: Floats) -> None:
    """Forecast without trees: the mean of the user's two last jobs, never above the request."""
    this = job[row]
    habit = habits[this.user]
    known = this.requested
    if habit[3] >= 2.0:
        known = min(known, (habit[0] + habit[1]) / 2.0)
    this.mean_run = known
    this.median_run = known
    this.short_chance = min(habit[4], NOT_SURE) if habit[3] >= 2.0 else NOT_SURE


@compiled
def forecast(job: Records, row: int, habits: Floats, runs: Forest, short: float, seen: Floats) -> None:
    """Forecast a job's run time by the trees there are, and keep in ``seen`` what they were asked."""
    guess(job, row, habits)
    look(job, row, habits, seen)
    if len(runs.roots) == 0:
        return
    this = job[row]
    edges = runs.edges
    tail = np.zeros(len(edges))
    mean = 0.0
    for root in runs.roots:
        leaf = leaf_of(runs, root, seen)
        mean += runs.mean[leaf]
        tail += runs.tail[leaf]
    tail /= len(runs.roots)
    this.mean_run = min(mean / len(runs.roots), this.requested)
    this.short_chance = 1.0 - between(edges, tail, short)
    at = 1
    while at < len(edges) - 1 and tail[at] > 0.5:
        at += 1
    share = (tail[at - 1] - 0.5) / max(tail[at - 1] - tail[at], 1e-9)
    this.median_run = edges[at - 1] + min(max(share, 0.0), 1.0) * (edges[at] - edges[at - 1])
