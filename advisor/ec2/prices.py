"""Prices of nodes, read from EC2 by the price loop every quarter of an hour, and kept on disk.

There are two sources: the spot price history and the price list. The last answer of each is used, however
old, until the next one; before the first one, the settings' prices.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeGuard

import msgspec
import structlog

from advisor.ec2.clients import client, rows_of, zones_of
from advisor.ec2.errors import ask
from advisor.ec2.pools import Pool, instance_types
from advisor.files.field_types import Amount
from advisor.files.state_file import StateFile
from advisor.model.advice import Capacity
from advisor.model.settings_cloud import Ec2Settings

_PRICE_LIST_REGION: Final = "us-east-1"  # the price list of every region is served from here

_log = structlog.get_logger("advisor.ec2")


@dataclass(frozen=True, slots=True)
class Quote:
    """A price per node and hour, and the epoch seconds at which it was read (0: from the settings)."""

    usd_per_hour: Annotated[float, msgspec.Meta(gt=0.0)]
    time: Amount = 0.0

    @property
    def is_read(self) -> bool:
        """Whether the price is EC2's and not the settings'."""
        return self.time > 0.0

    def age_seconds(self, now: float) -> float:
        """Seconds since it was read; infinite for a price of the settings."""
        return max(0.0, now - self.time) if self.is_read else math.inf


@dataclass(frozen=True, slots=True)
class TypePrices:
    """The prices of one instance type."""

    spot: Quote
    on_demand: Quote


@dataclass(frozen=True, slots=True)
class Prices:
    """The last prices that were read.

    Attributes:
        spot, on_demand: Of ``ec2.instance_type``.
        others: Of the other types of classes.
        spot_of_pools: US dollars per hour of the spot pools whose subnet is named, by pool; the spot prices
            above are the highest of their type.
    """

    spot: Quote
    on_demand: Quote
    others: Mapping[str, TypePrices] = field(default_factory=dict)
    spot_of_pools: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_settings(cls, settings: Ec2Settings) -> Prices:
        """The settings' prices; of a type in several classes the highest."""
        others: dict[str, TypePrices] = {}
        for each in settings.classes.values():
            quote = Quote(each.on_demand_usd_per_hour)  # of spot as well, until its price is read
            for name in each.instance_types:
                if name != settings.instance_type and (
                    name not in others or others[name].spot.usd_per_hour < quote.usd_per_hour
                ):
                    others[name] = TypePrices(quote, quote)
        spot, on_demand = Quote(settings.spot_usd_per_hour), Quote(settings.on_demand_usd_per_hour)
        return cls(spot, on_demand, others=others)

    def of(self, instance_type: str) -> TypePrices:
        """Prices of a type; one that the settings no longer name costs what ``ec2.instance_type`` does."""
        return self.others.get(instance_type) or TypePrices(self.spot, self.on_demand)

    def of_spot_pool(self, pool: Pool) -> float:
        """US dollars per hour in a spot pool; the highest price of its type where its own is not known."""
        return self.spot_of_pools.get(pool.key, self.of(pool.instance_type).spot.usd_per_hour)


def cheapest_first(pools: Iterable[Pool], prices: Prices) -> tuple[Pool, ...]:
    """Spot pools in their order, since EC2 itself weighs them; then reserved and on-demand ones by price."""
    found = list(pools)
    spot = [pool for pool in found if pool.option is Capacity.SPOT]
    rest = [pool for pool in found if pool.option is not Capacity.SPOT]
    rest.sort(key=lambda pool: (pool.option is Capacity.ON_DEMAND, _on_demand(pool, prices)))
    return (*spot, *rest)


def _on_demand(pool: Pool, prices: Prices) -> float:
    return prices.of(pool.instance_type).on_demand.usd_per_hour


class ReadPrices(msgspec.Struct, omit_defaults=True):
    """Prices as EC2 last said them, for one region and instance type; None: never read."""

    read_for: tuple[str, str] = msgspec.field(name="for", default=("", ""))
    spot: Quote | None = None
    on_demand: Quote | None = None
    others: dict[str, TypePrices] = {}
    spot_of_pools: dict[str, Annotated[float, msgspec.Meta(gt=0.0)]] = {}

    def prices(self, settings: Ec2Settings) -> Prices:
        """Prices in force at a site: what was read for its region and type, else its settings'."""
        otherwise = Prices.of_settings(settings)
        if self.read_for != _what(settings):
            return otherwise
        others = {name: self.others.get(name, unread) for name, unread in otherwise.others.items()}
        spot, on_demand = self.spot or otherwise.spot, self.on_demand or otherwise.on_demand
        return Prices(spot, on_demand, others, self.spot_of_pools)


