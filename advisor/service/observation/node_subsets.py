"""The parts of a machine to which some of its partitions are bound. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

from advisor.model.machine import Machine, Subset
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.observation.reserved_nodes import nodes_among

_Kind: TypeAlias = tuple[str, ...]
"""The partitions of a node."""
_MAX_SUBSETS: Final = 8
"""Subsets of one machine: each makes a simulation slower."""


def subsets_of(
    names: Sequence[str], kinds: Mapping[_Kind, tuple[int, int]], jobs: Sequence[QueuedJob]
) -> tuple[Subset, ...]:
    """The subsets of a machine's nodes that are all nodes of one of its partitions.

    Of more than count, those are left out whose partitions have the fewest jobs. A partition without a usable
    node is bound to none: nothing tells when its nodes come back.

    Args:
        names: The machine's partitions.
        kinds: Processors and number of the usable nodes of each kind.
        jobs: Those that run or wait.
    """
    usable = {kind: has for kind, has in kinds.items() if has[1]}
    of_partition = {name: frozenset(kind for kind in usable if name in kind) for name in names}
    different = dict.fromkeys(members for members in of_partition.values() if members)
    proper = [members for members in different if len(members) < len(usable)]
    counted = Counter(name for queued in jobs for name in queued.partitions) if proper else Counter[str]()
    bound = {
        members: tuple(name for name in names if of_partition[name] and of_partition[name] <= members)
        for members in proper
    }
    proper.sort(key=lambda members: -sum(counted[name] for name in bound[members]))
    return tuple(
        Subset(
            bound[members],
            processors=sum(usable[kind][0] for kind in members),
            nodes=sum(usable[kind][1] for kind in members),
        )
        for members in proper[:_MAX_SUBSETS]
    )


def nodes_in_subsets(
    snapshot: ClusterSnapshot, machines: Sequence[Machine], unusable: Collection[str]
) -> tuple[tuple[Mapping[int, int], ...], ...]:
    """Of each subset of each machine: id of a running job to the number of nodes that it has there."""
    if not any(machine.subsets for machine in machines):
        return ()
    kinds = {node.partitions for node in snapshot.nodes}

    def inside(subset: Subset) -> Mapping[int, int]:
        there = {kind for kind in kinds if not set(kind).isdisjoint(subset.partitions)}
        return nodes_among(
            snapshot,
            [
                node.name
                for node in snapshot.nodes
                if node.partitions in there and not node.is_cloud and node.name not in unusable
            ],
        )

    return tuple(tuple(map(inside, machine.subsets)) for machine in machines)
