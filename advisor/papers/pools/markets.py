"""Spot pools of a replay: each has the capacity of a spot trace and the prices of a price history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from advisor.arrays import Floats
from advisor.replay.spot_traces import SpotCounts, csv_rows, malformed, read_spot_counts, text_of

_COLUMNS: Final = ("timestamp", "az", "instance_type", "price_usd_per_hour")


class Prices(NamedTuple):
    """Spot prices of one instance type in one zone: from each time (seconds) on, US dollars per hour."""

    times: Floats
    usd_per_hour: Floats

    def at(self, time: float) -> float:
        """The price at a time; before the first price it is the first one."""
        return float(self.usd_per_hour[max(0, int(np.searchsorted(self.times, time, "right")) - 1)])


@dataclass(frozen=True, slots=True)
class MarketPool:
    """One instance type in one zone; after its trace the capacity repeats.

    Attributes:
        capacity: Number of instances available at each tick; the n-th instance lives while it is n or more.
        begin: Time of the price history at which the trace begins.
    """

    key: str
    instance_type: str
    capacity: SpotCounts
    prices: Prices
    begin: float

    def price(self, time: float) -> float:
        """US dollars per hour, at seconds since the trace's begin."""
        return self.prices.at(self.begin + time)

    def free(self, time: float) -> int:
        """The number of instances available."""
        counts = self.capacity.counts
        return int(counts[int(time // self.capacity.gap_seconds) % len(counts)])

    def end_of(self, time: float, number: int) -> float:
        """When EC2 takes back the n-th instance (from 0) of a moment, seconds; infinite: never."""
        gap, counts = self.capacity
        tick = int(time // gap)
        ahead = np.roll(counts, -(tick % len(counts))) <= number
        return float((tick + int(np.argmax(ahead))) * gap) if ahead.any() else np.inf


def read_prices(path: Path) -> dict[tuple[str, str], Prices]:
    """Price histories by instance type and zone; times are seconds since the earliest row.

    Args:
        path: CSV with the columns timestamp (ISO 8601), az, instance_type and price_usd_per_hour.

    Raises:
        BadInput: The file cannot be read, or is not a price history.
    """
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for line, row in csv_rows(text_of(path), path, _COLUMNS):
        try:
            time = datetime.fromisoformat(row["timestamp"]).timestamp()
            price = float(row["price_usd_per_hour"])
            if not 0.0 < price < np.inf:
                raise ValueError(row["price_usd_per_hour"])  # noqa: TRY301
        except (ValueError, TypeError) as error:
            raise malformed(path, f"line {line}: {error}", "times in ISO 8601 and prices") from None
        found.setdefault((row["instance_type"], row["az"]), []).append((time, price))
    if not found:
        raise malformed(path, "it has no prices", "a row for each change of a price")
    first = min(row[0] for series in found.values() for row in series)
    histories = {key: np.array(sorted(series), np.float64) for key, series in found.items()}
    return {key: Prices(rows[:, 0] - first, rows[:, 1]) for key, rows in histories.items()}


def groups_of(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """The traces in groups: names that differ in the zone only are zones of one instance type."""
    found: dict[str, list[Path]] = {}
    for path in paths:
        words = path.name.removesuffix(".gz").removesuffix(".json").split("_")
        # kind, number of nodes, date, zone, type
        name = "_".join((*words[:3], *words[4:])) if len(words) > 4 else "_".join(words)
        found.setdefault(name, []).append(path)
    return found


def draw_markets(
    groups: Mapping[str, Sequence[Path]],
    prices: Mapping[tuple[str, str], Prices],
    instance_types: Sequence[str],
    generator: np.random.Generator,
) -> list[MarketPool]:
    """Draw an instance type for each group, a zone for each of its traces, and one beginning for all.

    Args:
        instance_types: At least as many as there are groups, with prices in as many zones as a group has
            traces.
    """
    types = generator.permutation(np.array(instance_types))
    last = max(float(history.times[-1]) for history in prices.values())
    begin = float(generator.uniform(0.0, 0.5 * last))
    pools = []
    for name, kind in zip(groups, types, strict=False):
        zones = generator.permutation(np.array(sorted(zone for each, zone in prices if each == kind)))
        for path, zone in zip(groups[name], zones, strict=False):
            key = f"spot|{kind}|{zone}"
            pools.append(MarketPool(key, str(kind), read_spot_counts(path), prices[kind, zone], begin))
    return pools
