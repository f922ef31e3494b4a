"""When cloud nodes have room, from one look: who is on them, how long still, and who waits there already.

What a moved job has to expect of the cloud's own queue (:mod:`advisor.decide.submission.room`).
Jobs on a node
end when they were forecast to, at their time limit at the latest; those that wait are put on the nodes in the
order of their submission, each where it can start first. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.decide.submission.capacity import is_never_spot
from advisor.decide.submission.room import ANY
from advisor.model.advice import Capacity
from advisor.model.cluster import Node, NodePower
from advisor.model.site import Room
from advisor.service.observation.advice_of_jobs import predicted_cloud_seconds
from advisor.service.observation.site_view import active_features, jobs_by_node, processors_on_a_node
from advisor.slurm.protocol import QueuedJob, SlurmSnapshot

_UNKNOWN_SECONDS: Final = 86_400.0  # a job of unknown length may fill the day (`service.cloud.money`)
_POWERING_DOWN_SECONDS: Final = 30.0  # Slurm's default SuspendTimeout
_MAX_WAITING: Final = 500
"""Tasks that are put on nodes at each look; behind so many a forecast of the wait says little."""
_MAX_TOLD: Final = 512
_FREE: Final = -math.inf

NO_ROOM: Final = MappingProxyType({ANY: (Room(processors=1, free=0),)})
"""Of a burst partition whose nodes are all down or drained: a job that is moved there waits without end."""

Times: TypeAlias = NDArray[np.float64]


def cloud_rooms(
    nodes: Sequence[Node], snapshot: SlurmSnapshot, burst_partition: str
) -> dict[str, tuple[Room, ...]]:
    """Rooms by kind of node, as :class:`~advisor.model.site.CloudState` has them.

    Parameters
    ----------
    nodes : sequence of Node
        Of the burst partition, those that take jobs. One whose power state nobody knows is left out.
    snapshot : SlurmSnapshot
        The look.
    burst_partition : str
        Its name: jobs that wait for it are before whoever comes now.
    """
    known = [node for node in nodes if node.power is not NodePower.UNKNOWN]
    if not known:
        return {}
    ends = _ends(known, snapshot)
    rows_with: dict[frozenset[str], _Rows] = {}
    for queued in _waiting(snapshot.jobs, burst_partition):
        wanted = frozenset(queued.job.features if queued.job.plain_constraint else ())
        if wanted not in rows_with:
            rows_with[wanted] = _rows_with(wanted, known)
        _put(ends, rows_with[wanted], queued, snapshot.time)
    found = {ANY: _rooms(ends, known, snapshot.time)}
    for kind, rows in _kinds(known).items():
        if 0 < len(rows) < len(known):
            found[kind] = _rooms(ends[rows], [known[row] for row in rows], snapshot.time)
    return found


def left_seconds(queued: QueuedJob, now: float) -> float:
    """How long a job will hold its nodes still, seconds.

    As forecast at its submission; one that has outlived its forecast is taken to run as long again. Never
    longer than its limit leaves it.
    """
    age = max(0.0, now - queued.start_time) if queued.start_time is not None else 0.0
    forecast, limit = predicted_cloud_seconds(queued), queued.job.requested_time
    left = math.inf if forecast is None else (forecast - age if forecast > age else age)
    if limit is not None:
        left = min(left, limit - age)
    # 1 s: it is still there
    return max(1.0, left) if math.isfinite(left) else _UNKNOWN_SECONDS


def _ends(nodes: Sequence[Node], snapshot: SlurmSnapshot) -> Times:
    """When each processor of each node comes free, ascending; infinite beyond a node's own processors."""
    on_node, now = jobs_by_node(snapshot), snapshot.time
    ends = np.full((len(nodes), max(node.processors for node in nodes)), math.inf)
    for row, node in enumerate(nodes):
        own = ends[row, : node.processors]
        own[:] = now + _POWERING_DOWN_SECONDS if node.power is NodePower.POWERING_DOWN else _FREE
        jobs = on_node.get(node.name, [])
        taken = 0
        for queued in jobs:
            processors = min(processors_on_a_node(queued), node.processors - taken)
            own[taken : taken + processors] = now + left_seconds(queued, now)
            taken += processors
        if jobs and "ALLOCATED" in node.states:  # whole nodes are given: the rest is nobody's until then
            own[taken:] = own[:taken].max(initial=now + 1.0)
    ends.sort(axis=1)
    return ends


def _waiting(jobs: Sequence[QueuedJob], burst_partition: str) -> Iterator[QueuedJob]:
    """Each task that waits in the burst partition for processors, by submission."""
    waiting = [queued for queued in jobs if queued.is_queued and burst_partition in queued.partitions]
    waiting.sort(key=lambda queued: (queued.job.submit_time, queued.job.job_id))
    told = 0
    for queued in waiting:
        for _ in range(queued.job.array_tasks):
            if told == _MAX_WAITING:
                return
            told += 1
            yield queued


class _Rows(NamedTuple):
    """Nodes that a job may start on, and how many processors each has."""

    rows: NDArray[np.int64]
    width: NDArray[np.int64]


def _rows_with(wanted: Collection[str], nodes: Sequence[Node]) -> _Rows:
    rows = [row for row, node in enumerate(nodes) if set(wanted) <= set(active_features(node))]
    width = [nodes[row].processors for row in rows]
    return _Rows(np.array(rows, dtype=np.int64), np.array(width, dtype=np.int64))


def _put(ends: Times, usable: _Rows, queued: QueuedJob, now: float) -> None:
    """Let a job that waits take the first nodes it can start on; it takes none where it never could."""
    job = queued.job
    rows, width = usable
    smallest = int(width.min(initial=ends.shape[1])) or 1
    needed = max(job.nodes or 1, -(-job.processors // smallest))
    if needed > len(rows):
        return
    # on one node its own processors, on several nodes whole ones
    places = np.full(len(rows), job.processors) if needed == 1 else width
    starts = ends[rows, places - 1]
    chosen = np.argsort(starts, kind="stable")[:needed]
    seconds = predicted_cloud_seconds(queued) or job.requested_time or _UNKNOWN_SECONDS
    begins = max(float(starts[chosen].max()), now)
    for place in chosen:
        row = ends[rows[place]]
        row[: places[place]] = begins + seconds
        row.sort()


def _kinds(nodes: Sequence[Node]) -> dict[str, list[int]]:
    """Rows of the nodes that may be spot, and of those that have a feature that keeps them from it."""
    found: dict[str, list[int]] = {capacity.value: [] for capacity in Capacity}
    for row, node in enumerate(nodes):
        if not is_never_spot(node.features):
            found[Capacity.SPOT.value].append(row)
        for kind in {Capacity.ON_DEMAND.value, Capacity.RESERVED.value} & set(active_features(node)):
            found[kind].append(row)
    return found


def _rooms(ends: Times, nodes: Sequence[Node], now: float) -> tuple[Room, ...]:
    """Rooms for jobs of 1, 2, 4, ... processors, up to whole nodes."""
    whole = min(node.processors for node in nodes)
    sizes = [2**power for power in range(whole.bit_length()) if 2**power < whole] + [whole]
    found = list[Room]()
    for size in sizes:
        # the n-th place of that size on a node is there when n times as many processors are
        places = ends[:, size - 1 :: size].ravel()
        places = places[places < math.inf]
        later = np.sort(places[places > now])
        room = Room(
            processors=size,
            free=len(places) - len(later),
            later=tuple(later[:_MAX_TOLD].tolist()),
            total=len(places),
        )
        found.append(room)
    return tuple(found)
