"""Settings of the cloud: which capacity a job gets, and EC2 itself."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from advisor.model.settings_classes import ClassName, NodeClass, PaidCapacity
from advisor.model.settings_section import Dollars, Section, setting


class CapacitySettings(Section):
    """Question 4: which capacity? Reserved first, then spot for jobs that may be requeued, then on-demand."""

    reserved_nodes: int = setting(
        0,
        "The number of reserved instances of `ec2.instance_type` that the site has paid for already. They "
        "are used first and cost nothing more. What this account has bought is read from EC2 as well.",
        why="Only the site knows what another account has bought for it.",
        unit="nodes",
        ge=0,
    )
    use_spot: bool = setting(
        True,
        "Whether moved jobs that may be requeued, and are not too long for it, run on spot instances.",
        why="A spot instance usually costs less than half of an on-demand one, and Slurm requeues a job "
        "that loses it.",
    )
    spot_by_survival: bool = setting(
        True,
        "Choose spot or on-demand, and the pools of a launch, by how long instances of each instance type "
        "and subnet have lasted and by what a lost run costs. It holds once 20 spot instances were seen and "
        "EC2's prices are read; `spot_max_run_seconds` holds until then, or if this is false.",
        why="A fixed limit is too short for pools whose instances last, and too long for others.",
        expert=True,
    )
    spot_share_per_pool: float = setting(
        0.5,
        "The largest share of one user's running spot nodes, or of those of jobs that depend on each other, "
        "that may be in one pool (an instance type in a subnet). Further nodes are launched in other pools, "
        "then on-demand. It applies once they have four nodes; where there is one pool only it has no "
        "effect, and 1 switches it off. All nodes of one job are in one pool, whatever the share.",
        why="EC2 often takes back many instances of a pool at once; then half of the work is left.",
        gt=0.0,
        le=1.0,
        expert=True,
    )
    spot_max_run_seconds: float = setting(
        14400.0,
        "A job that is forecast to run longer than this gets an on-demand node, as long as "
        "`spot_by_survival` has nothing to go by.",
        why="A job that loses its spot node starts again from nothing. If spot nodes live 24 h on average, "
        "15 of 100 runs of 4 h are lost, and more of the longer ones.",
        unit="s",
        gt=0.0,
        expert=True,
    )
    prefer_features: bool = setting(
        True,
        "Set Slurm's `--prefer` of a moved job to the feature of the chosen capacity, such as `spot`.",
        why="Slurm then takes the intended kind of node if one is free, and any other if not.",
        expert=True,
    )


class Ec2Settings(Section):
    """The instances. Credentials are never a setting: botocore's own chain finds them."""

    region: str = setting(
        "us-east-1",
        "The AWS region of all instances. `advisor control` refuses a change while instances run.",
        why="It is the first and largest region of AWS.",
    )
    image_id: str = setting(
        "",
        "The AMI of the compute nodes. While it is empty the advisor launches nothing.",
        why="An image that boots into your cluster is the site's own (docs/install.md says what it needs).",
    )
    instance_type: str = setting(
        "c5.xlarge",
        "The instance type of the burst nodes. Its cores and memory must match the nodes in slurm.conf.",
        why="It is a small and common type for computing (4 vCPUs, 8 GiB) on which a setup can be tried.",
    )
    classes: dict[ClassName, NodeClass] = setting(
        {},
        "Classes of cloud nodes, each served by several instance types (docs/classes.md). Nodes that no "
        "class names are of `instance_type`.",
        why="One size of node and one instance type are enough to begin with.",
        form="table of name = { nodes, instance_types, cores, memory_mb, on_demand_usd_per_hour, gpus, "
        "gpu_type, features, placement_group, efa }",
        expert=True,
    )
    paid: dict[ClassName, PaidCapacity] = setting(
        {},
        "Capacity that is paid for already and that cannot be read from EC2, or that nodes may use only if "
        "it is named here, each purchase under a name of your choice (docs/classes.md).",
        why="What this account has bought is read from EC2.",
        form="table of name = { instance_type, nodes, zone, reservation_id, savings_plan_usd_per_hour, "
        "savings_plan_rate }",
        expert=True,
    )
    subnet_ids: tuple[str, ...] = setting(
        (),
        "The subnets for the nodes, tried in this order; several of them in several zones find spot "
        "capacity more often. Empty means the default subnet.",
        why="Subnets belong to the site's own VPC.",
    )
    security_group_ids: tuple[str, ...] = setting(
        (),
        "The security groups of the nodes. They must let slurmctld and the nodes reach each other. Empty "
        "means the VPC's default group.",
        why="Security groups belong to the site's own VPC.",
    )
    instance_profile: str | None = setting(
        None,
        "The IAM instance profile of the nodes, if jobs or the image need AWS permissions (docs/iam.md).",
        why="Without such a need a node should have no permissions.",
    )
    user_data_file: Path | None = setting(
        None,
        "A file with the cloud-init user data of the nodes. Every user of a node can read it, so it must "
        "not contain a secret.",
        why="A prepared image may need none.",
    )
    interruption_queue_url: str = setting(
        "",
        "The URL of the SQS queue into which EventBridge puts EC2's events of this account. Without it the "
        "advisor asks for the state of spot requests every half minute and loses most of the two minutes "
        "between EC2's notice and the end of an instance.",
        why="The queue is the site's own; docs/iam.md has its policy.",
    )
    key_name: str | None = setting(
        None,
        "The SSH key pair of the nodes.",
        why="Slurm needs none; a key helps only to debug a boot.",
        expert=True,
    )
    endpoint_url: str | None = setting(
        None,
        "The URL of an emulator, which is asked for every service of AWS. `AWS_ENDPOINT_URL` works as well. "
        "For a VPC endpoint of one service put `AWS_ENDPOINT_URL_EC2` and the like into the environment of "
        "`advisor control` (docs/iam.md).",
        why="botocore knows the public endpoint of each region.",
        expert=True,
    )
    on_demand_usd_per_hour: Dollars = setting(
        0.17,
        "The on-demand price of an instance per hour, used until the advisor has read AWS's price list.",
        why="It is the price of a c5.xlarge with Linux in us-east-1.",
        unit="USD",
        expert=True,
    )
    spot_usd_per_hour: Dollars = setting(
        0.07,
        "The spot price of an instance per hour, used until the advisor has read the history of spot prices.",
        why="It is about 40 % of the on-demand price, a usual ratio for a c5.xlarge.",
        unit="USD",
        expert=True,
    )
    node_address: Literal["private-ip", "loopback"] = setting(
        "private-ip",
        "What the advisor sets as a node's NodeAddr: the instance's private address, or 127.0.0.1 for a "
        "cluster on one machine.",
        why="slurmctld reaches real instances by their private addresses.",
        expert=True,
    )
