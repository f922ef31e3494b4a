"""Reads that moto answers wrongly or not at all: filters, spot requests, prices, reserved instances."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.utils import filter_dict_attribute_mapping, is_tag_filter

from advisor.testing.ec2.answers import fail
from advisor.testing.ec2.capacity import STANDARD_QUOTAS
from advisor.testing.ec2.reserving import with_free
from advisor.testing.ec2.state import EmulatorState

_EXTRA_FILTERS: Final[Mapping[str, Callable[[Any], object]]] = {
    "instance-lifecycle": lambda i: i.lifecycle or "",
    "client-token": lambda i: i.client_token,
    "spot-instance-request-id": lambda i: getattr(i, "spot_instance_request_id", ""),
    "instance-state-code": lambda i: i._state.code,  # noqa: SLF001
    "availability-zone": lambda i: i._placement.zone,  # noqa: SLF001
    "instance-type": lambda i: i.instance_type,
    "private-ip-address": lambda i: i.private_ip,
    "launch-time": lambda i: i.launch_time.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
}


def _matches(value: object, patterns: list[str]) -> bool:
    return any(fnmatchcase(str(value), pattern) for pattern in patterns)


def _refuse_others(unknown: Iterable[str]) -> None:
    """EC2 refuses a filter that it does not know; one that was ignored would let everything pass."""
    for name in unknown:
        fail("InvalidParameterValue", f"The filter '{name}' is invalid")


def _page(response: Any, rows: list[Any], name: str) -> Any:
    start = int(response._get_param("NextToken") or 0)  # noqa: SLF001
    size = int(response._get_param("MaxResults") or 1000)  # noqa: SLF001
    token = str(start + size) if start + size < len(rows) else ""
    return ActionResult({name: rows[start : start + size], "NextToken": token})


class Reads:
    """Answers Describe calls from the emulator's tables.

    Args:
        state: The tables.
        describe_instances: moto's own action, used for everything it does right.
    """

    def __init__(self, state: EmulatorState, describe_instances: Callable[[Any], Any]) -> None:
        self.state = state
        self._describe_instances = describe_instances

    def describe_instances(self, response: Any) -> Any:
        """Filter as EC2 does; an unknown filter is refused instead of answered with an HTML page."""
        filters = response._filters_from_querystring()  # noqa: SLF001
        known = _EXTRA_FILTERS.keys() | filter_dict_attribute_mapping.keys()
        _refuse_others(name for name in filters if not (name in known or is_tag_filter(name)))
        extra = {name: filters[name] for name in filters if name in _EXTRA_FILTERS}
        if not extra:
            try:
                return self._describe_instances(response)
            except ValueError:
                fail("InvalidParameterValue", "Unable to parse pagination token")
        given = response.params["Filters"]
        response.params["Filters"] = [item for item in given if item["Name"] not in _EXTRA_FILTERS]
        backend = response.ec2_backend
        rest = response._filters_from_querystring()  # noqa: SLF001
        ids = response._get_param("InstanceIds", [])  # noqa: SLF001
        found = (
            backend.get_reservations_by_instance_ids(ids, filters=rest)
            if ids
            else backend.describe_instances(filters=rest)
        )
        answer = []
        for reservation in found:
            reservation.instances = [
                instance
                for instance in reservation.instances
                if all(_matches(_EXTRA_FILTERS[name](instance), values) for name, values in extra.items())
            ]
            if reservation.instances:
                answer.append(reservation)
        return ActionResult({"Reservations": answer})

    def describe_spot_instance_requests(self, response: Any) -> Any:
        """Give spot requests with the status codes a reclaim goes through."""
        ids = response._get_param("SpotInstanceRequestIds", [])  # noqa: SLF001
        filters = response._filters_from_querystring()  # noqa: SLF001
        read: dict[str, Callable[[dict[str, Any]], str]] = {
            "state": lambda row: row["State"],
            "status-code": lambda row: row["Status"]["Code"],
            "instance-id": lambda row: row["InstanceId"],
        }
        _refuse_others(name for name in filters if not name.startswith("tag:") and name not in read)
        rows = [
            row
            for row in self.state.spot_requests.values()
            if (not ids or row["SpotInstanceRequestId"] in ids)
            and all(
                any(tag["Key"] == name[4:] and _matches(tag["Value"], values) for tag in row["Tags"])
                if name.startswith("tag:")
                else _matches(read[name](row), values)
                for name, values in filters.items()
            )
        ]
        return ActionResult({"SpotInstanceRequests": rows})

    def describe_spot_price_history(self, response: Any) -> Any:
        """Give the price changes of a time window, and the last one before it, newest first."""
        get = response._get_param  # noqa: SLF001
        kinds, zone, products = (
            get("InstanceTypes", []),
            get("AvailabilityZone"),
            get("ProductDescriptions", []),
        )
        filters = response._filters_from_querystring()  # noqa: SLF001
        _refuse_others(filters.keys() - {"instance-type", "availability-zone", "product-description"})
        rows = [
            row
            for row in self.state.history
            if (not kinds or row["InstanceType"] in kinds)
            and (not zone or row["AvailabilityZone"] == zone)
            and (not products or row["ProductDescription"] in products)
            and _matches(row["InstanceType"], filters.get("instance-type", ["*"]))
            and _matches(row["AvailabilityZone"], filters.get("availability-zone", ["*"]))
            and _matches(row["ProductDescription"], filters.get("product-description", ["*"]))
        ]
        rows.sort(key=lambda row: str(row["Timestamp"]), reverse=True)
        end, start = _iso(get("EndTime")), _iso(get("StartTime"))
        if end:
            rows = [row for row in rows if str(row["Timestamp"]) <= end]
        return _page(response, _since(rows, start), "SpotPriceHistory")

    def describe_reserved_instances(self, response: Any) -> Any:
        """Give the reserved instances that were loaded."""
        filters = response._filters_from_querystring()  # noqa: SLF001
        _refuse_others(filters.keys() - {"state", "instance-type"})
        rows = [
            row
            for row in self.state.reserved
            if _matches(row.get("State"), filters.get("state", ["*"]))
            and _matches(row["InstanceType"], filters.get("instance-type", ["*"]))
        ]
        return ActionResult({"ReservedInstances": rows})

    def describe_capacity_reservations(self, response: Any) -> Any:
        """Give the capacity reservations, with what of them is free now."""
        filters = response._filters_from_querystring()  # noqa: SLF001
        names = {"state": "State", "instance-type": "InstanceType", "availability-zone": "AvailabilityZone"}
        _refuse_others(filters.keys() - names.keys())
        rows = [
            row
            for row in self.state.reservations
            if all(_matches(row[names[name]], values) for name, values in filters.items())
        ]
        return _page(response, [with_free(self.state, row) for row in rows], "CapacityReservations")

    def quota(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Answer Service Quotas' GetServiceQuota."""
        code = body["QuotaCode"]
        market = next((name for name, known in STANDARD_QUOTAS.items() if known == code), None)
        if body["ServiceCode"] != "ec2" or market not in self.state.quotas:
            return 400, {"__type": "NoSuchResourceException", "message": f"no quota {code}"}
        return 200, {"Quota": {"QuotaCode": code, "Value": float(self.state.quotas[market]), "Unit": "None"}}

    def savings_plan_rates(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the Savings Plans' DescribeSavingsPlanRates."""
        plan = next(row for row in self.state.savings if row["savingsPlanId"] == body["savingsPlanId"])
        wanted = {each["name"]: each["values"] for each in body.get("filters", [])}
        rows = [
            {
                "rate": rate,
                "currency": "USD",
                "unit": "Hrs",
                "properties": [{"name": "instanceType", "value": kind}],
            }
            for kind, rate in plan.get("rates", {}).items()
            if kind in wanted.get("instanceType", [kind])
        ]
        return {"savingsPlanId": body["savingsPlanId"], "searchResults": rows}

    def get_spot_placement_scores(self, response: Any) -> Any:
        """Give the score that was set for the region."""
        score = self.state.placement_scores.get(response.region, 5)
        return ActionResult({"SpotPlacementScores": [{"Region": response.region, "Score": score}]})

    def products(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the price list's GetProducts."""

        def fits(product: Mapping[str, Any]) -> bool:
            attributes = product["product"]["attributes"]
            return all(
                str(attributes.get(wanted["Field"], "")).lower() == wanted["Value"].lower()
                for wanted in body.get("Filters", [])
            )

        rows = [json.dumps(product) for product in self.state.products if fits(product)]
        start = int(body.get("NextToken") or 0)
        size = min(int(body.get("MaxResults", 100)), 100)
        answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": rows[start : start + size]}
        if start + size < len(rows):
            answer["NextToken"] = str(start + size)
        return answer


def _iso(value: Any) -> str:
    if value is None:
        return ""
    return value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, dt.datetime) else str(value)


def _since(rows: list[dict[str, Any]], start: str) -> list[dict[str, Any]]:
    """Keep rows from `start` on and, per pool, the newest one before it."""
    if not start:
        return rows
    seen: set[tuple[str, str, str]] = set()
    kept = []
    for row in rows:
        pool = (row["InstanceType"], row["AvailabilityZone"], row["ProductDescription"])
        if str(row["Timestamp"]) >= start:
            kept.append(row)
        elif pool not in seen:
            seen.add(pool)
            kept.append(row)
    return kept
