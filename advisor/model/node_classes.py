"""Classes of cloud nodes as a decision sees them, and which of them a job fits."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from advisor.model.job import Job

_GPUS: Final = re.compile(r"(?:gres[:/])?gpu(?:[:/](?P<type>[A-Za-z][\w.-]*))?(?:[:=](?P<number>\d{1,4}))?")


class Gpus(NamedTuple):
    """GPUs of a node, or asked for on each node; the type is empty where none is named."""

    number: int
    type: str = ""


@lru_cache(maxsize=1024)
def gpus_asked(generic_resources: str) -> Gpus | None:
    """GPUs that a job asks for; None where it asks for anything else, or in words that are not known."""
    match = _GPUS.fullmatch(generic_resources.strip())
    if match is None:
        return None
    return Gpus(int(match["number"] or 1), match["type"] or "")


class NodeClassState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One class of the burst partition's nodes at one moment.

    Attributes:
        name: As in ``ec2.classes``; empty for the nodes that no class names.
        nodes_total: Usable nodes.
        processors_per_node, memory_mb_per_node: Of the smallest one; the memory in MiB.
        gpus_per_node, gpu_type: The type is empty where the class names none.
        features: Those that all its nodes have.
        nodes_with: Number of nodes by feature.
        spot_usd_per_hour, on_demand_usd_per_hour: Of the dearest of its instance types.
        spot_open, on_demand_open: Whether any pool of its instance types is open.
        boot_seconds: Learned of its instance types, as the option that is tried first; None while unknown.
    """

    name: str
    nodes_total: int
    processors_per_node: int
    memory_mb_per_node: int
    gpus_per_node: int = 0
    gpu_type: str = ""
    features: tuple[str, ...] = ()
    nodes_with: dict[str, float] = {}
    spot_usd_per_hour: float
    on_demand_usd_per_hour: float
    spot_open: bool = True
    on_demand_open: bool = True
    boot_seconds: float | None = None

    def nodes_needed(self, job: Job) -> int:
        """Nodes that one task of a job needs."""
        return max(job.nodes or 1, -(-job.processors // self.processors_per_node))

    def fits(self, job: Job) -> bool:
        """Whether its nodes have what one task of a job asks for: cores, memory, GPUs, features."""
        nodes = self.nodes_needed(job)
        return (
            nodes <= self.nodes_total
            and (job.memory_mb_per_node or 0) <= self.memory_mb_per_node
            and (job.memory_mb or 0) <= nodes * self.memory_mb_per_node
            and set(job.features) <= set(self.features)
            and self.has_gpus(job)
        )

    def has_gpus(self, job: Job) -> bool:
        """Whether its nodes have the generic resources that a job asks for."""
        if not job.gres:
            return True
        asked = gpus_asked(job.gres)
        return asked is not None and asked.number <= self.gpus_per_node and asked.type in ("", self.gpu_type)

    def preference(self, job: Job) -> tuple[bool, float, int, str]:
        """Sorts classes that fit a job: those that can be launched first, then by the price of its nodes."""
        nodes = self.nodes_needed(job)
        is_shut = not (self.spot_open or self.on_demand_open)
        return is_shut, nodes * self.on_demand_usd_per_hour, nodes, self.name


def class_for(job: Job, classes: tuple[NodeClassState, ...]) -> NodeClassState:
    """The cheapest class that a job fits; the one of the largest nodes where it fits none."""
    fitting = [each for each in classes if each.fits(job)]
    if fitting:
        return min(fitting, key=lambda each: each.preference(job))
    return max(classes, key=lambda each: (each.processors_per_node, each.memory_mb_per_node, each.name))
