"""Nodes that take no new job, and what reservations take from the jobs of a machine. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from advisor.model.cluster import Node, is_down, is_draining
from advisor.model.machine import Machine, places_by_partition
from advisor.model.snapshot import ClusterSnapshot, Reservation

_OURS: Final = "advisor_"
_STANDING_SECONDS: Final = 7 * 86_400.0
"""Reservations that last for longer than that from now are one: their owners keep the nodes."""
_MAX_RESERVATIONS: Final = 4
"""Reservations of a machine that forecasts know, the next ones: each makes a simulation slower."""


class Reserved(NamedTuple):
    """What a reservation takes from the other jobs of a machine.

    Attributes:
        begin: Epoch seconds; 0 where it has begun.
        takes: Of each of the machine's sizes.
        inside: Id of a running job to the number of its nodes that take no other job within that time.
    """

    begin: float
    end: float
    takes: tuple[int, ...]
    inside: Mapping[int, int]


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
    nodes: Sequence[Node], reservations: Iterable[Reservation], now: float
) -> tuple[list[Node], float | None]:
    """The usable ones of these cloud nodes, and from when all of them are reserved, epoch seconds.

    A node that is down or drained takes no job; one that waits to be powered up does. Reservations of the
    advisor's own are left out. The second is None where some node stays open.
    """
    states = {node.states for node in nodes}
    unusable = {one for one in states if is_down(one) or is_draining(one)}
    usable = [node for node in nodes if node.states not in unusable]
    others = [one for one in reservations if one.end > now and not one.name.startswith(_OURS)]
    taken = frozenset[str]().union(*(one.nodes for one in others if one.begin <= now))
    usable = [node for node in usable if node.name not in taken] or usable
    names = {node.name for node in usable}
    return usable, min((one.begin for one in others if names and names <= one.nodes), default=None)


def reserved_of(
    snapshot: ClusterSnapshot, machines: Sequence[Machine], unusable: frozenset[str]
) -> tuple[tuple[Reserved, ...], ...]:
    """The next reservations of each machine; empty where there is none at all."""
    coming = [one for one in snapshot.reservations if one.end > snapshot.time and one.nodes - unusable]
    if not coming:
        return ()
    place_of = places_by_partition(machines)
    found: list[list[Reserved]] = [[] for _ in machines]
    known = {node.name: node for node in snapshot.nodes if not node.is_cloud}
    for one in sorted(_joined(coming, known, snapshot.time), key=lambda one: one.begin):
        if all(len(already) == _MAX_RESERVATIONS for already in found):
            break
        nodes = _nodes_of(one, known)
        share, inside = _share(one, nodes), None
        by_place: dict[int, list[Node]] = {}
        for node in nodes:
            place = next((place_of[name] for name in node.partitions if name in place_of), None)
            if place is not None and node.name not in unusable:
                by_place.setdefault(place, []).append(node)
        for place, here in by_place.items():
            takes = _takes(machines[place], here, share)
            if any(takes) and len(found[place]) < _MAX_RESERVATIONS:
                inside = inside or _inside(snapshot, one, unusable, is_whole=share == 1.0)
                begin = one.begin if one.begin > snapshot.time else 0.0
                found[place].append(Reserved(begin, one.end, takes, inside))
    return tuple(map(tuple, found)) if any(found) else ()


def _inside(
    snapshot: ClusterSnapshot, one: Reservation, unusable: frozenset[str], *, is_whole: bool
) -> Mapping[int, int]:
    """The jobs that run on its nodes; where it has parts of nodes, its own jobs."""
    if is_whole:
        return nodes_among(snapshot, unusable | one.nodes)
    own = (queued.job for queued in snapshot.jobs if queued.job.reservation == one.name)
    return {**nodes_among(snapshot, unusable)} | {job.job_id: job.nodes or 1 for job in own}


def _joined(coming: Sequence[Reservation], known: Mapping[str, Node], now: float) -> list[Reservation]:
    """The reservations, those of whole nodes that go on for long as one."""
    standing = [
        one
        for one in coming
        if one.begin <= now
        and one.end > now + _STANDING_SECONDS
        and _share(one, _nodes_of(one, known)) == 1.0
    ]
    if len(standing) < 2:
        return list(coming)
    nodes, end = frozenset[str]().union(*(one.nodes for one in standing)), min(one.end for one in standing)
    others = [one for one in coming if one not in standing]
    return [Reservation(name=standing[0].name, begin=now, end=end, nodes=nodes), *others]


def _nodes_of(one: Reservation, known: Mapping[str, Node]) -> list[Node]:
    return [known[name] for name in sorted(one.nodes) if name in known]


def _share(one: Reservation, nodes: Sequence[Node]) -> float:
    """The share of its nodes' processors that a reservation has."""
    every = sum(node.processors for node in nodes)
    is_whole = one.processors is None or len(nodes) < len(one.nodes)
    return 1.0 if is_whole or not every else min(1.0, (one.processors or 0) / every)


def _takes(machine: Machine, nodes: Sequence[Node], share: float) -> tuple[int, ...]:
    """Processors alone where the reservation has parts of nodes."""
    processors = sum(node.processors for node in nodes)
    if share < 1.0:
        return machine.of_those_there(round(share * processors), 0, 0)
    memory, gpus = sum(node.memory_mb for node in nodes), sum(node.gpus for node in nodes)
    return machine.of_those_there(processors, memory, gpus)