class PriceCache:
    """The current prices: any thread may read them, one thread refreshes them from EC2.

    Args:
        settings: Instance type, region, and the first prices.
        state: Keeps the prices; those of another type or region are not used.
        now: Wall clock, epoch seconds.
    """

    def __init__(
        self,
        settings: Ec2Settings,
        state: StateFile[ReadPrices],
        now: Callable[[], float],
        *,
        connect: Callable[..., Any] = client,
    ) -> None:
        self._settings = settings
        self._ec2 = connect("ec2", settings)
        self._pricing = connect("pricing", settings.model_copy(update={"region": _PRICE_LIST_REGION}))
        self._state = state
        self._now = now
        self._prices = state.read().prices(settings)

    @property
    def prices(self) -> Prices:
        """The current prices."""
        return self._prices

    def refresh_spot(self) -> None:
        """Read the spot price of each pool, and of each type the highest of the zones of ``ec2.subnet_ids``.

        Budgets count with the highest, so they hold in each zone. The last price stays where EC2 has none for
        a type, or cannot be read (AdvisorError).
        """
        zones = zones_of(self._ec2, self._settings.subnet_ids)
        now = self._now()
        moment = datetime.fromtimestamp(now, UTC)
        answer = ask(
            lambda: rows_of(
                self._ec2,
                "describe_spot_price_history",
                "SpotPriceHistory",
                InstanceTypes=list(instance_types(self._settings)),
                ProductDescriptions=["Linux/UNIX"],
                StartTime=moment,  # an empty interval returns each zone's current price
                EndTime=moment,
            )
        )
        newest: dict[str, dict[str, tuple[float, float]]] = {}
        for row in answer:
            changed = (row["Timestamp"].timestamp(), _dollars(row["SpotPrice"]))
            zone = row["AvailabilityZone"]
            if not zones or zone in zones.values():
                of_type = newest.setdefault(row["InstanceType"], {})
                of_type[zone] = max(of_type.get(zone, changed), changed)
        for name in instance_types(self._settings):
            self._keep_quote("spot", name, (usd for _, usd in newest.get(name, {}).values()), now)
        of_pools = {
            Pool(option=Capacity.SPOT, instance_type=name, subnet_id=subnet).key: of_type[zone][1]
            for name, of_type in newest.items()
            for subnet, zone in zones.items()
            if zone in of_type and _is_amount(of_type[zone][1])
        }
        self._keep(spot_of_pools=of_pools)

    def refresh_on_demand(self) -> None:
        """Read the on-demand price of Linux on shared hardware from the price list.

        When it cannot be read (AdvisorError), the last price stays.
        """
        for name in instance_types(self._settings):
            self._read_on_demand(name)

    def _read_on_demand(self, instance_type: str) -> None:
        wanted = {
            "instanceType": instance_type,
            "regionCode": self._settings.region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
        }
        filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
        answer = ask(
            lambda: list(
                self._pricing.get_paginator("get_products")
                .paginate(ServiceCode="AmazonEC2", Filters=filters)
                .search("PriceList")
            )
        )
        found = (usd for product in answer if product for usd in _hourly_prices(json.loads(product)))
        self._keep_quote("on_demand", instance_type, found, self._now())

    def _keep_quote(self, option: str, instance_type: str, found: Iterable[float], now: float) -> None:
        """Keep the highest of the valid prices."""
        dearest = max((usd for usd in found if _is_amount(usd)), default=None)
        if dearest is None:
            then = "the last price is used, at first that of the settings"
            _log.warning("prices.none", option=option, instance_type=instance_type, then=then)
            return
        changes: dict[str, Any] = {option: Quote(dearest, now)}
        if instance_type != self._settings.instance_type:
            prices = replace(self._prices.of(instance_type), **changes)
            changes = {"others": {**self._prices.others, instance_type: prices}}
        self._keep(**changes)

    def _keep(self, **changes: Any) -> None:
        self._prices = replace(self._prices, **changes)
        now = self._prices
        found = ReadPrices(
            read_for=_what(self._settings),
            spot=now.spot if now.spot.is_read else None,
            on_demand=now.on_demand if now.on_demand.is_read else None,
            others={
                name: both for name, both in now.others.items() if both.spot.is_read or both.on_demand.is_read
            },
            spot_of_pools=dict(now.spot_of_pools),
        )
        self._state.keep(found, "prices.not_saved")


def _what(settings: Ec2Settings) -> tuple[str, str]:
    return settings.region, settings.instance_type


def _is_amount(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0.0


def _dollars(text: object) -> float:
    """A price that EC2 writes as text; NaN when it is no number."""
    try:
        return float(str(text))
    except ValueError:
        return math.nan


def _hourly_prices(product: Mapping[str, Any]) -> Iterable[float]:
    """On-demand prices in US dollars per hour of one product of the price list."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            if dimension.get("unit") == "Hrs":
                yield _dollars(dimension.get("pricePerUnit", {}).get("USD"))
