"""The result of a launch, as `advisor.ec2.fleet` gives it to the provision loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.ec2.errors import Failure
from advisor.ec2.instances import Instance, as_instance
from advisor.ec2.journal import Intent
from advisor.ec2.pools import Pool, Target
from advisor.model.advice import Capacity


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
        launched: The nodes with an instance, including those that had one already.
        newly_unavailable: The errors by which a purchase option or a pool has become unavailable in this
            launch, and which only the admin can mend. Later launches do not repeat them.
        taken_back: Nodes whose instances were ended at once, since others of their job got none; EC2 bills
            its minimum for them.
    """

    launched: list[Launched] = field(default_factory=list)
    failed: dict[str, Failure] = field(default_factory=dict)
    newly_unavailable: list[Failure] = field(default_factory=list)
    taken_back: set[str] = field(default_factory=set)


def pool_of(item: Intent | Instance) -> Pool:
    """The pool of a launch or of an instance."""
    if isinstance(item, Intent):
        target = item.target
    else:
        name = item.reservation_id
        target = Target(reservation_id=name, zone=item.zone) if name else None
    option = item.option if target is None else Capacity.RESERVED
    return Pool(option=option, instance_type=item.instance_type, subnet_id=item.subnet_id, target=target)


def as_launched(instance: Instance) -> Launched:
    """The report's entry for a node that has an instance already."""
    return Launched(
        node=instance.node or "",
        instance_id=instance.instance_id,
        private_ip=instance.private_ip,
        pool=pool_of(instance),
        subnet_id=instance.subnet_id,
    )


def as_if_listed(unlisted: Mapping[str, tuple[str, Intent]]) -> list[Instance]:
    """Instance records for instances that EC2 does not list yet, with what their launches say of them.

    Args:
        unlisted: Instance id to node and launch.
    """
    return [
        as_instance(
            {
                "InstanceId": instance_id,
                "InstanceType": intent.instance_type,
                "InstanceLifecycle": intent.option.value,
                "CapacityReservationId": intent.target.reservation_id if intent.target else "",
            },
            node=node,
        )
        for instance_id, (node, intent) in unlisted.items()
    ]
