"""The result of a launch."""

from __future__ import annotations

from dataclasses import dataclass, field

from advisor.ec2.errors import Failure
from advisor.ec2.instances import Instance
from advisor.ec2.journal import Intent
from advisor.ec2.pools import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A node and its instance.

    `private_ip` may be empty for a moment after the launch (F06); `subnet_id` is where EC2 put it, None while
    that is unknown.
    """

    node: str
    instance_id: str
    private_ip: str
    pool: Pool
    subnet_id: str | None = None


@dataclass(slots=True)
class LaunchReport:
    """The result of one `Fleet.resume`.

    Attributes:
        launched: Nodes with an instance, including those that had one already.
        failed: Nodes without an instance, and why.
        parked: Quota errors that have made a purchase option unavailable just now; the admin is told once.
    """

    launched: list[Launched] = field(default_factory=list)
    failed: dict[str, Failure] = field(default_factory=dict)
    parked: list[Failure] = field(default_factory=list)


def pool_of(item: Intent | Instance) -> Pool:
    """The pool of a launch or of an instance."""
    return Pool(option=item.option, instance_type=item.instance_type, subnet_id=item.subnet_id)


def as_launched(instance: Instance) -> Launched:
    """A node's existing instance, as part of a report."""
    return Launched(
        node=instance.node or "",
        instance_id=instance.instance_id,
        private_ip=instance.private_ip,
        pool=pool_of(instance),
        subnet_id=instance.subnet_id,
    )
