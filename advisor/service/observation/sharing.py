"""How Slurm shares nodes among jobs, from its configuration, which the poll loop reads each minute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from advisor.model.machine import PartitionTerms, Sharing
from advisor.model.snapshot import Partition
from advisor.slurm.parsing import default_memory


def sharing_of(config: Mapping[str, str], partitions: Iterable[Partition]) -> Sharing:
    """What ``SelectType``, its parameters and the partitions say.

    Jobs wait for memory where ``SelectTypeParameters`` names it (``CR_Core_Memory``). They get whole nodes
    under ``select/linear`` and in partitions with ``OverSubscribe=EXCLUSIVE``, and else whole cores unless it
    names the processor (``CR_CPU``).
    """
    is_linear = config.get("SelectType", "").endswith("linear")
    of_all = default_memory(config)
    terms = {}
    for partition in partitions:
        node, processor = partition.default_memory if any(partition.default_memory) else of_all
        is_whole = is_linear or partition.whole_nodes
        terms[partition.name] = PartitionTerms(
            is_whole,
            node or 0,
            processor or 0,
            partition.qos,
            partition.max_nodes or 0,
            partition.max_processors_per_node or 0,
            partition.max_memory_per_node_mb or 0,
            partition.denied.get("accounts", frozenset()),
            partition.tier,
        )
    parameters = config.get("SelectTypeParameters", "").upper()
    return Sharing("MEMORY" in parameters, terms, "CR_CORE" in parameters or "CR_SOCKET" in parameters)
