"""Placement groups: made by name, and where their instances are."""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult

from advisor.testing.ec2.answers import fail
from advisor.testing.ec2.state import EmulatorState


class PlacementGroups:
    """Answers CreatePlacementGroup and DescribePlacementGroups."""

    def __init__(self, state: EmulatorState) -> None:
        self.state = state

    def create_placement_group(self, response: Any) -> Any:
        """Make a group."""
        name, strategy = response.params["GroupName"], response.params.get("Strategy", "cluster")
        if name in self.state.groups:
            fail("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
        self.state.groups[name] = strategy
        return ActionResult({"PlacementGroup": self._row(name)})

    def describe_placement_groups(self, response: Any) -> Any:
        """List groups."""
        names = response.params.get("GroupNames") or list(self.state.groups)
        if unknown := set(names) - self.state.groups.keys():
            fail("InvalidPlacementGroup.Unknown", f"The Placement Group '{min(unknown)}' is unknown.")
        return ActionResult({"PlacementGroups": [self._row(name) for name in names]})

    def _row(self, name: str) -> dict[str, str]:
        return {"GroupName": name, "Strategy": self.state.groups[name], "State": "available"}


def check_group(state: EmulatorState, name: str, zone: str) -> None:
    """Refuse a launch into a group that does not exist, or that has its instances in another zone."""
    if name not in state.groups:
        fail("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    there = {
        item._placement.zone  # noqa: SLF001 -- moto's own
        for item in state.instances.values()
        if item.state in ("pending", "running") and getattr(item._placement, "group_name", None) == name  # noqa: SLF001
    }
    if state.groups[name] == "cluster" and there - {zone}:
        fail("InsufficientInstanceCapacity", f"The Placement Group '{name}' is in another zone than {zone}.")
