"""What a `MemoryEc2` has to sell over time: room for spot instances, spot prices, stock-outs and quotas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from advisor.arrays import Floats
from advisor.testing.memory_ec2_records import refusal

SPOT: Final = "spot"
ON_DEMAND: Final = "on-demand"
NOTICE_SECONDS: Final = 120.0
"""From EC2's warning to the end of a spot instance."""
QUOTA_CODE: Final = {SPOT: "MaxSpotInstanceCountExceeded", ON_DEMAND: "VcpuLimitExceeded"}
_STANDARD: Final = {"L-34B43A08": SPOT, "L-1216C47A": ON_DEMAND}
"""Service Quotas' names of the limits."""


class Steps:
    """A value that changes in steps and repeats.

    Args:
        begin: Epoch seconds of the first step.
        times: Of the steps, seconds from ``begin``, shape ``(n,)``, ascending from 0.
        values: From each step on, shape ``(n,)``.
        period: After so many seconds all steps come again.
    """

    def __init__(self, begin: float, times: Floats, values: Floats, period: float) -> None:
        kept = np.concatenate(([True], values[1:] != values[:-1]))
        self._begin, self._period = begin, period
        self._times, self._values = times[kept], values[kept]
        self._areas = np.cumsum(np.diff(self._times, append=period) * self._values)

    def _place(self, time: float) -> tuple[float, float, int]:
        """Whole periods before a moment, seconds into its period, and the step in force."""
        periods, into = divmod(time - self._begin, self._period)
        return periods, into, int(np.searchsorted(self._times, into, side="right")) - 1

    def at(self, time: float) -> float:
        """The value at a moment, epoch seconds."""
        return float(self._values[self._place(time)[2]])

    def next_change(self, time: float) -> float:
        """Epoch seconds of the first step after a moment; infinite where the value never changes."""
        if len(self._values) == 1:
            return math.inf
        periods, _, step = self._place(time)
        into = self._times[step + 1] if step + 1 < len(self._times) else self._period
        return float(self._begin + periods * self._period + into)

    def integral(self, begin: float, end: float) -> float:
        """Value times seconds between two moments, epoch seconds."""
        return self._area(end) - self._area(begin)

    def _area(self, time: float) -> float:
        periods, into, step = self._place(time)
        before = self._areas[step - 1] if step else 0.0
        within = before + (into - self._times[step]) * self._values[step]
        return float(periods * self._areas[-1] + within)


class StockOut(NamedTuple):
    """A time in which a market (``spot`` or ``on-demand``) launches nothing, epoch seconds."""

    market: str
    begin: float
    end: float


@dataclass(kw_only=True)
class Ec2Market:
    """Room, prices and limits of an account, for one instance type.

    Attributes:
        spot_rooms: Spot instances that may be alive, as a sum; empty: any number. EC2 takes back what is
            more, at random, with a notice.
        usd_per_hour: Of an on-demand instance; 0: the price list has none.
        spot_usd_per_hour: Of a spot instance; None: there is no history of prices.
        stock_outs: Times without capacity.
        vcpus: Of an instance.
        vcpu_limits: Quotas by market; no entry: none.
    """

    spot_rooms: tuple[Steps, ...] = ()
    usd_per_hour: float = 0.0
    spot_usd_per_hour: Steps | None = None
    stock_outs: tuple[StockOut, ...] = ()
    vcpus: int = 4
    vcpu_limits: Mapping[str, int] = field(default_factory=dict)

    def room(self, market: str, time: float) -> float:
        """Instances of a market that EC2 has capacity for, those that are alive included."""
        if any(out.market == market and out.begin <= time < out.end for out in self.stock_outs):
            return 0.0
        return self.spot_room(time) if market == SPOT else math.inf

    def spot_room(self, time: float) -> float:
        """Spot instances that may be alive at a moment, epoch seconds."""
        return sum(int(room.at(time)) for room in self.spot_rooms) if self.spot_rooms else math.inf

    def next_room(self, time: float) -> float:
        """When that changes next, epoch seconds; infinite: never."""
        return min((room.next_change(time) for room in self.spot_rooms), default=math.inf)

    @property
    def spot_prices_move(self) -> bool:
        """Whether the spot price changes at all."""
        prices = self.spot_usd_per_hour
        return prices is not None and prices.next_change(0.0) < math.inf

    def quota(self, market: str) -> float:
        """Instances of a market that the account may have."""
        limit = self.vcpu_limits.get(market)
        return math.inf if limit is None else limit // self.vcpus

    def quota_told(self, code: str) -> dict[str, Any]:
        """GetServiceQuota: the limit that launches meet."""
        limit = self.vcpu_limits.get(_STANDARD.get(code, ""))
        if limit is None:
            raise refusal("NoSuchResourceException", "get_service_quota")
        return {"Quota": {"QuotaCode": code, "Value": float(limit)}}

    def usd(self, market: str, begin: float, end: float) -> float:
        """What an instance costs from one moment to another, epoch seconds."""
        if market == SPOT and self.spot_usd_per_hour is not None:
            return self.spot_usd_per_hour.integral(begin, end) / 3600.0
        return self.usd_per_hour * (end - begin) / 3600.0
