"""CreateFleet of a `MemoryEc2`: instant fleets of spot instances over several types, and their templates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from advisor.testing.memory_ec2_market import SPOT
from advisor.testing.memory_ec2_records import refusal

if TYPE_CHECKING:
    from advisor.testing.memory_ec2 import MemoryEc2

_KEYS: Final = {
    "Type", "ClientToken", "LaunchTemplateConfigs", "TargetCapacitySpecification", "SpotOptions",
    "TagSpecifications",
}  # fmt: skip
_EXISTS: Final = "InvalidLaunchTemplateName.AlreadyExistsException"
_GONE: Final = "InvalidLaunchTemplateName.NotFoundException"


class MemoryFleets:
    """The fleets of one account, and its launch templates: name to data."""

    def __init__(self, account: MemoryEc2) -> None:
        self._account = account
        self.templates: dict[str, Mapping[str, Any]] = {}
        self._answers: dict[str, tuple[str, dict[str, Any]]] = {}

    def make_template(self, name: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """CreateLaunchTemplate."""
        if name in self.templates:
            raise refusal(_EXISTS, "create_launch_template")
        self.templates[name] = data
        return {"LaunchTemplate": {"LaunchTemplateName": name}}

    def create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """CreateFleet: type after type gives what it has; EC2 counts launch indices within each."""
        if unknown := request.keys() - _KEYS:
            msg = f"CreateFleet knows no {sorted(unknown)}"
            raise TypeError(msg)
        token, digest = request["ClientToken"], json.dumps(request, sort_keys=True)
        if token in self._answers:
            before, answer = self._answers[token]
            if before != digest:
                raise refusal("IdempotentParameterMismatch", "create_fleet")
            return answer
        (config,) = request["LaunchTemplateConfigs"]
        if config["LaunchTemplateSpecification"]["LaunchTemplateName"] not in self.templates:
            raise refusal(_GONE, "create_fleet")
        answer = {"Instances": [], "Errors": []}
        left = int(request["TargetCapacitySpecification"]["TotalTargetCapacity"])
        for override in config["Overrides"]:
            if left:
                left -= self._launch(request, override, left, answer)
        self._answers[token] = digest, answer
        return answer

    def _launch(
        self, request: Mapping[str, Any], override: Mapping[str, Any], wanted: int, answer: dict[str, Any]
    ) -> int:
        kind = override["InstanceType"]
        where = {"LaunchTemplateAndOverrides": {"Overrides": dict(override)}, "Lifecycle": SPOT}
        number, code = self._account.available(SPOT, kind, wanted)
        if code:
            answer["Errors"].append({**where, "ErrorCode": code, "ErrorMessage": "as the test wished"})
        made = self._account.make_of_fleet(request, override, number) if number else []
        if made:
            ids = [item.instance_id for item in made]
            answer["Instances"].append({**where, "InstanceType": kind, "InstanceIds": ids})
        return number
