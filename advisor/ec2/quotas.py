"""Quotas of vCPUs: which code counts for an instance type and a market, and how much is left. Pure.

At each poll `advisor control` asks how many more nodes could be launched.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from advisor.ec2.account import Account
from advisor.ec2.instances import Instance
from advisor.model.advice import Capacity

# "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests" and the like, as Service Quotas has them
_ON_DEMAND: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys("acdhimrtz", "L-1216C47A")
    | {"g": "L-DB2E81BA", "vt": "L-DB2E81BA", "p": "L-417A185B", "f": "L-74FC7D96", "x": "L-7295265B"}
    | {"inf": "L-1945791B", "dl": "L-6E869C2A", "trn": "L-2C3B7624", "hpc": "L-F7808C92"}
)
_SPOT: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys("acdhimrtz", "L-34B43A08")
    | {"g": "L-3819A6DF", "vt": "L-3819A6DF", "p": "L-7212CCBC", "f": "L-88CF9481", "x": "L-E3A00192"}
    | {"inf": "L-B5D1601B", "dl": "L-85EED4F7", "trn": "L-6B0D517C"}
)
_FAMILY: Final = re.compile(r"u-|[a-z]+?(?=\d)")


def quota_code(instance_type: str, option: Capacity) -> str | None:
    """The code of the quota of an instance type; None for one that has a quota of its own kind."""
    match = _FAMILY.match(instance_type)
    family = match[0] if match else ""
    codes = _SPOT if option is Capacity.SPOT else _ON_DEMAND
    return codes.get("i" if family in ("im", "is") else family)  # `mac` and `u-` have quotas of their own


def vcpus_used(account: Account, ours: Iterable[Instance], code: str) -> float:
    """How many vCPUs count against a quota now.

    What capacity reservations hold free counts as well; capacity blocks do not count.
    """
    blocks = {each.reservation_id for each in account.reservations if each.is_block}
    running = [item for item in ours if item.is_alive and item.reservation_id not in blocks]
    counted: dict[Capacity, Counter[str]] = {
        Capacity.SPOT: Counter(account.others.spot),
        Capacity.ON_DEMAND: Counter(account.others.held) + Counter(account.unused),
    }
    for (kind, _), number in account.others.on_demand.items():
        counted[Capacity.ON_DEMAND][kind] += number
    for item in running:
        market = Capacity.SPOT if item.option is Capacity.SPOT else Capacity.ON_DEMAND
        counted[market][item.instance_type] += 1
    return sum(
        number * account.vcpus.get(kind, 0)
        for option, found in counted.items()
        for kind, number in found.items()
        if quota_code(kind, option) == code
    )


def launches_left(account: Account, ours: Iterable[Instance], instance_type: str, option: Capacity) -> float:
    """Instances of a type that the quota still allows; infinite where it is not known."""
    code = quota_code(instance_type, option)
    size = account.vcpus.get(instance_type)
    if code is None or code not in account.quotas or not size:
        return math.inf
    return max(0.0, (account.quotas[code] - vcpus_used(account, ours, code)) // size)
