"""An EC2 instance, as far as we look at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from advisor.ec2.tags import INTENT_TAG, NODE_TAG, as_mapping, node_of
from advisor.model.advice import Capacity

# A stopped or hibernated instance runs no job: for us it is gone (F21). It still costs money.
_ALIVE: Final = frozenset({"pending", "running"})
_ENDED: Final = frozenset({"shutting-down", "terminated"})


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
        Slurm's node name: the tags' word, else the journal's.
    has_node_tag : bool
        Whether it has a tag with its own node's name (else one for its whole launch).
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
    def may_cost(self) -> bool:
        """Alive or stopped: it costs money until it is terminated."""
        return self.state not in _ENDED

    @property
    def is_gone(self) -> bool:
        """Runs no job and never will."""
        return not self.is_alive

    @property
    def was_reclaimed(self) -> bool:
        """EC2 took it back (F25: the class comes from the instance's state, not from a job's exit code)."""
        return self.state_reason.startswith("Server.Spot")


def as_instance(raw: Mapping[str, Any], *, node: str | None = None) -> Instance:
    """Read one instance of an EC2 answer; `node` is the journal's word, for one whose tags do not say."""
    tags = as_mapping(raw.get("Tags", []))
    launched = raw.get("LaunchTime")
    launch_index = int(raw.get("AmiLaunchIndex", 0))
    return Instance(
        instance_id=raw["InstanceId"],
        state=raw.get("State", {}).get("Name", "pending"),
        state_reason=(raw.get("StateReason") or {}).get("Code", "") or "",
        node=node_of(tags, launch_index) or node,
        has_node_tag=NODE_TAG in tags,
        intent=tags.get(INTENT_TAG),
        option=Capacity.SPOT if raw.get("InstanceLifecycle") == "spot" else Capacity.ON_DEMAND,
        instance_type=raw.get("InstanceType", ""),
        zone=raw.get("Placement", {}).get("AvailabilityZone", ""),
        subnet_id=raw.get("SubnetId"),
        private_ip=raw.get("PrivateIpAddress") or "",
        launch_index=launch_index,
        launch_time=launched.timestamp() if launched is not None else 0.0,
    )
