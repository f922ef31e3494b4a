"""Read an account: capacity reservations, reserved instances, Savings Plans, others' instances, quotas.

The price loop does so, and the reservation loop for what changes with each launch. Each part is read by
itself, and the last good answer stays while it cannot be read.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from advisor.ec2.account import Account, Others, Reservation, ReservedInstances, SavingsPlan
from advisor.ec2.clients import client, rows_of, zones_of
from advisor.ec2.errors import answer_or_failure, ask
from advisor.ec2.pools import instance_types
from advisor.ec2.quotas import quota_code
from advisor.ec2.tags import CLUSTER_TAG, has_tags
from advisor.model.advice import Capacity
from advisor.model.errors import AdvisorError
from advisor.model.settings_cloud import Ec2Settings

LINUX: Final = frozenset({"Linux/UNIX", "Linux/UNIX (Amazon VPC)"})
_PLANS_REGION: Final = "us-east-1"  # Savings Plans of every region are served from here
_SECONDS_AN_HOUR: Final = 3600.0
_BLOCK_ENDS_EARLY_SECONDS: Final = 1800.0
"""EC2 begins to end the instances of a capacity block so long before the block's end."""
_TYPES_A_CALL: Final = 100
_NO_QUOTA: Final = "NoSuchResourceException"


