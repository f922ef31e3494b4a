"""Nodes that take no new job, and what reservations take from the jobs of a machine, for forecasts. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from advisor.model.cluster import Node, is_down, is_draining
from advisor.model.machine import Machine, machine_index_by_partition
from advisor.model.snapshot import ClusterSnapshot, QueuedJob, Reservation

Closings: TypeAlias = tuple[tuple[float, int], ...]

_OURS: Final = "advisor_"
_MAX_RESERVATIONS: Final = 32
"""Reservations that forecasts know, those of most nodes."""
_MAX_ROWS: Final = 5
"""Rows of a machine: each makes a simulation slower."""


class Reserved(NamedTuple):
    """What a reservation takes from the other jobs of a machine.

    Attributes:
        begin: Epoch seconds; 0 where it has begun.
        takes: Of each of the machine's sizes, or of those without its subsets.
        inside: Id of a running job to the number of its nodes that take no other job within that time.
        in_subsets: The same of its nodes in each of the machine's subsets.
    """

    begin: float
    end: float
    takes: tuple[int, ...]
    inside: Mapping[int, int]
    in_subsets: tuple[Mapping[int, int], ...]


def unusable_nodes(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Names of the nodes on-premise that are down or drained."""
    return frozenset(
        node.name for node in snapshot.nodes if not node.is_cloud and (node.is_down or node.is_draining)
    )


def nodes_among(snapshot: ClusterSnapshot, names: Collection[str]) -> Mapping[int, int]:
    """Id of a running job to the number of nodes that it has among these."""
    if not names:
        return {}
    jobs_on = snapshot.jobs_on
    return Counter(queued.job.job_id for name in names for queued in jobs_on.get(name, ()))


def open_cloud_nodes(
    nodes: Sequence[Node], reservations: Iterable[Reservation], now: float, ahead: float = 0.0
) -> tuple[list[Node], Closings]:
    """The usable ones of these cloud nodes, and how many reservations leave open (``CloudState.closings``).

    A node that is down or drained takes no job; one that waits to be powered up does. Reservations of the
    advisor's own are left out. ``ahead``: nodes that are reserved within so many seconds are left out, too,
    unless all are.
    """
    states = {node.states for node in nodes}
    unusable = {one for one in states if is_down(one) or is_draining(one)}
    usable = [node for node in nodes if node.states not in unusable]
    known = {node.name: node for node in usable}
    others = [
        one
        for one in reservations
        if one.end > now and not one.name.startswith(_OURS) and _share(one, known) == 1.0
    ]
    closings, fewest = list[tuple[float, int]](), len(known)
    for moment in sorted({max(now, one.begin) for one in others}):
        left = len(known.keys() - _reserved_at(others, moment))
        if left < fewest:
            closings.append((moment, left))
            fewest = left
    for until in (now + ahead, now):
        taken = frozenset[str]().union(*(one.nodes for one in others if one.begin <= until))
        if left_open := [node for node in usable if node.name not in taken]:
            return left_open, tuple(closings)
    return usable, tuple(closings)


def drawn_to(reservations: Iterable[Reservation], now: float) -> dict[str, str]:
    """Account or user (`Job.payers`) to the reservation now in force to which its jobs are drawn."""
    return {payer: one.name for one in reservations if one.begin <= now < one.end for payer in one.draws}


def is_shut_out(queued: QueuedJob, nodes: Sequence[Node], closings: Closings, now: float) -> bool:
    """Whether reservations leave a waiting job too few of these cloud nodes until its limit would end it."""
    ends = now + (queued.job.requested_time or math.inf)
    least = min((left for at, left in closings if at < ends), default=len(nodes))
    if not closings or not nodes:
        return False
    largest = max(node.processors for node in nodes), max(node.memory_mb for node in nodes)
    return queued.job.nodes_of_size(*largest) > least


def _reserved_at(reservations: Iterable[Reservation], moment: float) -> frozenset[str]:
    return frozenset[str]().union(*(one.nodes for one in reservations if one.begin <= moment < one.end))


