"""Check which partitions of the site share nodes with those that the advisor knows as on-premise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from advisor.model.errors import BadInput
from advisor.model.node_sets import expand
from advisor.model.settings import Settings
from advisor.model.snapshot import Partition
from advisor.service.admin.doctor import Diagnosis, ok, warning


def unmanaged_partitions(settings: Settings, partitions: Mapping[str, Partition]) -> Iterator[Diagnosis]:
    """Name the partitions whose waiting jobs the forecasts of the queue do not see."""
    managed = settings.cluster.on_premise_partitions
    ours = frozenset[str]().union(*(_nodes(partitions[name]) for name in managed if name in partitions))
    beside = [
        name
        for name, partition in partitions.items()
        if name not in {*managed, settings.cluster.burst_partition} and not ours.isdisjoint(_nodes(partition))
    ]
    if beside:
        yield warning(
            f"jobs of {', '.join(beside)} have nodes of on-premise partitions",
            "Add them to cluster.on_premise_partitions, with the mode off in cluster.modes where their jobs "
            "must not move: forecast waits do not know jobs that wait in a partition that is not named there",
        )
    else:
        yield ok("no other partition has nodes of the on-premise ones")


def _nodes(partition: Partition) -> frozenset[str]:
    try:
        return frozenset(expand(partition.nodes))
    except BadInput:  # text from outside
        return frozenset()
