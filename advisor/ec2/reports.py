"""What a launch tells its caller."""

from __future__ import annotations

from dataclasses import dataclass, field

from advisor.ec2.errors import Failure
from advisor.ec2.instances import Instance
from advisor.ec2.journal import Intent
from advisor.ec2.pools import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A node and the instance it got.

    Attributes
    ----------
    node : str
        Slurm's node name.
    instance_id : str
        EC2's id.
    private_ip : str
        May be empty for a moment after the launch: EC2 tells it later (F06).
    pool : Pool
        Where the instance came from.
    """

    node: str
    instance_id: str
    private_ip: str
    pool: Pool


@dataclass(slots=True)
class LaunchReport:
    """What came of one `Fleet.resume`.

    Attributes
    ----------
    launched : list of Launched
        Nodes with an instance, including those that had one already.
    failed : dict of node to Failure
        Nodes without one, and why.
    parked : list of Failure
        Purchase options closed by a quota just now: tell the admin, once.
    """

    launched: list[Launched] = field(default_factory=list)
    failed: dict[str, Failure] = field(default_factory=dict)
    parked: list[Failure] = field(default_factory=list)


def pool_of(item: Intent | Instance) -> Pool:
    """Pool of a launch or of an instance."""
    return Pool(option=item.option, instance_type=item.instance_type, subnet_id=item.subnet_id)


def as_launched(instance: Instance) -> Launched:
    """An instance that a node has already, as if it had been launched now."""
    return Launched(
        node=instance.node or "",
        instance_id=instance.instance_id,
        private_ip=instance.private_ip,
        pool=pool_of(instance),
    )