def reserved_of(
    snapshot: ClusterSnapshot,
    machines: Sequence[Machine],
    unusable: frozenset[str],
    members: Sequence[Sequence[frozenset[str]]],
) -> tuple[tuple[Reserved, ...], ...]:
    """What reservations take of each machine, from when until when; empty where there is none at all.

    Times at which several are in force are one row, as they may have the same nodes. Of more rows than count
    the first is kept, and those that take most.

    Args:
        members: The names of the nodes in each subset of each machine.
    """
    now = snapshot.time
    coming = [one for one in snapshot.reservations if one.end > now and one.nodes - unusable]
    if not coming:
        return ()
    coming = sorted(coming, key=lambda one: -len(one.nodes))[:_MAX_RESERVATIONS]
    every = {node.name: node for node in snapshot.nodes}
    placed = _placed([node for node in snapshot.nodes if node.name not in unusable], machines)
    found: list[list[tuple[float, float, tuple[int, ...], _Reserved]]] = [[] for _ in machines]
    for begin, end, reserved in _in_force(coming, now, every):
        for place, takes in _takes(reserved, machines, placed, members).items():
            found[place].append((begin if begin > now else 0.0, end, takes, reserved))
    insides: dict[_Reserved, tuple[Mapping[int, int], Mapping[int, int]]] = {}
    rows = []
    for subsets, parts in zip(members, found, strict=True):
        kept = parts[:1] + sorted(parts[1:], key=lambda part: -sum(part[2]))[: _MAX_ROWS - 1]
        for *_, reserved in kept:
            if reserved not in insides:
                own = _own_jobs(snapshot, reserved)
                insides[reserved] = own, {**nodes_among(snapshot, unusable | reserved.whole), **own}
        row = []
        for begin, end, takes, reserved in sorted(kept, key=lambda part: part[0]):
            own, inside = insides[reserved]
            within = tuple({**nodes_among(snapshot, reserved.whole & names), **own} for names in subsets)
            row.append(Reserved(begin, end, takes, inside, within))
        rows.append(tuple(row))
    return tuple(rows) if any(rows) else ()


class _Reserved(NamedTuple):
    """Nodes that are reserved whole; the name, share and nodes of each reservation of parts of others."""

    whole: frozenset[str]
    parts: tuple[tuple[str, float, frozenset[str]], ...]


def _in_force(
    coming: Sequence[Reservation], now: float, every: Mapping[str, Node]
) -> list[tuple[float, float, _Reserved]]:
    """From when until when the same nodes are reserved."""
    shares = [_share(one, every) for one in coming]
    moments = sorted({max(now, one.begin) for one in coming} | {one.end for one in coming})
    found: list[tuple[float, float, _Reserved]] = []
    for begin, end in pairwise(moments):
        those = [
            (one, share) for one, share in zip(coming, shares, strict=True) if one.begin <= begin < one.end
        ]
        whole = frozenset[str]().union(*(one.nodes for one, share in those if share == 1.0))
        parts = tuple((one.name, share, one.nodes - whole) for one, share in those if share < 1.0)
        reserved = _Reserved(whole, parts)
        if found and found[-1][1] == begin and found[-1][2] == reserved:
            found[-1] = found[-1][0], end, reserved
        elif those:
            found.append((begin, end, reserved))
    return found


def _placed(nodes: Iterable[Node], machines: Sequence[Machine]) -> dict[str, tuple[Node, int]]:
    """Name to the node and the number of its machine, of those of a machine."""
    place_of = machine_index_by_partition(machines)
    return {
        node.name: (node, place_of[name])
        for node in nodes
        if not node.is_cloud
        for name in node.partitions
        if name in place_of
    }


def _takes(
    reserved: _Reserved,
    machines: Sequence[Machine],
    placed: Mapping[str, tuple[Node, int]],
    members: Sequence[Sequence[frozenset[str]]],
) -> dict[int, tuple[int, ...]]:
    """What is taken of each machine that loses something; of parts of nodes, processors alone.

    Of the subsets of a machine that is reserved as a whole nothing is said: no job starts there anyway.
    """
    of_machine: dict[int, list[tuple[Node, float]]] = {}
    for names, share in ((reserved.whole, 1.0), *((nodes, share) for _, share, nodes in reserved.parts)):
        for node, place in (placed[name] for name in names if name in placed):
            of_machine.setdefault(place, []).append((node, share))
    found = {}
    for place, nodes in of_machine.items():
        machine = machines[place]
        processors, memory, gpus = _sums(nodes)
        takes = machine.counted_resources(processors, memory, gpus)
        if processors < machine.processors:
            for subset, names in zip(machine.subsets, members[place], strict=True):
                inside = _sums((node, share) for node, share in nodes if node.name in names)
                takes += (inside[2] if subset.counts_gpus else inside[0],)
        if any(takes):
            found[place] = takes
    return found


def _sums(nodes: Iterable[tuple[Node, float]]) -> tuple[int, int, int]:
    """Processors, memory (MiB) and GPUs of nodes of which a share is reserved."""
    processors, memory, gpus = 0.0, 0, 0
    for node, share in nodes:
        processors += share * node.processors
        if share == 1.0:
            memory, gpus = memory + node.memory_mb, gpus + node.gpus
    return round(processors), memory, gpus


def _own_jobs(snapshot: ClusterSnapshot, reserved: _Reserved) -> Mapping[int, int]:
    """The jobs that run in reservations of parts of nodes, and the number of nodes of each."""
    names = {name for name, _, _ in reserved.parts}
    if not names:
        return {}
    own = (queued.job for queued in snapshot.jobs if queued.job.reservation in names)
    return {job.job_id: job.nodes or 1 for job in own}


def _share(one: Reservation, every: Mapping[str, Node]) -> float:
    """The share of its nodes' processors that a reservation has; 1 where it is not known."""
    there = sum(every[name].processors for name in one.nodes if name in every)
    return 1.0 if one.processors is None or not there else min(1.0, one.processors / there)
