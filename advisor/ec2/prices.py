"""What a node costs: read from EC2 now and then, kept on disk, and never forgotten because a read failed.

Three sources, each read on its own: the spot price history, the price list, the account's reserved instances.
The last good answer of each stays in force, with its age; before the first one the settings hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, TypeGuard

import structlog

from advisor.ec2.clients import client
from advisor.ec2.errors import failure_of
from advisor.files.state_file import StateFile
from advisor.model.settings import Ec2Settings

_PRICE_LIST_REGION: Final = "us-east-1"  # the price list of every region is served from here
_LINUX: Final = frozenset({"Linux/UNIX", "Linux/UNIX (Amazon VPC)"})
_SECONDS_AN_HOUR: Final = 3600.0

_log = structlog.get_logger("advisor.ec2")


@dataclass(frozen=True, slots=True)
class Quote:
    """A price and when it was read.

    Attributes
    ----------
    usd_per_hour : float
        Dollars for one node and hour.
    time : float
        When it was read, seconds since the epoch; 0 for a price of the settings.
    """

    usd_per_hour: float
    time: float = 0.0

    @property
    def is_read(self) -> bool:
        """Whether EC2 said it, and not the settings."""
        return self.time > 0.0

    def age_seconds(self, now: float) -> float:
        """Seconds since it was read; infinite for a price of the settings."""
        return max(0.0, now - self.time) if self.is_read else math.inf


@dataclass(frozen=True, slots=True)
class Reserved:
    """Reserved instances of our type.

    Attributes
    ----------
    count : int
        Instances paid for already.
    usd_per_hour : float
        What one costs an hour whether it runs or not: its share of the payment in advance and its charges.
    time : float
        When it was read, seconds since the epoch.
    """

    count: int
    usd_per_hour: float
    time: float


@dataclass(frozen=True, slots=True)
class Prices:
    """Last good answers: spot, on-demand, and reserved instances (None: never read)."""

    spot: Quote
    on_demand: Quote
    reserved: Reserved | None = None

    @classmethod
    def of_settings(cls, settings: Ec2Settings) -> Prices:
        """Prices of a site that has read none."""
        return cls(Quote(settings.spot_usd_per_hour), Quote(settings.on_demand_usd_per_hour))


class PriceCache:
    """Prices in force. Reading them costs nothing; refreshing them asks EC2.

    Safe to be read by any thread; refreshed by one.

    Parameters
    ----------
    settings : Ec2Settings
        Which instance type, where; and the prices that hold until better ones were read.
    state : StateFile
        Where the last good ones are kept. What was read for another type or region is not used.
    now : callable
        Wall clock, seconds since the epoch.
    """

    def __init__(self, settings: Ec2Settings, state: StateFile, now: Callable[[], float]) -> None:
        self._settings = settings
        self._state = state
        self._now = now
        self._prices = _kept(state.read(), settings)

    @cached_property
    def _ec2(self) -> Any:  # made when it is first asked: making one takes a quarter of a second
        return client("ec2", self._settings)

    @cached_property
    def _pricing(self) -> Any:
        return client("pricing", self._settings.model_copy(update={"region": _PRICE_LIST_REGION}))

    @property
    def prices(self) -> Prices:
        """What is known now."""
        return self._prices

    def refresh_spot(self) -> None:
        """Read the spot price.

        The dearest of the zones nodes may start in, because a spending cap has to hold in each of them. A
        type that is not to be had as spot has no price: the last known one stays.

        Raises
        ------
        AdvisorError
            It can't be read; the last good one stays.
        """
        zones = self._zones()
        now = self._now()
        moment = datetime.fromtimestamp(now, UTC)
        answer = _read(
            lambda: self._pages(
                "describe_spot_price_history",
                "SpotPriceHistory",
                InstanceTypes=[self._settings.instance_type],
                ProductDescriptions=["Linux/UNIX"],
                StartTime=moment,  # a window without length: the prices in force, each zone's last change
                EndTime=moment,
            )
        )
        newest: dict[str, tuple[float, float]] = {}
        for row in answer:
            changed = (row["Timestamp"].timestamp(), _dollars(row["SpotPrice"]))
            zone = row["AvailabilityZone"]
            if not zones or zone in zones:
                newest[zone] = max(newest.get(zone, changed), changed)
        self._keep_quote("spot", (usd for _, usd in newest.values()), now)

    def refresh_on_demand(self) -> None:
        """Read the on-demand price of Linux on shared hardware from the price list.

        Raises
        ------
        AdvisorError
            It can't be read; the last good one stays.
        """
        wanted = {
            "instanceType": self._settings.instance_type,
            "regionCode": self._settings.region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
        }
        filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
        answer = _read(
            lambda: list(
                self._pricing.get_paginator("get_products")
                .paginate(ServiceCode="AmazonEC2", Filters=filters)
                .search("PriceList")
            )
        )
        found = (usd for product in answer if product for usd in _hourly_prices(json.loads(product)))
        self._keep_quote("on_demand", found, self._now())

    def refresh_reserved(self) -> None:
        """Read how many instances of our type are reserved, and for how much.

        Instances reserved for a zone nodes do not start in are not counted, nor are those of another size
        of the same family, although EC2 bills some of them flexibly.

        Raises
        ------
        AdvisorError
            They can't be read; the last good answer stays.
        """
        zones = self._zones()
        answer = _read(
            lambda: self._ec2.describe_reserved_instances(
                Filters=[
                    {"Name": "state", "Values": ["active"]},
                    {"Name": "instance-type", "Values": [self._settings.instance_type]},
                ]
            )["ReservedInstances"]
        )
        count, usd = 0, 0.0
        for row in answer:
            if row.get("ProductDescription", "Linux/UNIX") not in _LINUX:
                continue
            zone = row.get("AvailabilityZone")
            if zone and zones and zone not in zones:
                continue
            number = int(row["InstanceCount"])
            count += number
            usd += number * _reserved_usd_per_hour(row)
        self._keep(reserved=Reserved(count, usd / count if count else 0.0, self._now()))

    def _zones(self) -> frozenset[str]:
        """Zones of our subnets; empty: any."""
        subnets = list(self._settings.subnet_ids)
        if not subnets:
            return frozenset()
        answer = _read(lambda: self._ec2.describe_subnets(SubnetIds=subnets)["Subnets"])
        return frozenset(row["AvailabilityZone"] for row in answer)

    def _pages(self, operation: str, name: str, **request: Any) -> list[Mapping[str, Any]]:
        pages = self._ec2.get_paginator(operation).paginate(**request)
        return [row for page in pages for row in page[name]]

    def _keep_quote(self, name: str, found: Iterable[float], now: float) -> None:
        """Keep the dearest one that is a price at all."""
        dearest = max((usd for usd in found if _is_amount(usd)), default=None)
        if dearest is None:
            _log.warning("prices.none", option=name, instance_type=self._settings.instance_type)
        else:
            self._keep(**{name: Quote(dearest, now)})

    def _keep(self, **news: Any) -> None:
        self._prices = replace(self._prices, **news)
        known = {
            name: asdict(value)
            for name in ("spot", "on_demand", "reserved")
            if (value := getattr(self._prices, name)) is not None and value.time > 0.0
        }
        self._state.keep({"for": _what(self._settings), **known}, "prices.not_saved")


def _what(settings: Ec2Settings) -> list[str]:
    return [settings.region, settings.instance_type]


def _kept(content: Mapping[str, Any], settings: Ec2Settings) -> Prices:
    """What a state file holds, as far as it is of our type and makes sense."""
    otherwise = Prices.of_settings(settings)
    if content.get("for") != _what(settings):
        return otherwise
    return Prices(
        _kept_quote(content.get("spot"), otherwise.spot),
        _kept_quote(content.get("on_demand"), otherwise.on_demand),
        _kept_reserved(content.get("reserved")),
    )


def _kept_quote(entry: object, otherwise: Quote) -> Quote:
    if not isinstance(entry, Mapping):
        return otherwise
    usd, when = entry.get("usd_per_hour"), entry.get("time")
    if _is_amount(usd) and _is_amount(when):
        return Quote(float(usd), float(when))
    return otherwise


def _kept_reserved(entry: object) -> Reserved | None:
    if not isinstance(entry, Mapping):
        return None
    count, usd, when = entry.get("count"), entry.get("usd_per_hour"), entry.get("time")
    if isinstance(count, int) and count >= 0 and isinstance(usd, int | float) and _is_amount(when):
        return Reserved(count, float(usd), float(when))
    return None


def _is_amount(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0.0


def _read(call: Callable[[], Any]) -> Any:
    """Ask; what botocore raises becomes an error a caller acts on."""
    try:
        return call()
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure.as_error() from error


def _dollars(text: object) -> float:
    """A number EC2 writes as text; NaN when it is none."""
    try:
        return float(str(text))
    except ValueError:
        return math.nan


def _hourly_prices(product: Mapping[str, Any]) -> Iterable[float]:
    """On-demand dollars an hour in one product of the price list."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            if dimension.get("unit") == "Hrs":
                yield _dollars(dimension.get("pricePerUnit", {}).get("USD"))


def _reserved_usd_per_hour(row: Mapping[str, Any]) -> float:
    hours = float(row.get("Duration") or 0) / _SECONDS_AN_HOUR
    in_advance = float(row.get("FixedPrice") or 0.0) / hours if hours else 0.0
    charges = sum(
        float(charge.get("Amount", 0.0))
        for charge in row.get("RecurringCharges", [])
        if charge.get("Frequency") == "Hourly"
    )
    return in_advance + float(row.get("UsagePrice") or 0.0) + charges
