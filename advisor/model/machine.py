"""Machines: groups of on-premise partitions that share nodes, and what a job takes of one.

That is a number of processors, memory and GPUs. Waits are forecast for each machine by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from advisor.model.job import Job
from advisor.model.node_classes import OF_ALL_NODES, gpu_count, gpus_asked

GPU_TYPE: Final = "gpu:"
NAMED_NODES: Final = "nodes:"
"""How words of :attr:`Asked.words` begin: `GPU_TYPE` before a type of GPUs, this before a list of nodes."""


class PartitionTerms(NamedTuple):
    """How a partition gives its nodes to jobs.

    Attributes:
        whole_nodes: Whether each job gets whole nodes.
        memory_per_node, memory_per_processor: Of a job that asks for none, MiB; 0: not set.
        qos: The partition's own QOS; empty for none.
        max_nodes, max_processors, max_memory: Most nodes of a job, and processors and memory (MiB) that jobs
            get of one of its nodes; 0: no limit.
        denied_accounts: In lower case.
        tier: Jobs of a higher one are tried before all of a lower one.
    """

    whole_nodes: bool = False
    memory_per_node: int = 0
    memory_per_processor: int = 0
    qos: str = ""
    max_nodes: int = 0
    max_processors: int = 0
    max_memory: int = 0
    denied_accounts: frozenset[str] = frozenset()
    tier: int = 1


class Sharing(NamedTuple):
    """How the scheduler shares nodes among jobs.

    Attributes:
        memory: Whether a job waits for memory too.
        partitions: Those whose terms are known.
        by_core: Whether a job gets whole cores.
    """

    memory: bool = False
    partitions: Mapping[str, PartitionTerms] = {}
    by_core: bool = False


NOT_KNOWN: Final = Sharing()
"""Jobs are taken to wait for processors and GPUs alone."""


class Asked(NamedTuple):
    """What one job, or one task of an array, asks for or has; all of its nodes together, memory in MiB.

    Attributes:
        nodes: 1 where it does not matter.
        memory_mb: None: what its partition gives a job that asks for none.
        partition: The first of its partitions.
        whole_nodes: Whether it gets whole nodes, as far as its own record tells.
        partitions: All of them, where there are several.
        words: What binds it to some nodes beside its partitions: :func:`words_of`.
        node_processors, node_memory_mb: What one of its nodes must have; 0: as far as is known any will do.
        whole_cores: Whether none of its processors may share a core.
    """

    processors: int
    nodes: int = 1
    memory_mb: int | None = 0
    gpus: int = 0
    partition: str = ""
    whole_nodes: bool = False
    partitions: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    node_processors: int = 0
    node_memory_mb: int = 0
    whole_cores: bool = False

    def on(self, nodes: int) -> Asked:
        """The part of the request on so many of its nodes; each has an equal share."""
        if nodes >= self.nodes:
            return self
        share = max(0, nodes) / self.nodes
        whole = self.processors, self.memory_mb or 0, self.gpus
        processors, memory, gpus = (round(share * each) for each in whole)
        return self._replace(processors=processors, nodes=nodes, memory_mb=memory, gpus=gpus)

    @classmethod
    def by(cls, job: Job) -> Asked:
        """What a job asks for at its submission."""
        nodes = job.nodes or 1
        gpus = gpu_count(job.gres) * (1 if OF_ALL_NODES in job.gres else nodes) if job.gres else 0
        names = tuple((job.queue or "").split(","))
        several = names if len(names) > 1 else ()
        return cls(
            job.processors,
            nodes,
            job.memory_mb,
            gpus,
            names[0],
            job.whole_nodes,
            several,
            words_of(job),
            job.node_processors or 0,
            job.node_memory_mb(),
            job.whole_cores,
        )


def words_of(job: Job) -> tuple[str, ...]:
    """The features that a job's nodes must all have, the nodes that it names, and its type of GPUs.

    A constraint with alternatives (``a|b``) binds it to no node.
    """
    if not (job.features or job.node_list or job.gres):
        return ()
    words = job.features if job.plain_constraint else ()
    if job.node_list:
        words += (NAMED_NODES + job.node_list,)
    gpus = gpus_asked(job.gres) if job.gres else None
    return (*words, GPU_TYPE + gpus.type) if gpus is not None and gpus.type else words


class Subset(NamedTuple):
    """Some nodes of a machine, to which jobs of some partitions, or with some requests, are bound.

    Attributes:
        partitions: Those all of whose nodes are among these.
        size, nodes: Processors, or GPUs, of those that are usable, and their number.
        words: Requests that only nodes among these meet (:func:`words_of`).
        counts_gpus: Whether ``size`` is of GPUs.
    """

    partitions: tuple[str, ...]
    size: int
    nodes: int
    words: tuple[str, ...] = ()
    counts_gpus: bool = False

    def needs(self, asked: Asked, *, whole_nodes: bool) -> int:
        """What a waiting job takes of these nodes; 0 where it may also start on others.

        A job that is larger than they are takes all: it has other nodes as well, or some of these are down.
        """
        is_bound = any(word in self.words for word in asked.words) if asked.words else False
        if not (is_bound or set(asked.partitions or (asked.partition,)).issubset(self.partitions)):
            return 0
        if self.counts_gpus:
            return min(asked.gpus, self.size)
        takes = _on_whole_nodes(asked, self.size, self.nodes) if whole_nodes else asked.processors
        return min(takes, self.size)

    def held_by(self, has: Asked) -> int:
        """The processors or GPUs of a running job.

        Args:
            has: The part of the job on these nodes (:meth:`Asked.on`).
        """
        return has.gpus if self.counts_gpus else has.processors


def _on_whole_nodes(asked: Asked, processors: int, nodes: int) -> int:
    """The processors of the whole nodes that a job takes, as if all were alike."""
    count = max(asked.nodes, -(-asked.processors * nodes // processors))
    return max(asked.processors, count * processors // nodes)


class Machine(NamedTuple):
    """On-premise partitions that share nodes, and what their usable nodes have together.

    Attributes:
        nodes: Number of usable nodes; 0: not known, and no job takes whole nodes.
        memory_mb: MiB; 0: jobs do not wait for memory.
        terms: Of each partition; empty: they are not known.
        subsets: Those of its nodes to which some jobs are bound.
        threads: Processors of each core, where jobs get whole cores.
        node_gpus: GPUs of the node that has most; 0: not known.
    """

    partitions: tuple[str, ...]
    processors: int
    nodes: int = 0
    memory_mb: int = 0
    gpus: int = 0
    terms: tuple[PartitionTerms, ...] = ()
    subsets: tuple[Subset, ...] = ()
    threads: int = 1
    node_gpus: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """What jobs wait for: its processors, memory and GPUs, and the size of each subset."""
        there = self.counted_resources(self.processors, self.memory_mb, self.gpus)
        return (*there, *(subset.size for subset in self.subsets))

    def held_by(self, has: Asked) -> tuple[int, ...]:
        """What a running job has of each of :attr:`sizes`, those of subsets left out."""
        return self.counted_resources(has.processors, has.memory_mb or 0, has.gpus)

    def needs(self, asked: Asked) -> tuple[int, ...]:
        """What a job that waits will take of each of :attr:`sizes`."""
        there = self.counted_resources(*self.taken_by(asked))
        if not self.subsets:
            return there
        asked = self._here(asked)
        is_whole = self._takes_whole_nodes(asked, self._terms_of(asked.partition))
        return (*there, *(subset.needs(asked, whole_nodes=is_whole) for subset in self.subsets))

    def taken_by(self, asked: Asked) -> tuple[int, int, int]:
        """What a job will take of processors, memory (MiB) and GPUs.

        A job with whole nodes takes their share of all processors, as if all nodes were alike. By that it
        keeps others from the rest of their memory and GPUs.
        """
        asked = self._here(asked)
        terms, memory = self._terms_of(asked.partition), asked.memory_mb
        if memory is None:
            memory = terms.memory_per_node * asked.nodes or terms.memory_per_processor * asked.processors
        is_whole = self._takes_whole_nodes(asked, terms)
        processors = _on_whole_nodes(asked, self.processors, self.nodes) if is_whole else asked.processors
        return processors, memory, asked.gpus

    def room_for(self, asked: Asked) -> tuple[float, ...] | None:
        """What nodes must have for a job; None: any will do.

        It is the ``room`` of :func:`advisor.simulate.pool.start_profile.no_sooner`: subsets as bits, nodes,
        processors and memory of each node, and whether they are taken whole.
        """
        asked = self._here(asked)
        whole = self._takes_whole_nodes(asked, self._terms_of(asked.partition))
        if not (whole or asked.node_processors > 1 or asked.node_memory_mb):
            return None
        parts = enumerate(self.subsets)
        mask = sum(1 << number for number, part in parts if part.needs(asked, whole_nodes=False))
        return mask, asked.nodes, max(1, asked.node_processors), asked.node_memory_mb, whole

    def at_once(self, needs: Sequence[int], tasks: int) -> int:
        """How many tasks of an array fit at a time, at least one."""
        each = (size // own for own, size in zip(needs, self.sizes, strict=True) if own > 0)
        return min(tasks, max(1, min(each, default=tasks)))

    def counted_resources(self, processors: int, memory_mb: int, gpus: int) -> tuple[int, ...]:
        """Processors, then memory and GPUs where this machine counts them: as :attr:`sizes`."""
        found = (processors, memory_mb) if self.memory_mb else (processors,)
        return (*found, gpus) if self.gpus else found

    def _here(self, asked: Asked) -> Asked:
        """The same request on whole cores; of several partitions only those of this machine.

        Slurm shows one node, and a processor, of a waiting ``--gpus=6`` that gets two.
        """
        if self.node_gpus and (least := -(-asked.gpus // self.node_gpus)) > asked.nodes:
            asked = asked._replace(nodes=least, processors=max(asked.processors, least))
        if self.threads > 1:
            of_node = -(-asked.processors // asked.nodes)
            cores = of_node if asked.whole_cores else -(-of_node // self.threads)
            asked = asked._replace(processors=cores * self.threads * asked.nodes)
        names = tuple(name for name in asked.partitions if name in self.partitions)
        if not names or len(names) == len(asked.partitions):
            return asked
        return asked._replace(partition=names[0], partitions=names)

    def _takes_whole_nodes(self, asked: Asked, terms: PartitionTerms) -> bool:
        return bool(self.nodes and self.processors) and (asked.whole_nodes or terms.whole_nodes)

    def _terms_of(self, partition: str) -> PartitionTerms:
        if partition in self.partitions[: len(self.terms)]:
            return self.terms[self.partitions.index(partition)]
        return PartitionTerms()


def machine_index_by_partition(machines: Iterable[Machine]) -> dict[str, int]:
    """The number of the machine of each partition."""
    return {name: place for place, machine in enumerate(machines) for name in machine.partitions}
