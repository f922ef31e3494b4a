"""An EC2 instance, with the fields that the advisor uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from advisor.ec2.tags import NODE_TAG, as_mapping, node_of
from advisor.model.advice import Capacity

# A stopped or hibernated instance runs no job, so it counts as gone (F21). It still costs money.
_ALIVE: Final = frozenset({"pending", "running"})
_ENDED: Final = frozenset({"shutting-down", "terminated"})
BY_REQUEST: Final = "Client.UserInitiatedShutdown"
"""The ``state_reason`` of an instance that was terminated by a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance.

    Attributes:
        state, state_reason: EC2's words, such as ``terminated`` and ``Server.SpotInstanceTermination``; the
            reason may be empty.
        node: Slurm's node name, from the tags, else from the journal.
        has_node_tag: Whether it is tagged with its own node's name; else only with all node names of its
            launch.
        option: Spot or on-demand.
        private_ip: Empty while unknown.
        launch_index: Its number within its launch call.
        launch_time: Seconds since the epoch; 0 when unknown.
        reservation_id: The capacity reservation that it runs in; empty: none.
    """

    instance_id: str
    state: str
    state_reason: str
    node: str | None
    has_node_tag: bool
    option: Capacity
    instance_type: str
    zone: str
    subnet_id: str | None
    private_ip: str
    launch_index: int
    launch_time: float
    reservation_id: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether it is pending or running."""
        return self.state in _ALIVE

    @property
    def may_cost(self) -> bool:
        """Whether it may cost money: a stopped one does until it is terminated."""
        return self.state not in _ENDED

    @property
    def was_reclaimed(self) -> bool:
        """Whether EC2 interrupted it (F25: known from the instance's state, not from a job's exit code)."""
        return self.state_reason.startswith("Server.Spot")


def as_instance(raw: Mapping[str, Any], *, node: str | None = None) -> Instance:
    """Read one instance of an EC2 answer; `node` is its node in the journal, for one without tags."""
    tags = as_mapping(raw.get("Tags", []))
    launched = raw.get("LaunchTime")
    launch_index = int(raw.get("AmiLaunchIndex", 0))
    return Instance(
        instance_id=raw["InstanceId"],
        state=raw.get("State", {}).get("Name", "pending"),
        state_reason=(raw.get("StateReason") or {}).get("Code", "") or "",
        node=node_of(tags, launch_index) or node,
        has_node_tag=NODE_TAG in tags,
        option=Capacity.SPOT if raw.get("InstanceLifecycle") == "spot" else Capacity.ON_DEMAND,
        instance_type=raw.get("InstanceType", ""),
        zone=raw.get("Placement", {}).get("AvailabilityZone", ""),
        subnet_id=raw.get("SubnetId"),
        private_ip=raw.get("PrivateIpAddress") or "",
        launch_index=launch_index,
        launch_time=launched.timestamp() if launched is not None else 0.0,
        reservation_id=raw.get("CapacityReservationId") or "",
    )
