"""Settings of the cloud: which capacity, which nodes, how many, and EC2 itself."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from advisor.model.settings_section import Dollars, Fraction, Section, setting


class CapacitySettings(Section):
    """Question 4: which capacity? (reserved, then spot if the job may be requeued, then on-demand)."""

    reserved_nodes: int = setting(0, "Reserved instances already paid for.", ge=0)
    use_spot: bool = setting(True, "Spot nodes for jobs that may be requeued.")
    spot_max_run_seconds: float = setting(
        14400.0, "Longer jobs go to on-demand: they would not survive.", unit="s", gt=0.0
    )
    spot_interruptions: int = setting(
        2, "A job that lost its node to EC2 so often gets stable capacity next.", ge=1, le=100
    )
    prefer_features: bool = setting(True, "Set Slurm's `prefer` to the chosen capacity's node feature.")


class MatchingSettings(Section):
    """Long jobs to cloud nodes that will stay (Agarwal et al. 2023). Nothing running is ever touched."""

    enabled: bool = setting(
        False,
        "Order cloud nodes by how long they are expected to stay, and steer long jobs to those that will. "
        "Off, `advisor nodes` shows what is expected all the same: look at it first.",
    )
    steady_feature: str = setting(
        "steady",
        "Node feature that says a node is expected to stay. Where slurm.conf gives it to the burst nodes, "
        "the advisor takes it from the shaky ones and long jobs prefer it; where not, only weights are set.",
        pattern=r"[A-Za-z0-9_-]{0,64}",
    )
    long_job_seconds: float = setting(
        1800.0, "Jobs expected to run at least so long are steered.", unit="s", gt=0.0
    )
    horizon_seconds: float = setting(
        3600.0, "How far ahead it is asked whether a node stays.", unit="s", ge=60.0, le=604800.0
    )
    longest_delay_seconds: float = setting(
        600.0,
        "Longest time a job is held off shaky nodes because it is expected to end sooner on a steady one "
        "that is busy now; 0: never.",
        unit="s",
        ge=0.0,
        le=86400.0,
    )


class AcquirerSettings(Section):
    """Cloud nodes that are kept: fewer shaky ones, as many as are used (Agarwal et al., section 3.2)."""

    kept_nodes: int = setting(
        0,
        "Nodes kept up whether or not a job needs them; 0: none is, nodes come and go with the jobs, and "
        "there is nothing to acquire. Set the burst partition's SuspendTime to hours, or they do not stay.",
        unit="nodes",
        ge=0,
    )
    most_nodes: int = setting(0, "Never more than so many; 0: the whole partition.", unit="nodes", ge=0)
    rank: Literal["survival", "last-change"] = setting(
        "survival",
        "Whom to exchange: `survival`: nodes less likely to stay than the fresh one that would be got; "
        "`last-change`: the youngest, as published.",
    )
    share: Fraction = setting(0.1, "Of the nodes, exchanged each time at most (but one may be).")
    lowest_utilisation: Fraction = setting(0.6, "Used less, nodes are given back.")
    highest_utilisation: Fraction = setting(0.8, "Used more, nodes are asked for.")

    @model_validator(mode="after")
    def _in_order(self) -> AcquirerSettings:
        if not 0.0 < self.lowest_utilisation < self.highest_utilisation:
            msg = "lowest_utilisation must be over 0 and below highest_utilisation"
            raise ValueError(msg)
        if 0 < self.most_nodes < self.kept_nodes:
            msg = f"most_nodes ({self.most_nodes}) is less than kept_nodes ({self.kept_nodes})"
            raise ValueError(msg)
        return self


class PortfolioSettings(Section):
    """How the burst partition is run: by the best of many simulated policies (Deng et al., SC13)."""

    enabled: bool = setting(
        False,
        "Let the policy in charge say how many cloud nodes may be up, which job is next, which idle node is "
        "kept or given back. Off: Slurm's own behaviour.",
    )
    period_seconds: float = setting(
        20.0, "How often it is looked at queue and nodes; the paper's.", unit="s", gt=0.0, le=300.0
    )
    policies: Literal["paper", "beyond"] = setting(
        "beyond",
        "`paper`: the published sixty; `beyond`: also ours, with warm nodes, backfilling and Smith's order.",
    )
    most_warm_nodes: int = setting(
        4,
        "Policies that keep more nodes warm for jobs that are not here yet are left out; 0: none is kept.",
        unit="nodes",
        ge=0,
        le=1024,
    )
    in_charge: str = setting(
        "auto",
        "`auto`: the champion, or the selection where that has proved to be better; `champion`, `selection`: "
        "always that; the name of a policy, such as `ODX-UNICEF-FirstFit`: always that one.",
        pattern=r"auto|champion|selection|OD[ABEMX]-(FCFS|LXF|WFP3|UNICEF|WSPT)-(First|Best|Worst)Fit"
        r"(\+h[1-9][0-9]{0,3})?(\+bf)?",
    )
    billing: Literal["second", "hour", "hour-kept"] = setting(
        "second",
        "`second`: EC2's, a minute at least; `hour`: whole hours; an idle node is given back when nobody "
        "waits. `hour-kept`: whole hours, an idle node is kept to the end of its paid hour.",
    )
    alpha: float = setting(1.0, "Weight of utilisation in the utility.", ge=0.0, le=10.0)
    beta: float = setting(1.0, "Weight of the bounded slowdown in the utility.", ge=0.0, le=10.0)
    margin: Fraction = setting(
        0.05, "Selection leaves the champion for a policy that loses less by this share (`selection` only)."
    )
    budget_ms: float = setting(
        200.0, "Time for one choice by simulation (Algorithm 1).", unit="ms", gt=0.0, le=5000.0
    )
    judged_jobs: int = setting(
        1000,
        "Finished burst jobs that every policy is simulated on, hourly, to find the champion.",
        unit="jobs",
        ge=10,
        le=5_000,
    )
    limit_nodes: bool = setting(
        True, "Close powered-down nodes that the policy does not rent, by a reservation that ends by itself."
    )
    lease_seconds: float = setting(
        180.0,
        "How long closed nodes stay closed when `advisor control` dies; then Slurm has them all again. At "
        "least twice `period_seconds`: else they would open between two rounds.",
        unit="s",
        ge=5.0,
        le=3600.0,
    )
    order_jobs: bool = setting(
        True, "Put the first waiting burst jobs in the policy's order, by site factor; needs multifactor."
    )
    ordered_jobs: int = setting(
        50, "How many of them; those behind keep Slurm's order.", unit="jobs", ge=1, le=1000
    )
    steer_nodes: bool = setting(
        True, "Give idle nodes back, keep them and keep nodes warm as the policy says."
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> PortfolioSettings:
        if self.lease_seconds < 2.0 * self.period_seconds:
            msg = (
                f"lease_seconds ({self.lease_seconds:g}) must be at least twice period_seconds "
                f"({self.period_seconds:g})"
            )
            raise ValueError(msg)
        warm = int(self.in_charge.partition("+h")[2].partition("+")[0] or 0)
        if warm > self.most_warm_nodes:
            msg = f"in_charge keeps {warm} nodes warm, most_warm_nodes allows {self.most_warm_nodes}"
            raise ValueError(msg)
        return self


class Ec2Settings(Section):
    """The EC2 side. Credentials are never a setting: botocore's own chain finds them."""

    region: str = setting("us-east-1", "Region of every call.")
    endpoint_url: str | None = setting(None, "Endpoint; AWS_ENDPOINT_URL works as well.")
    image_id: str = setting("", "AMI of the compute nodes.")
    instance_type: str = setting("c5.xlarge", "Type of a burst node; its cores must match slurm.conf.")
    subnet_ids: tuple[str, ...] = setting((), "Subnets (zones) tried in order; empty: the default subnet.")
    security_group_ids: tuple[str, ...] = setting((), "Security groups of the nodes.")
    key_name: str | None = setting(None, "SSH key pair, if wanted.")
    instance_profile: str | None = setting(None, "IAM instance profile of the nodes.")
    user_data_file: Path | None = setting(None, "cloud-init user data; carries no secret.")
    on_demand_usd_per_hour: Dollars = setting(0.17, "Price until the price list was read.", unit="USD")
    spot_usd_per_hour: Dollars = setting(0.07, "Price until the spot history was read.", unit="USD")
    interruption_queue_url: str = setting(
        "",
        "SQS queue that EventBridge puts EC2's events of this account into; empty: spot requests are asked "
        "every half minute, and the two minutes of notice are mostly lost.",
    )
    node_address: Literal["private-ip", "loopback"] = setting(
        "private-ip", "What NodeAddr is set to; loopback only for a cluster on one machine."
    )
