"""The lines of slurm.conf for the classes of cloud nodes (`advisor config slurm`)."""

from __future__ import annotations

from advisor.ec2.classes import class_of_nodes
from advisor.model.settings import Settings
from advisor.model.settings_classes import NodeClass

_WEIGHT_STEP = 100
"""Between two classes: what the advisor adds to the weight of single nodes is less."""


def slurm_lines(settings: Settings) -> str:
    """NodeName, NodeSet and PartitionName of the classes; empty without any.

    Slurm fills nodes of low weight first, so the weights follow the price of a node.

    Raises:
        BadInput: A class names no node list, or a node that another class names.
    """
    classes = settings.ec2.classes
    class_of_nodes(settings.ec2)
    by_price = sorted(classes, key=lambda name: (classes[name].on_demand_usd_per_hour, name))
    lines = []
    if any(each.gpus for each in classes.values()):
        lines.append("GresTypes=gpu")
    for rank, name in enumerate(by_price, start=1):
        lines += [_node_line(name, classes[name], rank * _WEIGHT_STEP), f"NodeSet={name} Feature={name}"]
    if classes:
        partition = settings.cluster.burst_partition
        lines.append(f"PartitionName={partition} Nodes={','.join(by_price)} State=UP")
    return "".join(f"{line}\n" for line in lines)


def _node_line(name: str, each: NodeClass, weight: int) -> str:
    near = (*(("placement",) if each.placement_group else ()), *(("efa",) if each.efa else ()))
    features = ",".join(dict.fromkeys((name, *near, *each.features)))
    gres = f" Gres=gpu:{each.gpu_type + ':' if each.gpu_type else ''}{each.gpus}" if each.gpus else ""
    return (
        f"NodeName={each.nodes} CPUs={each.cores} RealMemory={each.memory_mb}{gres} "
        f"Feature={features} Weight={weight} State=CLOUD"
    )
