"""The parts of a machine to which jobs are bound by partition or request, for queue forecasts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from advisor.model.cluster import Node
from advisor.model.errors import BadInput
from advisor.model.machine import GPU_TYPE, NAMED_NODES, Subset, words_of
from advisor.model.node_sets import expand
from advisor.model.snapshot import QueuedJob
from advisor.service.observation.site_view import active_features

_MAX_SUBSETS: Final = 8
"""Subsets of one machine: each makes a simulation slower."""
_MANY_JOBS: Final = 10_000
_SUBSETS_OF_MANY: Final = 3
"""As many subsets where so many jobs run or wait."""
_MAX_WORDS: Final = 64
"""At most so many requests are looked at, because thousands of jobs may each name another node."""


class NamedBy(NamedTuple):
    """How many jobs name each partition, and each request (:func:`words_of`)."""

    partitions: Counter[str]
    words: Counter[str]

    @classmethod
    def jobs(cls, jobs: Sequence[QueuedJob]) -> NamedBy:
        """Count those of some jobs."""
        return cls(
            Counter(name for queued in jobs for name in queued.partitions),
            Counter(word for queued in jobs for word in words_of(queued.job)),
        )


class MachineNodes(NamedTuple):
    """The usable nodes of a machine.

    Attributes:
        members: The names of those in each of its subsets.
        inside: Of each subset, id of a running job to the number of its nodes there.
    """

    nodes: tuple[Node, ...] = ()
    members: tuple[frozenset[str], ...] = ()
    inside: tuple[Mapping[int, int], ...] = ()


class NodesOf(NamedTuple):
    """A subset, and the names of its nodes."""

    subset: Subset
    nodes: frozenset[str]


def subsets_of(partitions: Sequence[str], nodes: Sequence[Node], named: NamedBy) -> tuple[NodesOf, ...]:
    """The subsets of a machine's nodes to which jobs of a partition, or with some request, are bound.

    Where there are more than `_MAX_SUBSETS` (`_SUBSETS_OF_MANY`), those that bind most jobs are taken. A
    partition without a usable node binds to none: nothing tells when its nodes come back. Only the
    `_MAX_WORDS` requests that most jobs have are looked at.
    """
    of_partition = {
        name: frozenset(node.name for node in nodes if name in node.partitions) for name in partitions
    }
    of_word = {word: _with(word, nodes) for word, _ in named.words.most_common(_MAX_WORDS)}
    number: Counter[tuple[bool, frozenset[str]]] = Counter()
    for name, those in of_partition.items():
        number[False, those] += named.partitions[name]
    for word, those in of_word.items():
        number[word.startswith(GPU_TYPE), those] += named.words[word]
    proper = [key for key in number if 0 < len(key[1]) < len(nodes) or (key[0] and key[1])]
    proper.sort(key=lambda key: -number[key])
    known = {node.name: node for node in nodes}
    found = []
    is_large = named.partitions.total() >= _MANY_JOBS
    for counts_gpus, those in proper[: _SUBSETS_OF_MANY if is_large else _MAX_SUBSETS]:
        there = [known[name] for name in those]
        words = [word for word, its in of_word.items() if its <= those and its]
        if counts_gpus:
            words = [word for word in words if word.startswith(GPU_TYPE)]
        names = [] if counts_gpus else [name for name, its in of_partition.items() if its <= those and its]
        size = sum(node.gpus if counts_gpus else node.processors for node in there)
        found.append(NodesOf(Subset(tuple(names), size, len(there), tuple(words), counts_gpus), those))
    return tuple(found)


def _with(word: str, nodes: Sequence[Node]) -> frozenset[str]:
    """The names of the nodes that a request binds a job to."""
    if word.startswith(NAMED_NODES):
        try:
            return frozenset(expand(word.removeprefix(NAMED_NODES))) & {node.name for node in nodes}
        except BadInput:  # text from outside
            return frozenset()
    if word.startswith(GPU_TYPE):
        wanted = word.removeprefix(GPU_TYPE)
        return frozenset(node.name for node in nodes if wanted in node.gpu_types)
    return frozenset(node.name for node in nodes if word in active_features(node))
