"""The clients of boto3 before a `MemoryEc2`: the calls that `advisor.ec2` makes, under boto3's names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from advisor.testing.memory_ec2_records import fits

if TYPE_CHECKING:
    from advisor.testing.memory_ec2 import MemoryEc2

ZONE = "us-east-1a"


class _Ec2Client:
    """The calls of boto3's EC2 client that are known here."""

    def __init__(self, account: MemoryEc2) -> None:
        self._account = account

    def run_instances(self, **request: Any) -> Any:
        token = request.get("ClientToken", "")
        return self._account.call("run_instances", lambda: self._account.run(request), token=token)

    def create_fleet(self, **request: Any) -> Any:
        token = request.get("ClientToken", "")
        return self._account.call("create_fleet", lambda: self._account.fleets.create(request), token=token)

    def create_launch_template(
        self,
        *,
        LaunchTemplateName: str,  # noqa: N803 -- as boto3
        LaunchTemplateData: dict[str, Any],  # noqa: N803 -- as above
        TagSpecifications: list[dict[str, Any]],  # noqa: ARG002, N803 -- as above
    ) -> Any:
        make = partial(self._account.fleets.make_template, LaunchTemplateName, LaunchTemplateData)
        return self._account.call("create_launch_template", make)

    def terminate_instances(self, *, InstanceIds: list[str]) -> Any:  # noqa: N803 -- boto3's own name
        return self._account.call("terminate_instances", lambda: self._account.terminate(InstanceIds))

    def create_tags(self, *, Resources: list[str], Tags: list[dict[str, str]]) -> Any:  # noqa: N803 -- as above
        return self._account.call("create_tags", lambda: self._account.tag(Resources, Tags))

    def describe_spot_instance_requests(self, *, Filters: list[dict[str, Any]]) -> Any:  # noqa: N803 -- as above
        return self._account.call(
            "describe_spot_instance_requests", lambda: self._account.spot_requests(Filters)
        )

    def describe_reserved_instances(self, *, Filters: list[dict[str, Any]]) -> Any:  # noqa: N803 -- as above
        found = [
            row
            for row in self._account.paid.reserved
            if fits({}, Filters, {"instance-type": row["InstanceType"], "state": row["State"]})
        ]
        return self._account.call("describe_reserved_instances", lambda: {"ReservedInstances": found})

    def describe_instance_types(self, *, InstanceTypes: list[str]) -> Any:  # noqa: N803 -- as above
        size = {"DefaultVCpus": self._account.market.vcpus}
        rows = [{"InstanceType": kind, "VCpuInfo": size} for kind in InstanceTypes]
        return self._account.call("describe_instance_types", lambda: {"InstanceTypes": rows})

    def create_placement_group(
        self,
        *,
        GroupName: str,  # noqa: N803 -- as above
        Strategy: str,  # noqa: ARG002, N803 -- as above
        TagSpecifications: list[dict[str, Any]],  # noqa: ARG002, N803 -- as above
    ) -> Any:
        make = partial(self._account.paid.make_group, GroupName)
        return self._account.call("create_placement_group", make)

    def describe_subnets(self, *, SubnetIds: list[str]) -> Any:  # noqa: N803 -- as above
        subnets = [{"SubnetId": name, "AvailabilityZone": ZONE} for name in SubnetIds]
        return self._account.call("describe_subnets", lambda: {"Subnets": subnets})

    def get_paginator(self, operation: str) -> _Paginator | _Pages:
        match operation:
            case "describe_instances":
                return _Paginator(self._account)
            case "describe_spot_instance_requests":
                return _Pages(self.describe_spot_instance_requests)
            case "describe_capacity_reservations":
                return _Pages(self._reservations)
            case "describe_spot_price_history":
                return _Pages(self._spot_prices)
            case _:
                msg = f"no paginator of {operation}"
                raise ValueError(msg)

    def _reservations(self, *, Filters: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 -- as above
        types = next((each["Values"] for each in Filters if each["Name"] == "instance-type"), None)
        alive = self._account.alive()
        found = [
            each.as_raw(alive)
            for each in self._account.paid.reservations
            if types is None or each.instance_type in types
        ]
        answer: dict[str, Any] = self._account.call(
            "describe_capacity_reservations", lambda: {"CapacityReservations": found}
        )
        return answer

    def _spot_prices(
        self,
        *,
        InstanceTypes: list[str],  # noqa: N803 -- as above
        ProductDescriptions: list[str],  # noqa: N803 -- as above
        StartTime: datetime,  # noqa: ARG002, N803 -- as above
        EndTime: datetime,  # noqa: N803 -- as above
    ) -> dict[str, Any]:
        """The current price of the one zone, as for an empty interval."""
        prices = self._account.market.spot_usd_per_hour
        row = {
            "AvailabilityZone": ZONE,
            "InstanceType": InstanceTypes[0],
            "ProductDescription": ProductDescriptions[0],
            "Timestamp": EndTime.astimezone(UTC),
        }
        now = EndTime.timestamp()
        found = [] if prices is None else [{**row, "SpotPrice": f"{prices.at(now):.10f}"}]
        answer: dict[str, Any] = self._account.call(
            "describe_spot_price_history", lambda: {"SpotPriceHistory": found}
        )
        return answer


class _Paginator:
    def __init__(self, account: MemoryEc2) -> None:
        self._account = account

    def paginate(self, *, Filters: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:  # noqa: N803 -- as above
        return self._account.pages(Filters)


class _SqsClient:
    """The calls of boto3's SQS client that are known here; there is one queue."""

    def __init__(self, account: MemoryEc2) -> None:
        self._account = account

    def receive_message(self, *, QueueUrl: str, MaxNumberOfMessages: int, WaitTimeSeconds: int) -> Any:  # noqa: ARG002, N803 -- as above
        return self._account.call("receive_message", lambda: self._account.receive(MaxNumberOfMessages))

    def delete_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> Any:  # noqa: ARG002, N803 -- as above
        receipts = [entry["ReceiptHandle"] for entry in Entries]
        return self._account.call("delete_message_batch", lambda: self._account.delete(receipts))


class _QuotasClient:
    """The call of boto3's Service Quotas client that is known here."""

    def __init__(self, account: MemoryEc2) -> None:
        self._account = account

    def get_service_quota(self, *, ServiceCode: str, QuotaCode: str) -> Any:  # noqa: ARG002, N803 -- as above
        return self._account.call("get_service_quota", lambda: self._account.market.quota_told(QuotaCode))


class _PlansClient:
    """The calls of boto3's Savings Plans client that are known here."""

    def __init__(self, account: MemoryEc2) -> None:
        self._account = account

    def describe_savings_plans(self, *, states: list[str]) -> Any:
        plans = [row for row in self._account.paid.plans if row["state"] in states]
        return self._account.call("describe_savings_plans", lambda: {"savingsPlans": plans})

    def describe_savings_plan_rates(self, *, savingsPlanId: str, filters: list[dict[str, Any]]) -> Any:  # noqa: N803 -- as above
        types = next(each["values"] for each in filters if each["name"] == "instanceType")
        rates = partial(self._account.paid.rates, savingsPlanId, types)
        return self._account.call("describe_savings_plan_rates", rates)


class _PricingClient:
    """The price list: the on-demand price of the market, if it has one."""

    def __init__(self, account: MemoryEc2) -> None:
        self._account = account

    def get_paginator(self, operation: str) -> _Pages:
        if operation != "get_products":
            msg = f"no paginator of {operation}"
            raise ValueError(msg)
        return _Pages(lambda **_: self._account.call("get_products", self._products))

    def _products(self) -> dict[str, Any]:
        usd = self._account.market.usd_per_hour
        dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{usd:.10f}"}}
        product = {"terms": {"OnDemand": {"term": {"priceDimensions": {"rate": dimension}}}}}
        return {"PriceList": [json.dumps(product)] if usd else []}


class _Pages:
    """A paginator with one page."""

    def __init__(self, page: Callable[..., dict[str, Any]]) -> None:
        self._page = page

    def paginate(self, **request: Any) -> _Found:
        return _Found(self._page(**request))


class _Found(list[dict[str, Any]]):
    """Pages, which can be searched for the entries of one key."""

    def __init__(self, page: dict[str, Any]) -> None:
        super().__init__([page])

    def search(self, key: str) -> Iterator[Any]:
        return (entry for page in self for entry in page[key])


def client_of(account: MemoryEc2, service: str) -> Any:
    """The client of one service."""
    clients: dict[str, Callable[[MemoryEc2], Any]] = {
        "ec2": _Ec2Client,
        "sqs": _SqsClient,
        "pricing": _PricingClient,
        "service-quotas": _QuotasClient,
        "savingsplans": _PlansClient,
    }
    return clients[service](account)
