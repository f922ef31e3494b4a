"""When cloud nodes have room for another job, found from each poll's snapshot. Pure.

This gives a moved job's wait in the cloud's own queue (:mod:`advisor.decide.submission.cloud_terms`). A
running job ends as forecast, and at its time limit at the latest. Waiting jobs are put on nodes in the order
of their submission, each where it can start first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.decide.submission.capacity import is_never_spot
from advisor.decide.submission.cloud_terms import ANY
from advisor.model.advice import Capacity
from advisor.model.cluster import Node, NodePower
from advisor.model.limits import far_from_start
from advisor.model.site import Room, class_kind
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.observation.advice_of_jobs import predicted_cloud_seconds
from advisor.service.observation.site_view import active_features, processors_on_a_node

_UNKNOWN_SECONDS: Final = 86_400.0  # a job of unknown length may fill the day (`service.cloud.money`)
_POWERING_DOWN_SECONDS: Final = 30.0  # Slurm's default SuspendTimeout
_MAX_WAITING: Final = 500
"""Waiting tasks that are put on nodes; behind so many a forecast of the wait says little."""
_MAX_LATER: Final = 512
"""Times of later room that are published for each kind and size."""
_FREE: Final = -math.inf

NO_ROOM: Final = MappingProxyType({ANY: (Room(processors=1, free=0),)})
"""Room of a burst partition whose nodes are all down or drained: a job that is moved there never starts."""

Times: TypeAlias = NDArray[np.float64]


def cloud_rooms(
    nodes: Sequence[Node],
    snapshot: ClusterSnapshot,
    burst_partition: str,
    class_of: Mapping[str, str] = MappingProxyType({}),
    boot_seconds: float = 0.0,
) -> dict[str, tuple[Room, ...]]:
    """Rooms by kind of node, as :class:`~advisor.model.site.CloudState` has them.

    ``nodes`` are those of the burst partition that accept jobs; nodes of unknown power state are left out.
    Jobs that already wait for the burst partition take their room first. ``class_of``: the class of each
    node that a class names. ``boot_seconds``: how long a node boots; those that boot already have room when
    that is over.
    """
    known = [node for node in nodes if node.power is not NodePower.UNKNOWN]
    if not known:
        return {}
    powers = [node.power for node in known]
    is_up = np.array([power is NodePower.UP for power in powers])
    ends = _ends(known, powers, snapshot, boot_seconds)
    boots = np.array([boot_seconds if power is NodePower.DOWN else 0.0 for power in powers])
    rows_with: dict[frozenset[str], _Rows] = {}
    for queued in _waiting(snapshot.jobs, burst_partition):
        wanted = frozenset(queued.job.features if queued.job.plain_constraint else ())
        if wanted not in rows_with:
            rows_with[wanted] = _rows_with(wanted, known)
        _put(ends, boots, rows_with[wanted], queued, snapshot.time)
    widths = [node.processors for node in known]
    found = {ANY: _rooms(ends, min(widths), is_up, snapshot.time)}
    kinds = _kinds(known)
    for kind, rows in (kinds | _classes(known, class_of, kinds)).items():
        if 0 < len(rows) < len(known):
            whole = min(widths[row] for row in rows)
            found[kind] = _rooms(ends[rows], whole, is_up[rows], snapshot.time)
    return found


def left_seconds(queued: QueuedJob, now: float) -> float:
    """Remaining run time of a job, seconds, as forecast at its submission and at most up to its time limit.

    A job that has run longer than its forecast is expected to run for the same time again.
    """
    age = max(0.0, now - queued.start_time) if queued.start_time is not None else 0.0
    forecast, limit = predicted_cloud_seconds(queued), queued.job.requested_time
    left = math.inf if forecast is None else (forecast - age if forecast > age else age)
    if limit is not None:
        left = min(left, limit - age)
    # at least 1 s: the job has not ended
    return max(1.0, left) if math.isfinite(left) else _UNKNOWN_SECONDS


def _ends(
    nodes: Sequence[Node], powers: Sequence[NodePower], snapshot: ClusterSnapshot, boot_seconds: float
) -> Times:
    """When each processor becomes free: epoch seconds, shape (nodes, processors), ascending in each row.

    The entries beyond a node's own processors are infinite.
    """
    on_node, now = snapshot.jobs_on, snapshot.time
    widths = np.array([node.processors for node in nodes])
    ends = np.where(np.arange(widths.max()) < widths[:, None], _FREE, math.inf)
    for row, (node, power) in enumerate(zip(nodes, powers, strict=True)):
        is_changing = power is NodePower.POWERING_UP or power is NodePower.POWERING_DOWN
        if not is_changing and node.name not in on_node:
            continue
        jobs = on_node.get(node.name, [])
        own = ends[row, : node.processors]
        boot = _boot_left(node, jobs, now, boot_seconds)
        own[:] = now + boot if is_changing and boot else _FREE
        taken = 0
        for queued in jobs:
            processors = min(processors_on_a_node(queued), node.processors - taken)
            own[taken : taken + processors] = now + boot + left_seconds(queued, now)
            taken += processors
        if jobs and "ALLOCATED" in node.states:  # whole nodes are allocated: the rest is free only then
            own[taken:] = own[:taken].max(initial=now + 1.0)
    ends.sort(axis=1)
    return ends


def _boot_left(node: Node, jobs: Sequence[QueuedJob], now: float, boot_seconds: float) -> float:
    """Seconds until a node that boots is up; of one that powers down, until it is up again.

    slurmctld lets the run time of a job begin anew when its nodes are up.
    """
    if node.power is NodePower.POWERING_DOWN:
        return _POWERING_DOWN_SECONDS + boot_seconds
    if node.power is not NodePower.POWERING_UP:
        return 0.0
    begun = min((queued.start_time for queued in jobs if queued.start_time is not None), default=now)
    return max(0.0, boot_seconds - max(0.0, now - begun))


def _waiting(jobs: Sequence[QueuedJob], burst_partition: str) -> Iterator[QueuedJob]:
    """Each task that waits in the burst partition for processors, in order of submission."""
    far = far_from_start(jobs, burst_partition)
    there = (queued for queued in jobs if burst_partition in queued.partitions)
    waiting = [queued for queued in there if queued.is_queued and queued.job.job_id not in far]
    waiting.sort(key=lambda queued: (queued.job.submit_time, queued.job.job_id))
    count = 0
    for queued in waiting:
        for _ in range(queued.job.array_tasks):
            if count == _MAX_WAITING:
                return
            count += 1
            yield queued


class _Rows(NamedTuple):
    """Row numbers of the nodes that a job may start on, and the processors of each."""

    rows: NDArray[np.int64]
    width: NDArray[np.int64]


def _rows_with(wanted: Collection[str], nodes: Sequence[Node]) -> _Rows:
    rows = [row for row, node in enumerate(nodes) if set(wanted) <= set(active_features(node))]
    width = [nodes[row].processors for row in rows]
    return _Rows(np.array(rows, dtype=np.int64), np.array(width, dtype=np.int64))


def _put(ends: Times, boots: Times, usable: _Rows, queued: QueuedJob, now: float) -> None:
    """Put a waiting job on the nodes where it can start first; a job that fits on none is ignored.

    ``boots``: how long each node would boot first, seconds; it is up once a job was put on it.
    """
    job = queued.job
    rows, width = usable
    smallest = int(width.min(initial=ends.shape[1])) or 1
    needed = max(job.nodes or 1, -(-job.processors // smallest))
    if needed > len(rows):
        return
    # a job on one node takes its own processors; a job on several nodes takes whole nodes
    taken = np.full(len(rows), job.processors) if needed == 1 else width
    free_at = ends[rows, taken - 1]
    starts = np.where(free_at > now, free_at, now + boots[rows])
    chosen = np.argsort(starts, kind="stable")[:needed]
    seconds = predicted_cloud_seconds(queued) or job.requested_time or _UNKNOWN_SECONDS
    begins = float(starts[chosen].max())
    boots[rows[chosen]] = 0.0
    for index in chosen:
        row = ends[rows[index]]
        row[: taken[index]] = begins + seconds
        row.sort()


def _kinds(nodes: Sequence[Node]) -> dict[str, list[int]]:
    """Row numbers by capacity: nodes that may be spot, and nodes that are on-demand or reserved."""
    found: dict[str, list[int]] = {capacity.value: [] for capacity in Capacity}
    alike: dict[tuple[tuple[str, ...], tuple[str, ...] | None], list[int]] = {}
    for row, node in enumerate(nodes):
        alike.setdefault((node.features, node.active_features), []).append(row)
    for (features, active), rows in alike.items():
        for kind in _kinds_with(features, features if active is None else active):
            found[kind] += rows
    return {kind: sorted(rows) for kind, rows in found.items()}


def _classes(
    nodes: Sequence[Node], class_of: Mapping[str, str], kinds: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    """Row numbers by class, and by the kinds of its nodes."""
    found: dict[str, list[int]] = {}
    for kind, rows in {"": range(len(nodes)), **kinds}.items() if class_of else ():
        for row in rows:
            found.setdefault(class_kind(class_of.get(nodes[row].name, ""), kind), []).append(row)
    return found


@lru_cache(maxsize=256)
def _kinds_with(features: tuple[str, ...], active: tuple[str, ...]) -> tuple[str, ...]:
    """Capacities of a node by its features in slurm.conf and its active ones."""
    named = {Capacity.ON_DEMAND.value, Capacity.RESERVED.value} & set(active)
    return (*sorted(named), *(() if is_never_spot(features) else (Capacity.SPOT.value,)))


def _rooms(ends: Times, whole: int, is_up: NDArray[np.bool_], now: float) -> tuple[Room, ...]:
    """Rooms for jobs of 1, 2, 4, ... processors, up to the ``whole`` smallest node; ``is_up``: each node."""
    sizes = [2**power for power in range(whole.bit_length()) if 2**power < whole] + [whole]
    found = list[Room]()
    for size in sizes:
        # a node has room for n such jobs when n times as many processors are free
        times = ends[:, size - 1 :: size].ravel()
        times = times[times < math.inf]
        later = np.sort(times[times > now])
        room = Room(
            processors=size,
            free=len(times) - len(later),
            up=int((ends[is_up, size - 1 :: size] <= now).sum()),
            later=tuple(later[:_MAX_LATER].tolist()),
            total=len(times),
        )
        found.append(room)
    return tuple(found)
