"""Settings of node classes: the sizes of cloud nodes, and the instance types that serve each."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from advisor.model.advice import Capacity
from advisor.model.settings_section import Dollars, Section, setting


def _no_capacity(name: str) -> str:
    if name in set(Capacity):
        msg = f"a class cannot be named {name}: that feature of a node means a capacity"
        raise ValueError(msg)
    return name


ClassName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"), AfterValidator(_no_capacity)]
"""A word that is also the feature of the class's nodes and the name of their node set."""


class PaidCapacity(Section):
    """Capacity that is paid for and that EC2 does not show to this account, or may not be used unasked."""

    instance_type: str = setting(
        "", "The type of its instances.", why="Only the site knows what it has bought."
    )
    nodes: int = setting(0, "Reserved instances of that type.", why="As bought.", unit="nodes", ge=0)
    zone: str = setting("", "Their zone; empty: any.", why="Most reserved instances are of a region.")
    reservation_id: str = setting(
        "",
        "A targeted capacity reservation or a capacity block (`cr-...`) that nodes may be launched in.",
        why="A targeted reservation may be another team's.",
        pattern=r"(cr-[0-9a-f]+)?",
    )
    savings_plan_usd_per_hour: Dollars = setting(
        0.0,
        "What a Savings Plan that another account has bought pays here each hour.",
        why="Plans of this account are read from EC2.",
        unit="USD",
    )
    savings_plan_rate: float = setting(
        0.7,
        "The price of an instance under that plan as a share of its on-demand price.",
        why="Plans of a year save about 30 %.",
        gt=0.0,
        le=1.0,
    )


class NodeClass(Section):
    """One class of cloud nodes: what Slurm is told of them, and which instance types may be one of them."""

    nodes: str = setting(
        ...,
        "Slurm's names of its nodes, such as `big[1-20]`. No node is in two classes.",
        why="Only the site knows its names.",
        min_length=1,
    )
    instance_types: tuple[str, ...] = setting(
        ...,
        "The instance types that may be one of its nodes, the preferred one first. Each must have at least "
        "its cores, memory and GPUs.",
        why="Only the site knows what its image runs on.",
        min_length=1,
    )
    cores: int = setting(..., "Slurm's CPUs of one node.", why="As slurm.conf has it.", ge=1)
    memory_mb: int = setting(
        ..., "Slurm's RealMemory of one node.", why="As slurm.conf has it.", unit="MB", ge=1
    )
    on_demand_usd_per_hour: Dollars = setting(
        ...,
        "The on-demand price of the dearest of its types per hour. It stands for every price of its types, "
        "spot as well, until the advisor has read AWS's own.",
        why="A price that is too low would let the budget be exceeded.",
        unit="USD",
        gt=0.0,
    )
    gpus: int = setting(0, "GPUs of one node.", why="Most nodes have none.", ge=0)
    gpu_type: str = setting(
        "",
        "The type of its GPUs, as jobs name it in `--gres=gpu:TYPE:1`.",
        why="Many sites name none.",
        pattern=r"([A-Za-z][\w.-]*)?",
    )
    features: tuple[str, ...] = setting((), "Node features.", why="As slurm.conf has them.")
    placement_group: bool = setting(
        False,
        "Whether the nodes of a job of several nodes are launched close together, in a placement group.",
        why="Close nodes exchange messages faster, but EC2 has room for fewer of them together.",
    )
    efa: bool = setting(
        False,
        "Whether its nodes get an Elastic Fabric Adapter. Each of its types and the image must support it.",
        why="Only some instance types have one, and only jobs with MPI gain by it.",
    )

    @model_validator(mode="after")
    def _types_once(self) -> NodeClass:
        if len(set(self.instance_types)) < len(self.instance_types):
            msg = f"instance_types names a type twice: {', '.join(self.instance_types)}"
            raise ValueError(msg)
        return self
