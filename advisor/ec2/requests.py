"""The request of an intent, a launch call that is stored in the journal before it is made.

It depends on the intent, the settings, the user data and the cluster's name only, so the same call can be
repeated. If one of these has changed meanwhile, EC2 refuses the token, and the nodes are launched anew.
"""

from __future__ import annotations

from typing import Any, Final

from advisor.ec2.journal import Intent
from advisor.ec2.pools import Target
from advisor.ec2.tags import CLUSTER_TAG, INTENT_TAG, node_tags
from advisor.model.advice import Capacity
from advisor.model.errors import TellAdmin
from advisor.model.settings_cloud import Ec2Settings

# IMDSv2 only: a forged request from a job must not reach the instance role's credentials.
METADATA: Final = {"HttpTokens": "required", "HttpEndpoint": "enabled", "InstanceMetadataTags": "enabled"}
"""Options of the metadata service on every instance."""


def user_data(settings: Ec2Settings) -> str:
    """The site's user data for cloud-init; empty when ``ec2.user_data_file`` is not set.

    Raises:
        TellAdmin: The file cannot be read.
    """
    path = settings.user_data_file
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TellAdmin(
            f"ec2.user_data_file {path}: {error}. Make it readable for the advisor's user, and "
            "save it as UTF-8",
            code="ec2.user_data",
        ) from None


def run_instances_request(intent: Intent, settings: Ec2Settings, cluster: str) -> dict[str, Any]:
    """Arguments of RunInstances.

    The least-privilege policy (docs/iam.md) allows a launch only if the call tags each instance, volume,
    network interface and spot request with the cluster's name.

    Raises:
        TellAdmin: The user data cannot be read.
    """
    spot, target = intent.option is Capacity.SPOT, intent.target
    owner = [{"Key": CLUSTER_TAG, "Value": cluster}, {"Key": INTENT_TAG, "Value": intent.token}]
    name = intent.nodes[0] if len(intent.nodes) == 1 else f"{cluster} burst node"
    tags = [*owner, *node_tags(intent.nodes), {"Key": "Name", "Value": name}]
    kinds = ["volume", "network-interface", *(["spot-instances-request"] if spot else [])]
    request: dict[str, Any] = {
        "ImageId": settings.image_id,
        "InstanceType": intent.instance_type,
        "MinCount": intent.least,  # 1, unless all or none: what the pool lacks comes from the next one
        "MaxCount": len(intent.nodes),
        "ClientToken": intent.token,
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": tags},
            *({"ResourceType": kind, "Tags": owner} for kind in kinds),
        ],
        "MetadataOptions": dict(METADATA),
        "InstanceInitiatedShutdownBehavior": "terminate",
    }
    optional = _network(intent, settings) | {
        "Placement": _placement(intent),
        "CapacityReservationSpecification": None if target is None else _named(target),
        "KeyName": settings.key_name,
        "UserData": user_data(settings),
        "IamInstanceProfile": {"Name": settings.instance_profile} if settings.instance_profile else None,
        "InstanceMarketOptions": {"MarketType": "spot"} if spot else _market(target),
    }
    return request | {name: value for name, value in optional.items() if value}


def _network(intent: Intent, settings: Ec2Settings) -> dict[str, Any]:
    """Subnet and security groups; if a network interface is described, they are part of it."""
    groups = list(settings.security_group_ids)
    if not intent.efa:
        return {"SubnetId": intent.subnet_id, "SecurityGroupIds": groups}
    interface: dict[str, Any] = {"DeviceIndex": 0, "InterfaceType": "efa", "DeleteOnTermination": True}
    chosen = {"SubnetId": intent.subnet_id, "Groups": groups}
    return {"NetworkInterfaces": [interface | {name: value for name, value in chosen.items() if value}]}


def _placement(intent: Intent) -> dict[str, str]:
    """The placement group, and the zone of a reservation if no subnet determines it."""
    zone = intent.target.zone if intent.target is not None and intent.subnet_id is None else ""
    chosen = {"GroupName": intent.group, "AvailabilityZone": zone}
    return {name: value for name, value in chosen.items() if value}


def _named(target: Target) -> dict[str, Any]:
    return {"CapacityReservationTarget": {"CapacityReservationId": target.reservation_id}}


def _market(target: Target | None) -> dict[str, str] | None:
    is_block = target is not None and target.is_block
    return {"MarketType": "capacity-block"} if is_block else None


def create_fleet_request(intent: Intent, cluster: str, template: str) -> dict[str, Any]:
    """Arguments of CreateFleet, by which EC2 chooses among the intent's pools, by price and depth.

    All instances get the same tags, and EC2 numbers them only within a pool: no tag names their nodes yet.
    """
    owner = [{"Key": CLUSTER_TAG, "Value": cluster}, {"Key": INTENT_TAG, "Value": intent.token}]
    tags = [*owner, {"Key": "Name", "Value": f"{cluster} burst node"}]
    overrides = [
        {"InstanceType": kind} | ({"SubnetId": subnet} if subnet else {}) for kind, subnet in intent.pools
    ]
    return {
        "Type": "instant",
        "ClientToken": intent.token,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "1"},
                "Overrides": overrides,
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": len(intent.nodes),
            "DefaultTargetCapacityType": "spot",
        },
        "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": tags},
            {"ResourceType": "fleet", "Tags": owner},
        ],
    }
