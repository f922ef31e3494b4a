"""EC2 as `advisor rehearse --shipped` meets it: spot lives and prices from traces, stock-outs and quotas."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from advisor.arrays import Floats
from advisor.model.errors import BadInput
from advisor.replay.spot_traces import csv_rows, malformed, read_spot_counts, text_of
from advisor.testing.memory_ec2_market import ON_DEMAND, SPOT, Ec2Market, Steps, StockOut

_HOUR: Final = 3600.0
_COLUMNS: Final = ("timestamp", "az", "instance_type", "product", "price_usd_per_hour")


class Trace(NamedTuple):
    """A value from each time on (seconds from 0, ascending), which comes again after ``period`` seconds."""

    times: Floats
    values: Floats
    period: float


class Outage(NamedTuple):
    """Hours from the begin of the rehearsal in which a market has no capacity."""

    market: str
    begin: float
    hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudMarket:
    """The market of EC2 during a rehearsal; by default unlimited capacity at fixed prices.

    Attributes:
        spot_traces: Shares of each pool's instances that may be alive; together they have all nodes.
        spot_price: Spot price over the on-demand price; None: that of the settings.
        vcpu_limits: Quotas of the account, by market.
    """

    spot_traces: tuple[Trace, ...] = ()
    spot_price: Trace | None = None
    outages: tuple[Outage, ...] = ()
    vcpu_limits: dict[str, int] = field(default_factory=dict)

    @property
    def has_spot(self) -> bool:
        """Whether it is known what becomes of spot instances."""
        return bool(self.spot_traces)

    def at(self, begin: float, *, nodes: int, vcpus: int, usd: float, spot_usd: float) -> Ec2Market:
        """The market of a site.

        Args:
            begin: When the rehearsal and each trace begin, epoch seconds.
            nodes, vcpus: Nodes of the burst partition, and vCPUs of one: as many as it has processors.
            usd, spot_usd: Price of a node and hour by the settings, on-demand and spot.
        """
        price = self.spot_price or Trace(np.zeros(1), np.full(1, spot_usd / usd), _HOUR)
        pools = len(self.spot_traces)
        return Ec2Market(
            spot_rooms=tuple(
                Steps(begin, trace.times, np.round(trace.values * nodes / pools), trace.period)
                for trace in self.spot_traces
            ),
            usd_per_hour=usd,
            spot_usd_per_hour=Steps(begin, price.times, price.values * usd, price.period),
            stock_outs=tuple(
                StockOut(out.market, begin + out.begin * _HOUR, begin + (out.begin + out.hours) * _HOUR)
                for out in self.outages
            ),
            vcpus=vcpus,
            vcpu_limits=self.vcpu_limits,
        )


def read_spot_trace(path: Path) -> Trace:
    """Read how many spot instances were alive: JSON with ``metadata.gap_seconds`` and ``data``.

    Returns:
        Shares of the largest number.

    Raises:
        BadInput: The file cannot be read, or is no such trace.
    """
    gap, alive = read_spot_counts(path)
    return Trace(np.arange(alive.size, dtype=np.float64) * gap, alive / float(alive.max()), alive.size * gap)


def read_spot_prices(path: Path, instance_type: str, usd_per_hour: float) -> Trace:
    """Read a history of spot prices: CSV with ``timestamp,az,instance_type,product,price_usd_per_hour``.

    Args:
        instance_type: Type of the rows that are read, in the first zone by name that has it.

    Returns:
        Spot price over on-demand price.

    Raises:
        BadInput: The file cannot be read, is no such history, or has no price of this type.
    """
    zones: dict[str, list[tuple[float, float]]] = {}
    try:
        for _, row in csv_rows(text_of(path), path, _COLUMNS):
            if row["instance_type"] == instance_type and row["product"].startswith("Linux"):
                time = datetime.fromisoformat(row["timestamp"]).timestamp()
                zones.setdefault(row["az"], []).append((time, float(row["price_usd_per_hour"])))
    except (ValueError, AttributeError, TypeError) as error:
        raise malformed(path, f"not a history of spot prices ({error})", ", ".join(_COLUMNS)) from None
    rows = sorted(zones[min(zones)]) if zones else []
    if len(rows) < 2 or not all(0.0 < price < np.inf for _, price in rows):
        raise malformed(path, f"no spot prices of {instance_type}", "prices of ec2.instance_type")
    times, prices = np.array(rows).T
    return Trace(times[:-1] - times[0], prices[:-1] / usd_per_hour, float(times[-1] - times[0]))


def outage_of(text: str) -> Outage:
    """Read ``MARKET@BEGIN+HOURS``, hours from the begin of the rehearsal: ``on-demand@24+6``.

    Raises:
        BadInput: Another form, or another market.
    """
    market, _, span = text.partition("@")
    begin, _, hours = span.partition("+")
    try:
        found = Outage(market, float(begin), float(hours))
    except ValueError:
        found = Outage("", 0.0, 0.0)
    if found.market not in (SPOT, ON_DEMAND) or not (
        0.0 <= found.begin < np.inf and 0.0 < found.hours < np.inf
    ):
        raise BadInput(
            f"{text!r} is not a stock-out",
            where="--stock-out",
            mend="Write the market, the first hour and the number of hours, such as on-demand@24+6",
            code="rehearse.stock_out",
        )
    return found
