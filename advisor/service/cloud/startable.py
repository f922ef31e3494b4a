"""Which cloud nodes the account's quotas allow to be up, asked at each poll: others are as good as taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from advisor.decide.submission.cloud_terms import ANY
from advisor.ec2.account import Account
from advisor.ec2.instances import Instance
from advisor.ec2.paid import PaidBook
from advisor.ec2.quotas import launches_left
from advisor.model.advice import Capacity
from advisor.model.cluster import Node, NodePower
from advisor.model.site import ROOM_KINDS, Room, class_kind
from advisor.service.observation.cloud_rooms import NO_ROOM

TypesOf = Callable[[str], tuple[str, ...]]
"""Gives the instance types that may be a node."""


def startable(
    nodes: Sequence[Node],
    types_of: TypesOf,
    account: Account,
    listed: Sequence[Instance],
    paid: PaidBook,
    *,
    use_spot: bool,
) -> list[Node]:
    """The nodes without those powered-down ones that no quota allows to be launched.

    Where a node may be of several types, or spot or on-demand, the most generous quota counts. What capacity
    reservations hold free counts against a quota already, so it can be launched. Classes that share a quota
    are each shown all that is left of it.

    Args:
        paid: What is free of capacity reservations.
    """
    if not account.quotas:
        return list(nodes)
    options = (Capacity.SPOT, Capacity.ON_DEMAND) if use_spot else (Capacity.ON_DEMAND,)
    with_instance = {item.node for item in listed if item.is_alive}
    left: dict[tuple[str, ...], float] = {}
    found = []
    for node in sorted(nodes, key=lambda node: node.power is NodePower.DOWN):  # those under way come first
        types = types_of(node.name)
        if types not in left:
            allowed = max(
                launches_left(account, listed, kind, option) for kind in types for option in options
            )
            left[types] = allowed + sum(row.places(types) for row in paid.rows if row.is_of_reservation)
        is_launched = node.power is NodePower.POWERING_UP and node.name not in with_instance
        if node.power is not NodePower.DOWN and not is_launched:
            found.append(node)
        elif left[types] >= 1.0 or is_launched:
            left[types] -= 1.0
            found.append(node)
    return found


def without_room(
    rooms: Mapping[str, tuple[Room, ...]],
    usable: Iterable[Node],
    startable: Iterable[Node],
    class_of: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, tuple[Room, ...]]:
    """The rooms, with none for each class of which no node can be up.

    Args:
        rooms: When cloud nodes have room for further jobs, by kind of room (``class_kind``).
        usable: The nodes that jobs may have, and of these ``startable`` the ones that quotas allow.
    """
    able = {class_of.get(node.name, "") for node in startable}
    full = {class_of.get(node.name, "") for node in usable} - able if class_of else set()
    keys = (class_kind(name, kind) for name in full for kind in ROOM_KINDS)
    return {**rooms, **dict.fromkeys(keys, NO_ROOM[ANY])}
