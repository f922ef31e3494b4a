"""The AWS account as `advisor.ec2.reading_account` reads it: paid capacity, others' instances, quotas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A capacity reservation, or a capacity block, that our nodes may be launched in.

    Attributes:
        total: Its instances.
        others: Those that others of the account use.
        ends_at: When its instances are ended (a block) or cost money again, epoch seconds; infinite: never.
        is_block: Whether it is a capacity block.
    """

    reservation_id: str
    instance_type: str
    zone: str
    total: int
    others: int = 0
    ends_at: float = math.inf
    is_block: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedInstances:
    """Reserved instances of one purchase.

    Attributes:
        zone: Empty: any of the region.
        usd_per_hour: Cost of one per hour, whether it runs or not.
    """

    name: str
    instance_type: str
    zone: str
    count: int
    usd_per_hour: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsPlan:
    """A Savings Plan.

    Attributes:
        usd_per_hour: The money that it pays each hour, US dollars.
        rates: Price of an instance per hour under it, by instance type, US dollars.
    """

    name: str
    usd_per_hour: float
    rates: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """Instances of the account that are not ours, pending or running.

    Attributes:
        on_demand: Number of on-demand instances by type and zone, without those in capacity reservations.
        held: Those in capacity reservations, by instance type.
        spot: Number of spot instances by type.
    """

    on_demand: Mapping[tuple[str, str], int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    spot: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The data last read of the account.

    Attributes:
        zones: Zone by subnet of ``ec2.subnet_ids``; empty: any zone.
        unused: Instances that all capacity reservations of the account hold free, by instance type: they
            count against the on-demand quota.
        quotas: vCPUs that may run, by quota code.
        vcpus: vCPUs of an instance, by instance type.
    """

    reservations: tuple[Reservation, ...] = ()
    reserved: tuple[ReservedInstances, ...] = ()
    plans: tuple[SavingsPlan, ...] = ()
    others: Others = Others()
    zones: Mapping[str, str] = field(default_factory=dict)
    unused: Mapping[str, int] = field(default_factory=dict)
    quotas: Mapping[str, float] = field(default_factory=dict)
    vcpus: Mapping[str, int] = field(default_factory=dict)
