"""An EC2 instance, as far as we look at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from advisor.model.advice import Capacity

# A stopped or hibernated instance runs no job: for us it is gone (F21).
_ALIVE: Final = frozenset({"pending", "running"})
_GOING: Final = frozenset({"shutting-down", "stopping", "stopped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance.

    Attributes
    ----------
    instance_id : str
        The only thing it is recognised by.
    state : str
        EC2's word.
    state_reason : str
        EC2's code of why (``Server.SpotInstanceTermination``), empty while there is none.
    node : str or None
        Slurm's node name: the journal's word, else the tag's.
    has_node_tag : bool
        Whether the instance itself says so.
    intent : str or None
        Token of the launch.
    option : Capacity
        Spot or on-demand, from its life cycle.
    instance_type, zone : str
        Type and availability zone.
    subnet_id : str or None
        Subnet.
    private_ip : str
        Empty while unknown.
    launch_index : int
        Its number within its launch call.
    launch_time : float
        Seconds since the epoch; 0 when unknown.
    """

    instance_id: str
    state: str
    state_reason: str
    node: str | None
    has_node_tag: bool
    intent: str | None
    option: Capacity
    instance_type: str
    zone: str
    subnet_id: str | None
    private_ip: str
    launch_index: int
    launch_time: float

    @property
    def is_alive(self) -> bool:
        """Running or about to."""
        return self.state in _ALIVE

    @property
    def is_leftover(self) -> bool:
        """No job runs there and it may still cost money: to be terminated."""
        return self.state in _GOING

    @property
    def is_gone(self) -> bool:
        """Runs no job and never will."""
        return not self.is_alive

    @property
    def was_reclaimed(self) -> bool:
        """EC2 took it back (F25: the class comes from the instance's state, not from a job's exit code)."""
        return self.state_reason.startswith("Server.Spot")


def as_instance(raw: Mapping[str, Any], *, node: str | None = None) -> Instance:
    """Read one instance of an EC2 answer; `node` is the journal's word, which goes before the tag's."""
    tags = {tag["Key"]: tag.get("Value", "") for tag in raw.get("Tags", [])}
    launched = raw.get("LaunchTime")
    return Instance(
        instance_id=raw["InstanceId"],
        state=raw.get("State", {}).get("Name", "pending"),
        state_reason=(raw.get("StateReason") or {}).get("Code", "") or "",
        node=node or tags.get("advisor:node") or None,
        has_node_tag="advisor:node" in tags,
        intent=tags.get("advisor:intent"),
        option=Capacity.SPOT if raw.get("InstanceLifecycle") == "spot" else Capacity.ON_DEMAND,
        instance_type=raw.get("InstanceType", ""),
        zone=raw.get("Placement", {}).get("AvailabilityZone", ""),
        subnet_id=raw.get("SubnetId"),
        private_ip=raw.get("PrivateIpAddress") or "",
        launch_index=int(raw.get("AmiLaunchIndex", 0)),
        launch_time=launched.timestamp() if launched is not None else 0.0,
    )