class AccountCache:
    """The data last read of the account. Any thread may use it; each part is refreshed by one loop.

    Args:
        cluster: Value of the cluster tag, by which our instances are told from others.
        uses_blocks: Whether our nodes may be launched in capacity blocks.
    """

    def __init__(
        self,
        settings: Ec2Settings,
        cluster: str,
        *,
        connect: Callable[..., Any] = client,
        uses_blocks: bool = True,
    ) -> None:
        self._settings = settings
        self._cluster, self._uses_blocks = cluster, uses_blocks
        self._ec2, self._quotas = connect("ec2", settings), connect("service-quotas", settings)
        self._plans = connect("savingsplans", settings.model_copy(update={"region": _PLANS_REGION}))
        self._ours_in: Counter[str] = Counter()  # reservation: our instances at the last look
        self._first = threading.Lock()
        self._is_tried = False
        self.account = Account()

    def read_first(self) -> None:
        """Read what is paid for, unless that was tried before: else the first launches pay for it again.

        What cannot be read counts as nothing until a refresh succeeds.
        """
        with self._first:
            if self._is_tried:
                return
            for read in (self.refresh_reservations, self.refresh_reserved, self.refresh_plans):
                with suppress(AdvisorError):
                    read()
            self._is_tried = True

    # ------------------------------------------------------------------ reservations

    def refresh_reservations(self) -> None:
        """Read others' instances, then the capacity reservations that our nodes may use.

        These are the open ones, and those targeted ones and capacity blocks that carry the cluster's tag or
        that the settings name: others may be another team's.

        Raises:
            AdvisorError: EC2 cannot be read: what was read before stays.
        """
        self._read_instances()
        filters = [{"Name": "state", "Values": ["active"]}]  # of other types as well: quotas count them
        rows = ask(
            lambda: rows_of(
                self._ec2, "describe_capacity_reservations", "CapacityReservations", Filters=filters
            )
        )
        found = tuple(self._reservation(row) for row in rows if self._may_use(row))
        unused = Counter[str]()
        for row in rows:
            if not _is_block(row):
                unused[row["InstanceType"]] += int(row["AvailableInstanceCount"])
        zones = zones_of(self._ec2, self._settings.subnet_ids)
        self.account = replace(self.account, reservations=found, unused=dict(unused), zones=zones)

    def _read_instances(self) -> None:
        """Count the instances of the account that are not ours, and ours in each reservation."""
        filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        rows = ask(lambda: rows_of(self._ec2, "describe_instances", "Reservations", Filters=filters))
        on_demand = Counter[tuple[str, str]]()
        spot, in_reservations, ours_in = Counter[str](), Counter[str](), Counter[str]()
        for raw in (instance for row in rows for instance in row["Instances"]):
            held, kind = raw.get("CapacityReservationId") or "", raw["InstanceType"]
            if has_tags(raw, {CLUSTER_TAG: self._cluster}):
                ours_in[held] += 1
            elif raw.get("InstanceLifecycle") == "spot":
                spot[kind] += 1
            elif not held:
                on_demand[kind, raw["Placement"]["AvailabilityZone"]] += 1
            elif raw.get("InstanceLifecycle") != "capacity-block":
                in_reservations[kind] += 1
        self._ours_in = ours_in
        others = Others(on_demand=dict(on_demand), held=dict(in_reservations), spot=dict(spot))
        self.account = replace(self.account, others=others)

    def _may_use(self, row: Mapping[str, Any]) -> bool:
        if (
            row["InstanceType"] not in instance_types(self._settings)
            or (_is_block(row) and not self._uses_blocks)
            or row.get("InstancePlatform", "Linux/UNIX") not in LINUX
            or row.get("Tenancy", "default") != "default"
        ):
            return False
        named = {each.reservation_id for each in self._settings.paid.values()}
        is_open = row.get("InstanceMatchCriteria") == "open"
        return is_open or row["CapacityReservationId"] in named or has_tags(row, {CLUSTER_TAG: self._cluster})

    def _reservation(self, row: Mapping[str, Any]) -> Reservation:
        name, total = row["CapacityReservationId"], int(row["TotalInstanceCount"])
        used = total - int(row["AvailableInstanceCount"])
        is_block = _is_block(row)
        end = row.get("EndDate")
        ends_at = math.inf if end is None else end.timestamp()
        return Reservation(
            reservation_id=name,
            instance_type=row["InstanceType"],
            zone=row["AvailabilityZone"],
            total=total,
            others=max(0, used - self._ours_in[name]),
            ends_at=ends_at - (_BLOCK_ENDS_EARLY_SECONDS if is_block else 0.0),
            is_block=is_block,
        )

    # ------------------------------------------------------------------ discounts

    def refresh_reserved(self) -> None:
        """Read the reserved instances of the site's types; AdvisorError leaves those known before.

        Those of another size of the family are not counted, although EC2 bills some of them flexibly.
        """
        types = list(instance_types(self._settings))
        filters = [{"Name": "state", "Values": ["active"]}, {"Name": "instance-type", "Values": types}]
        rows = ask(lambda: self._ec2.describe_reserved_instances(Filters=filters)["ReservedInstances"])
        found = tuple(
            ReservedInstances(
                name=str(row.get("ReservedInstancesId", "")),
                instance_type=row["InstanceType"],
                zone=row.get("AvailabilityZone") or "",
                count=int(row["InstanceCount"]),
                usd_per_hour=_reserved_usd_per_hour(row),
            )
            for row in rows
            if row.get("ProductDescription", "Linux/UNIX") in LINUX
        )
        self.account = replace(self.account, reserved=found)

    def refresh_plans(self) -> None:
        """Read the active Savings Plans and their rates; AdvisorError leaves those known before."""
        answer = ask(lambda: self._plans.describe_savings_plans(states=["active"])["savingsPlans"])
        plans = [row for row in answer if row.get("region") in (None, "", self._settings.region)]
        self.account = replace(self.account, plans=tuple(self._plan(row) for row in plans))

    def _plan(self, row: Mapping[str, Any]) -> SavingsPlan:
        wanted = {
            "instanceType": self._all_types(),
            "region": [self._settings.region],
            "productDescription": ["Linux/UNIX"],
            "tenancy": ["shared"],
        }
        request: dict[str, Any] = {
            "savingsPlanId": row["savingsPlanId"],
            "filters": [{"name": name, "values": values} for name, values in wanted.items()],
        }
        rates: dict[str, float] = {}
        token: str | None = ""
        while token is not None:
            more = {"nextToken": token} if token else {}
            answer = ask(lambda more=more: self._plans.describe_savings_plan_rates(**request, **more))  # type: ignore[misc]
            for rate in answer["searchResults"]:
                kind = {each["name"]: each["value"] for each in rate["properties"]}.get("instanceType")
                if kind and rate.get("unit", "Hrs") == "Hrs" and float(rate["rate"]) > 0.0:
                    rates[kind] = max(rates.get(kind, 0.0), float(rate["rate"]))
            token = answer.get("nextToken") or None
        return SavingsPlan(name=row["savingsPlanId"], usd_per_hour=float(row["commitment"]), rates=rates)

    # ------------------------------------------------------------------ quotas

    def refresh_quotas(self) -> None:
        """Read the quotas of vCPUs of the site's types, and what each type counts for.

        AdvisorError leaves those known before. A code that AWS does not know in a region has no quota.
        """
        self._read_vcpus(self._all_types())
        codes = {
            code
            for kind in instance_types(self._settings)
            for option in (Capacity.SPOT, Capacity.ON_DEMAND)
            if (code := quota_code(kind, option)) is not None
        }
        found: dict[str, float] = {}
        for code in sorted(codes):
            answer, failure = answer_or_failure(
                lambda code=code: self._quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)  # type: ignore[misc]
            )
            if failure is None:
                found[code] = float(answer["Quota"]["Value"])
            elif failure.code != _NO_QUOTA:
                raise failure.as_error()
        self.account = replace(self.account, quotas=found)

    def _read_vcpus(self, types: Iterable[str]) -> None:
        unknown = [kind for kind in types if kind not in self.account.vcpus]
        known = dict(self.account.vcpus)
        for start in range(0, len(unknown), _TYPES_A_CALL):
            some = unknown[start : start + _TYPES_A_CALL]
            answer = ask(lambda some=some: self._ec2.describe_instance_types(InstanceTypes=some))  # type: ignore[misc]
            known |= {
                row["InstanceType"]: int(row["VCpuInfo"]["DefaultVCpus"]) for row in answer["InstanceTypes"]
            }
        self.account = replace(self.account, vcpus=known)

    def _all_types(self) -> list[str]:
        """Our types, then those of others' instances and of what reservations hold free."""
        others = self.account.others
        seen = (*others.spot, *(kind for kind, _ in others.on_demand), *others.held, *self.account.unused)
        return list(dict.fromkeys((*instance_types(self._settings), *seen)))


def _is_block(row: Mapping[str, Any]) -> bool:
    return row.get("ReservationType") == "capacity-block"


def _reserved_usd_per_hour(row: Mapping[str, Any]) -> float:
    hours = float(row.get("Duration") or 0) / _SECONDS_AN_HOUR
    in_advance = float(row.get("FixedPrice") or 0.0) / hours if hours else 0.0
    charges = sum(
        float(charge.get("Amount", 0.0))
        for charge in row.get("RecurringCharges", [])
        if charge.get("Frequency") == "Hourly"
    )
    return in_advance + float(row.get("UsagePrice") or 0.0) + charges
