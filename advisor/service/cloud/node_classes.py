"""The classes of the burst partition's nodes at one moment, as decisions see them; made at each poll."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from advisor.decide.submission.capacity import is_never_spot
from advisor.ec2.classes import instance_types_of
from advisor.ec2.prices import Prices
from advisor.model.cluster import Node
from advisor.model.node_classes import NodeClassState, ReservedUntil
from advisor.model.settings_cloud import Ec2Settings
from advisor.service.observation.site_view import nodes_with
from advisor.service.state.cloud_record import AskClosedOptions

AskReserved = Callable[[Sequence[str]], tuple[int, tuple[ReservedUntil, ...]]]
"""Gives the free nodes of some instance types that are paid for: for ever, and until some moment."""
AskBoot = Callable[[Sequence[Node], Sequence[str]], float | None]
"""Gives the learned boot time of some nodes of some instance types, seconds; None: unknown."""


def class_states(
    usable: Sequence[Node],
    class_of: Mapping[str, str],
    settings: Ec2Settings,
    prices: Prices,
    closings: AskClosedOptions,
    boot_seconds: AskBoot,
    reserved: AskReserved,
    max_nodes: int = 0,
) -> tuple[NodeClassState, ...]:
    """The classes that have usable nodes; nodes that no class names are one class without a name.

    Args:
        class_of: The class of each node that a class names.
        max_nodes: The most nodes of a job; 0: no limit.
    """
    members: dict[str, list[Node]] = {}
    for node in usable if class_of else ():
        if node.processors:
            members.setdefault(class_of.get(node.name, ""), []).append(node)

    def state(name: str, nodes: Sequence[Node]) -> NodeClassState:
        free, until = reserved(types := instance_types_of(settings, name or None))
        closed = closings(types)
        said = settings.classes.get(name)
        return NodeClassState(
            name=name,
            nodes_total=min(len(nodes), max_nodes or len(nodes)),
            processors_per_node=min(node.processors for node in nodes),
            memory_mb_per_node=min(node.memory_mb for node in nodes),
            gpus_per_node=said.gpus if said is not None else 0,
            gpu_type=said.gpu_type if said is not None else "",
            features=tuple(sorted(set[str].intersection(*(set(node.features) for node in nodes)))),
            nodes_with=dict(nodes_with(nodes)),
            # EC2 may choose any of them, and budgets must hold whichever it is
            spot_usd_per_hour=max(prices.of(each).spot.usd_per_hour for each in types),
            on_demand_usd_per_hour=max(prices.of(each).on_demand.usd_per_hour for each in types),
            spot_open=closed.spot is None and not all(is_never_spot(node.features) for node in nodes),
            on_demand_open=closed.on_demand is None,
            on_demand_closed=closed.on_demand,
            boot_seconds=boot_seconds(nodes, types),
            reserved_free_nodes=free,
            reserved_until=until,
        )

    return tuple(state(name, nodes) for name, nodes in sorted(members.items()))
