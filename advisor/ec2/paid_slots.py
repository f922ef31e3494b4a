"""Places in capacity reservations that a launch may name; `advisor.ec2.paid` counts them as money. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.ec2.account import Account
from advisor.ec2.instances import Instance
from advisor.ec2.journal import Intent
from advisor.ec2.launches import Wanted
from advisor.ec2.pools import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Free places of one reservation.

    Attributes:
        subnet_id: The subnet of the instances; None: EC2 chooses it by the zone.
        number: The number of free places.
        ends_at: When the reservation ends, epoch seconds; jobs that may run longer are not launched in it.
    """

    target: Target
    instance_type: str
    subnet_id: str | None
    number: int
    ends_at: float

    def of(self, wanted: Wanted, nodes: Sequence[str]) -> Wanted:
        """Return the launch of some of the wanted nodes in this reservation."""
        return replace(
            wanted,
            nodes=tuple(nodes),
            instance_types=(self.instance_type,),
            subnet_id=self.subnet_id,
            target=self.target,
        )


def slots_of(
    account: Account,
    listed: Iterable[Instance],
    launched: Mapping[str, tuple[str, Intent]],
    types: Collection[str],
    near: Instance | None = None,
) -> Iterator[Slots]:
    """The free places for instances of these types: those of capacity blocks first, then what ends first.

    Args:
        listed: The cluster's instances that EC2 lists.
        launched: The cluster's instances by id, including those that EC2 does not list yet.
        near: An instance in whose subnet the others must be launched; None: any subnet.
    """
    known = {item.instance_id: item for item in listed}
    ours = Counter(item.reservation_id for item in known.values() if item.is_alive)
    ours.update(
        intent.target.reservation_id
        for instance_id, (_, intent) in launched.items()
        if intent.target is not None and instance_id not in known
    )
    for each in sorted(account.reservations, key=lambda each: (not each.is_block, each.ends_at)):
        subnet = next((name for name, zone in account.zones.items() if zone == each.zone), None)
        number = each.total - each.others - ours[each.reservation_id]
        if each.instance_type not in types or number <= 0 or (account.zones and subnet is None):
            continue
        if near is not None:
            if near.zone != each.zone:
                continue
            subnet = near.subnet_id
        yield Slots(
            target=Target(reservation_id=each.reservation_id, zone=each.zone, is_block=each.is_block),
            instance_type=each.instance_type,
            subnet_id=subnet,
            number=number,
            ends_at=each.ends_at,
        )
