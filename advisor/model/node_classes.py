"""Classes of cloud nodes as a decision sees them, and which of them a job fits."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from advisor.model.advice import Capacity
from advisor.model.job import Job

_GPUS: Final = re.compile(r"(?:gres[:/])?gpu(?:[:/](?P<type>[A-Za-z][\w.-]*))?(?:[:=](?P<number>\d{1,4}))?")

_COUNTED: Final = re.compile(
    r"(?:gres[:/])?gpu(?:[:/=](?!\d+$)[\w.-]+)?(?::no_consume)?(?:[:=](?P<number>\d{1,4}))?"
)
"""The same for any type, such as ``gpu:2080ti:4``."""
NOT_BY_NODE: Final = "not by node alone: "
"""Before resources by task or socket, or with processors or memory for each: they are not a node's alone."""
OF_ALL_NODES: Final = "of all nodes: "
"""Before resources that a job of several nodes asks for together (``--gpus=4 -N2``)."""
_BESIDE: Final = re.compile(rf"\([^)]*\)|^(?:{NOT_BY_NODE}|{OF_ALL_NODES}|by task or socket: )+")
"""What stands beside the numbers: the sockets of sinfo, and our word for other requests, also the hook's of
earlier releases."""
_NEVER_SPOT: Final = (Capacity.ON_DEMAND.value, Capacity.RESERVED.value)
"""Features of nodes that are never launched as spot."""


class Gpus(NamedTuple):
    """GPUs of a node, or asked for on each node; the type is empty where none is named."""

    number: int
    type: str = ""


@lru_cache(maxsize=1024)
def gpus_asked(generic_resources: str) -> Gpus | None:
    """GPUs that a job asks for; None where it asks for anything else, or in words that are not known.

    Of those for all of its nodes together one node may have to have nearly all.
    """
    match = _GPUS.fullmatch(generic_resources.removeprefix(OF_ALL_NODES).strip())
    if match is None:
        return None
    return Gpus(int(match["number"] or 1), match["type"] or "")


@lru_cache(maxsize=1024)
def gpu_count(generic_resources: str) -> int:
    """The number of GPUs that a list of generic resources names, such as ``gpu:a100:2(S:0-1),nvme:1``."""
    parts = _BESIDE.sub("", generic_resources).split(",")
    return sum(int(match["number"] or 1) for part in parts if (match := _COUNTED.fullmatch(part.strip())))


@lru_cache(maxsize=1024)
def gpu_types(generic_resources: str) -> tuple[str, ...]:
    """The types of a node's GPUs that are named, such as ``a100`` and ``v100``."""
    parts = _BESIDE.sub("", generic_resources).split(",")
    types = (match["type"] for part in parts if (match := _GPUS.fullmatch(part.strip())))
    return tuple(sorted({name for name in types if name}))


class ReservedUntil(msgspec.Struct, frozen=True, gc=False):
    """Free nodes that are paid for until some moment, epoch seconds."""

    nodes: int
    until: float


class ClosedCapacity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Capacity in which nothing is launched for a while.

    Attributes:
        until: When the next launch is tried, epoch seconds.
        code: EC2's error code of the last launch.
    """

    until: float
    code: str


def less_reserved(
    free: int, until: tuple[ReservedUntil, ...], taken: int
) -> tuple[int, tuple[ReservedUntil, ...]]:
    """Free reserved nodes after some were taken: first those that end first."""
    left = []
    for each in until:
        used = min(taken, each.nodes)
        taken -= used
        if used < each.nodes:
            left.append(ReservedUntil(each.nodes - used, each.until))
    return max(0, free - taken), tuple(left)


class NodeClassState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One class of the burst partition's nodes at one moment.

    Attributes:
        name: The key in ``ec2.classes``; empty for the nodes that no class names.
        processors_per_node, memory_mb_per_node: Size of its smallest node; the memory in MiB.
        gpus_per_node, gpu_type: The type is empty where the class names none.
        features: Those that all its nodes have.
        nodes_with: Number of nodes by feature.
        spot_usd_per_hour, on_demand_usd_per_hour: Prices of its most expensive instance type.
        spot_open, on_demand_open: Whether any pool of its instance types is open.
        on_demand_closed: Until when, and why, on-demand pools are closed; None where they are open.
        boot_seconds: Learned of its instance types, as the option that is tried first; None while unknown.
        reserved_free_nodes, reserved_until: As those of
            :class:`~advisor.model.site.CloudState`.
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
    on_demand_closed: ClosedCapacity | None = None
    boot_seconds: float | None = None
    reserved_free_nodes: int = 0
    reserved_until: tuple[ReservedUntil, ...] = ()

    def with_reserved_taken(self, nodes: int) -> NodeClassState:
        """The class after so many of its reserved nodes were taken."""
        if not nodes:
            return self
        free, until = less_reserved(self.reserved_free_nodes, self.reserved_until, nodes)
        return replace(self, reserved_free_nodes=free, reserved_until=until)

    def nodes_needed(self, job: Job) -> int:
        """Nodes that one task of a job needs."""
        return job.nodes_of_size(self.processors_per_node, self.memory_mb_per_node)

    def fits(self, job: Job) -> bool:
        """Whether its nodes have what one task of a job asks for: cores, memory, GPUs, features."""
        nodes = self.nodes_needed(job)
        return (
            nodes <= self.nodes_total
            and job.processors_of_one <= self.processors_per_node
            and job.node_memory_mb(self.processors_per_node) <= self.memory_mb_per_node
            and (job.memory_mb or 0) <= nodes * self.memory_mb_per_node
            and {*job.features, *job.prefer} <= set(self.features)
            and self.has_gpus(job)
        )

    def has_gpus(self, job: Job) -> bool:
        """Whether its nodes have the generic resources that a job asks for."""
        if not job.gres:
            return True
        asked = gpus_asked(job.gres)
        return asked is not None and asked.number <= self.gpus_per_node and asked.type in ("", self.gpu_type)

    def has_steady(self, job: Job) -> bool:
        """Whether enough of its nodes are never spot."""
        return any(self.nodes_with.get(name, 0.0) >= self.nodes_needed(job) for name in _NEVER_SPOT)

    def preference(self, job: Job) -> tuple[bool, float, int, str]:
        """Sorts classes that fit a job: those that can be launched first, then by the price of its nodes.

        Nodes that are paid for already cost nothing, but those with GPUs are left to jobs that use them.
        """
        nodes = self.nodes_needed(job)
        is_paid = job.array_tasks * nodes <= self.reserved_free_nodes and bool(job.gres) >= bool(
            self.gpus_per_node
        )
        price = 0.0 if is_paid else nodes * self.on_demand_usd_per_hour
        is_shut = not (self.spot_open or self.on_demand_open)
        return is_shut and not is_paid, price, nodes, self.name


def class_for(job: Job, classes: tuple[NodeClassState, ...]) -> NodeClassState:
    """The cheapest class that a job fits; the one of the largest nodes where it fits none.

    A job that may not be requeued goes to a class with nodes that are never spot, where there is one: from
    another it would have to stay.
    """
    fitting = [each for each in classes if each.fits(job)]
    if job.requeue is False:
        fitting = [each for each in fitting if each.has_steady(job)] or fitting
    if fitting:
        return min(fitting, key=lambda each: each.preference(job))
    return max(classes, key=lambda each: (each.processors_per_node, each.memory_mb_per_node, each.name))
