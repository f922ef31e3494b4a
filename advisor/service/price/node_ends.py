"""What is free on each node of a machine, and when its running jobs give back what, for forecasts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.model.cluster import Node
from advisor.model.snapshot import QueuedJob
from advisor.simulate.pool.start_profile import NODE_COLUMNS, NODE_SLOTS

_UNLIMITED: Final = float("inf")
_MAX_ROWS: Final = 10_000
"""Nodes that differ: 1.3 MB of the snapshot. Of more nothing is said, so that no job waits for room."""


def node_ends(
    nodes: Sequence[Node],
    members: Sequence[Collection[str]],
    jobs_on: Mapping[str, Sequence[QueuedJob]],
    ends: Mapping[int, float],
    *,
    shares_memory: bool,
) -> Floats:
    """The nodes as :func:`~advisor.simulate.pool.start_profile.no_sooner` reads them.

    Args:
        members: The names of the nodes of each subset of the machine.
        jobs_on: The jobs that run on each node. How a job is spread over several nodes is not known: each has
            what does not fit on the others, one processor at least. That too much seems to be free is better
            than that a job seems to wait.
        ends: Job id to its expected end, epoch seconds. Other jobs hold nothing.

    Returns:
        One row for all nodes that are alike, shape ``(n, NODE_COLUMNS)``; none where there are too many.
    """
    counted: Counter[tuple[float, ...]] = Counter()
    room_of = _room_of(nodes, jobs_on)
    for node in nodes:
        mask = sum(1 << number for number, names in enumerate(members) if node.name in names)
        held = [
            (ends[queued.job.job_id], *_at_least(queued, room_of[queued.job.job_id] - node.processors))
            for queued in jobs_on.get(node.name, ())
            if queued.job.job_id in ends
        ]
        free = node.processors - sum(processors for _, processors, _ in held)
        memory = node.memory_mb - sum(memory for *_, memory in held) if shares_memory else _UNLIMITED
        counted[float(mask), float(max(0, free)), max(0.0, memory), *_slots(held)] += 1
    if len(counted) > _MAX_ROWS:
        return np.zeros((0, NODE_COLUMNS))
    found = np.zeros((len(counted), NODE_COLUMNS))
    for row, (values, count) in enumerate(counted.items()):
        found[row, 0], found[row, 1 : 1 + len(values)] = count, values
    return found


def _slots(held: list[tuple[float, int, int]]) -> list[float]:
    """The ends of a node's jobs and what each gives back, ascending.

    Of many jobs the first and the last, when the node is empty, are told apart. Those between are in groups
    of about as many, which give back all at their first end: no job seems to wait for longer than it does.
    """
    held.sort()
    if len(held) <= NODE_SLOTS:
        return [float(value) for slot in held for value in slot]
    between, groups = held[1:-1], NODE_SLOTS - 2
    bounds = [number * len(between) // groups for number in range(groups + 1)]
    parts = [held[:1], *(between[begin:end] for begin, end in pairwise(bounds)), held[-1:]]
    return [
        float(value)
        for part in parts
        for value in (part[0][0], sum(one[1] for one in part), sum(one[2] for one in part))
    ]


def _room_of(nodes: Sequence[Node], jobs_on: Mapping[str, Sequence[QueuedJob]]) -> Mapping[int, float]:
    """Job id to the processors of all its nodes; infinite where some are not among these."""
    room, number = Counter[int](), Counter[int]()
    for node in nodes:
        for queued in jobs_on.get(node.name, ()):
            room[queued.job.job_id] += node.processors
            number[queued.job.job_id] += 1
    running = {queued.job.job_id: queued for those in jobs_on.values() for queued in those}
    return {
        job_id: room[job_id] if number[job_id] >= (queued.job.nodes or 1) else _UNLIMITED
        for job_id, queued in running.items()
    }


def _at_least(queued: QueuedJob, elsewhere: float) -> tuple[int, int]:
    """Processors and memory that a job has on a node; ``elsewhere``: the processors of its other nodes."""
    processors, memory = queued.job.processors, queued.memory_mb
    least = max(1, processors - int(min(elsewhere, processors)))
    return least, memory * least // processors
