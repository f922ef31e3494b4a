"""Every setting, defined once: type, unit, range, default and reason.

The loader, ``advisor config show|check`` and ``docs/settings.md`` are all made from these definitions
(``advisor.config``). Reading files is not done here: this floor has no I/O.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from advisor.model.advice import Mode


def setting(default: Any, reason: str, *, unit: str = "", **limits: Any) -> Any:
    """A field with its unit and the reason for its default."""
    return Field(default=default, description=reason, json_schema_extra={"unit": unit}, **limits)


class Section(BaseModel):
    """A group of settings: frozen, and a mistyped name is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class ClusterSettings(Section):
    """Which partitions are which."""

    name: str = setting("cluster", "Owner tag of every instance; one name per Slurm cluster.", min_length=1)
    on_premise_partitions: tuple[str, ...] = setting(
        ("onprem",), "Partitions whose jobs the advisor may move; the first is where moved-back jobs go."
    )
    burst_partition: str = setting("burst", "The partition whose nodes are EC2 instances.")
    modes: dict[str, Mode] = setting(
        {}, "Mode per on-premise partition; a partition not named here follows `default_mode`."
    )
    default_mode: Mode = setting(
        Mode.SHADOW, "Decide and log, change nothing: what an admin can trust on day one."
    )
    requeue_default: bool = setting(
        True,
        "Slurm's `JobRequeue`: whether a job that does not say may be requeued. What Slurm itself says of it "
        "holds, once it has been asked.",
    )
    utc_offset_seconds: float = setting(
        0.0, "Users' midnight, for the time-of-day features.", unit="s", ge=-50400, le=50400
    )

    @model_validator(mode="after")
    def _distinct(self) -> ClusterSettings:
        if not self.on_premise_partitions:
            msg = "on_premise_partitions is empty: name at least one partition"
            raise ValueError(msg)
        if self.burst_partition in self.on_premise_partitions:
            msg = f"burst_partition {self.burst_partition!r} is also an on-premise partition"
            raise ValueError(msg)
        return self

    def mode_of(self, partition: str | None) -> Mode:
        """Mode in force for a partition."""
        return self.modes.get(partition or self.on_premise_partitions[0], self.default_mode)


class RuleSettings(Section):
    """Question 1: may the job move at all?"""

    opt_out_comment: str = setting("no-burst", "A job whose comment has this word is never moved.")
    opt_out_feature: str = setting("onprem", "A job that asks for this node feature is never moved.")
    allow_users: tuple[str, ...] = setting((), "If not empty, only these users' jobs may move.")
    deny_users: tuple[str, ...] = setting((), "Jobs of these users never move.")
    allow_accounts: tuple[str, ...] = setting((), "If not empty, only these accounts' jobs may move.")
    deny_accounts: tuple[str, ...] = setting((), "Jobs of these accounts never move.")
    deny_qos: tuple[str, ...] = setting((), "Jobs of these QOS never move.")
    move_explicit_partition: bool = setting(
        False, "What a user said explicitly wins: a named partition is not changed."
    )
    move_interactive: bool = setting(False, "srun and salloc stay: somebody waits at a terminal.")
    move_dependent: bool = setting(False, "A job that depends on others stays: its data is on-premise.")
    move_deferred: bool = setting(
        False,
        "A job submitted with `--hold` or `--begin` stays: what is predicted now does not hold then.",
    )
    max_processors: int = setting(0, "Largest job that may move; 0 means no limit.", unit="cores", ge=0)


class PlacementSettings(Section):
    """Question 2: is the cloud faster, and are we sure? (Cunha et al. 2017)."""

    rule: Literal["published", "advisor"] = setting(
        "advisor", "`published`: Eq. 1-4 with the cutoff; `advisor`: our own rule, see docs/designs."
    )
    overhead_per_processor: float = setting(
        0.01, "o of s(c) = o*c + i: what each further processor costs on the cloud network.", ge=0.0
    )
    baseline: float = setting(1.0, "i of s(c) = o*c + i: speed of one cloud core.", gt=0.0)
    boot_seconds: float = setting(
        120.0, "Boot time until enough boots have been seen to learn it.", unit="s", ge=0.0
    )
    boot_quantile: Fraction = setting(
        0.8, "Share of the boots seen that the boot time reckoned with covers; 0.5 is the median."
    )
    cutoff_scale: float = setting(
        1.0e9,
        "a of the exponential cutoff C = a*exp(-b*o*c): variance tolerated when the cloud costs nothing.",
        unit="s^2",
        gt=0.0,
    )
    cutoff_decay: float = setting(1.0, "b of the exponential cutoff; 0 makes it flat.", ge=0.0)
    use_cutoff: bool = setting(True, "Off: every usable estimate is believed.")
    margin: float = setting(
        1.1, "Advisor's rule: the expected wait must be so many times what the cloud costs.", ge=0.0
    )
    win_probability: Fraction = setting(
        0.4,
        "Advisor's rule: from this probability of being faster on, likelier jobs vouch for a job; less "
        "likely ones must have paid here by themselves.",
    )
    record_deviations: float = setting(
        2.0, "Advisor's rule: standard errors taken off the record before it counts.", ge=0.0
    )
    record_discount: Fraction = setting(
        0.05, "Advisor's rule: share of every gain and loss taken off the record before it counts."
    )
    stake_share: Fraction = setting(
        0.05, "Advisor's rule: most of the record that one job may lose at worst."
    )
    exposure_share: float = setting(
        1.0, "Advisor's rule: most of the record that all jobs in the cloud may lose at worst.", ge=0.0
    )

    stretch_time_limit: bool = setting(
        True, "A moved job runs s(c) times longer: its time limit is raised by as much, if its user gave one."
    )
    longest_stretch: float = setting(4.0, "Most times the user's limit that a raised limit may be.", ge=1.0)
    longest_time_limit_seconds: float = setting(
        math.inf,
        "No limit is raised beyond this. Give the least MaxWall of your QOS and associations where slurmdbd "
        "enforces limits: the hook sees the partition's MaxTime only.",
        unit="s",
        gt=0.0,
    )

    def performance_ratio(self, processors: int) -> float:
        """s(c): cloud run time over on-premise run time (Cunha et al., section V-C)."""
        return self.overhead_per_processor * processors + self.baseline

    def cutoff(self, processors: int) -> float:
        """C(o, job) in seconds squared; infinite when the cutoff is off."""
        if not self.use_cutoff:
            return math.inf
        exponent = -self.cutoff_decay * self.overhead_per_processor * processors
        return self.cutoff_scale * math.exp(exponent)


class WaitingSettings(Section):
    """Question 3: is it worth paying for? (Ambati et al. 2021)."""

    short_wait_seconds: float = setting(
        0.0, "b: a job that would wait less than this waits. 0 switches the gate off.", unit="s", ge=0.0
    )
    long_job_seconds: float = setting(
        math.inf, "t: a job that runs longer than this waits. inf switches the gate off.", unit="s", gt=0.0
    )
    speculate: bool = setting(
        False,
        "A job whose length is in doubt runs in the cloud for `long_job_seconds`, then comes back to its "
        "place on-premise. Needs what `hedge.enabled` needs.",
    )
    daily_cap_usd: float = setting(
        0.0, "Money the burst partition may spend per day; 0 means no cap.", unit="USD", ge=0.0
    )
    account_daily_cap_usd: dict[str, float] = setting({}, "The same per account.", unit="USD")


class HedgeSettings(Section):
    """The hedged start: start in the cloud, keep the place on-premise (docs/designs/0013)."""

    enabled: bool = setting(
        False,
        "Whether any job may start hedged. Users' places are kept with the help of `advisor-places.socket`.",
    )
    by_default: bool = setting(False, "Hedge every requeueable job that does not refuse.")
    partitions: tuple[str, ...] = setting((), "Partitions whose requeueable jobs are hedged by default.")
    opt_in_comment: str = setting("hedge", "A job whose comment has this word asks to be hedged.")
    opt_out_comment: str = setting("no-hedge", "A job whose comment has this word is never hedged.")
    stop_loss_core_hours: float = setting(
        64.0, "Most a hedge may use in the cloud before its local slot comes.", unit="core-h", gt=0.0
    )
    stop_loss_usd: float = setting(
        0.0, "The same in money; 0 leaves it to the core hours.", unit="USD", ge=0.0
    )
    budget: float = setting(
        1.0,
        "What hedges may use in the cloud, as a multiple of what a clairvoyant would: the price of time "
        "learned from ended jobs keeps to it, within the stop-loss. 0: the stop-loss alone decides.",
        ge=0.0,
        le=100.0,
    )
    slot_held_seconds: float = setting(
        180.0,
        "Longest a local slot that has come is held while the job is brought back; then it is given up.",
        unit="s",
        ge=10.0,
        le=3600.0,
    )
    helper_socket: Path = setting(
        Path("/run/advisor-places.sock"), "Where root is asked to submit placeholders for users."
    )


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
        "How long closed nodes stay closed when `advisor control` dies; then Slurm has them all again.",
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


class SizeSettings(Section):
    """Small jobs first (Zrigui et al. 2022)."""

    enabled: bool = setting(True, "Class jobs small or large at all.")
    probability_cut: Fraction = setting(0.5, "A job is small when the forest's vote is at least this.")
    small_priority_offset: int = setting(
        1000,
        "Added to the priority of small jobs, as Slurm's site factor; 0 changes nothing.",
        ge=0,
        le=2_000_000_000,
    )
    safeguard: bool = setting(
        False,
        "A job put first as small that still runs at the divider is requeued as large, once, if it may be.",
    )
    trees: int = setting(
        80, "Trees (rounds of boosting) of the size model; more cost time and gained nothing.", ge=1, le=2000
    )


class EstimatorSettings(Section):
    """The two k-NN estimators (Cunha et al., section IV-A); `advisor tune` writes better ones."""

    neighbours: int = setting(16, "k until tuned.", ge=1, le=1000)
    kernel_width: float = setting(
        1.0,
        "Gaussian kernel's omega until tuned. Under about 0.8 the kernels of 16 typical neighbours sum to "
        "less than 1: the variance has no value and the cutoff lets nothing pass.",
        gt=0.0,
    )
    knowledge_base_jobs: int = setting(
        10_000, "s: first in, first out. More is not always better.", unit="jobs", ge=10, le=1_000_000
    )
    weekly_jobs_minimum: int = setting(500, "Fewer finished jobs: nothing is retrained.", unit="jobs", ge=1)


class SubmitSettings(Section):
    """The submit path: what happens inside sbatch. `advisor config hook` tells the hook."""

    budget_seconds: float = setting(
        0.05, "Longest the hook ever waits; slurmctld holds locks meanwhile.", unit="s", gt=0.0, le=0.5
    )
    breaker_failures: int = setting(5, "Failures in a row that open the hook's breaker.", ge=1, le=1000)
    breaker_seconds: float = setting(10.0, "How long the breaker stays open.", unit="s", gt=0.0, le=3600.0)
    max_line_bytes: int = setting(
        65536, "Longest request the server reads.", unit="bytes", ge=1024, le=1_048_576
    )
    tell_user: bool = setting(True, "One line on the user's terminal when the advice moved the job.")
    allowed_uids: tuple[int, ...] = setting(
        (), "User ids that may ask besides root and the server's own user (SlurmUser is found by name)."
    )
    socket_group: str = setting(
        "", "Group that owns the submit socket (mode 0660); empty: the server's own group."
    )
    snapshot_max_age_seconds: float = setting(
        60.0,
        "An older snapshot is not believed, and everything stays on-premise; a few missed looks are normal.",
        unit="s",
        gt=0.0,
        le=3600.0,
    )
    max_connections: int = setting(
        64, "Connections to the submit server at once; slurmctld keeps one.", ge=1, le=1024
    )
    idle_seconds: float = setting(
        600.0, "A connection that asks nothing for so long is closed; the hook reopens it.", unit="s", gt=0.0
    )


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
    on_demand_usd_per_hour: float = setting(0.17, "Price until the price list was read.", unit="USD", ge=0.0)
    spot_usd_per_hour: float = setting(0.07, "Price until the spot history was read.", unit="USD", ge=0.0)
    interruption_queue_url: str = setting(
        "",
        "SQS queue that EventBridge puts EC2's events of this account into; empty: spot requests are asked "
        "every half minute, and the two minutes of notice are mostly lost.",
    )
    node_address: Literal["private-ip", "loopback"] = setting(
        "private-ip", "What NodeAddr is set to; loopback only for a cluster on one machine."
    )


class PathSettings(Section):
    """Where things are kept."""

    state: Path = setting(Path("/var/lib/advisor"), "Database, models, spool; only the service writes.")
    run: Path = setting(Path("/run/advisor"), "Sockets and the cluster snapshot.")
    slurm_conf: Path = setting(Path("/etc/slurm/slurm.conf"), "What Slurm's commands read.")
    slurm_bin: Path = setting(Path("/usr/bin"), "Where sacct, squeue, sinfo and scontrol are.")
    database_url: str | None = setting(
        None, "SQLAlchemy URL of the history; SQLite `history.db` in `state` when empty."
    )

    @property
    def submit_socket(self) -> Path:
        """The hook's socket."""
        return self.run / "submit.sock"

    @property
    def control_socket(self) -> Path:
        """Where resume, suspend and resume_fail hand over."""
        return self.run / "control.sock"

    @property
    def snapshot(self) -> Path:
        """Cluster state as `advisor control` last saw it, replaced atomically."""
        return self.run / "snapshot.msgpack"

    @property
    def models(self) -> Path:
        """Promoted models, each with a manifest."""
        return self.state / "models"

    @property
    def spool(self) -> Path:
        """Advice given and not yet in the ledger, one JSON object a line."""
        return self.state / "spool"

    @property
    def history_url(self) -> str:
        """SQLAlchemy URL in force."""
        return self.database_url or f"sqlite:///{self.state / 'history.db'}"


class LoopSettings(Section):
    """Periods of the control loops (DESIGN.md)."""

    snapshot_seconds: float = setting(5.0, "squeue and sinfo, one shared query.", unit="s", gt=0.0)
    watch_seconds: float = setting(
        15.0,
        "Jobs in the cloud that keep their place on-premise; small jobs that are none.",
        unit="s",
        gt=0.0,
    )
    learn_seconds: float = setting(15.0, "Finished jobs to history and estimators.", unit="s", gt=0.0)
    reconcile_seconds: float = setting(15.0, "Slurm's nodes against EC2's instances.", unit="s", gt=0.0)
    match_seconds: float = setting(
        20.0, "Which cloud nodes will stay, and long jobs to them.", unit="s", gt=0.0
    )
    acquire_seconds: float = setting(
        3600.0, "Exchange of kept cloud nodes; half an hour to two hours do alike.", unit="s", gt=0.0
    )
    orphan_grace_seconds: float = setting(
        120.0, "An instance nobody claims is left alone for so long.", unit="s", gt=0.0
    )
    metrics_address: str = setting("127.0.0.1", "Where /metrics is served.")
    metrics_port: int = setting(9419, "Port of /metrics; 0 switches it off.", ge=0, le=65535)


class Settings(Section):
    """All settings of one site."""

    cluster: ClusterSettings = ClusterSettings()
    rules: RuleSettings = RuleSettings()
    placement: PlacementSettings = PlacementSettings()
    waiting: WaitingSettings = WaitingSettings()
    hedge: HedgeSettings = HedgeSettings()
    capacity: CapacitySettings = CapacitySettings()
    matching: MatchingSettings = MatchingSettings()
    acquirer: AcquirerSettings = AcquirerSettings()
    portfolio: PortfolioSettings = PortfolioSettings()
    size: SizeSettings = SizeSettings()
    estimator: EstimatorSettings = EstimatorSettings()
    submit: SubmitSettings = SubmitSettings()
    ec2: Ec2Settings = Ec2Settings()
    loops: LoopSettings = LoopSettings()
    paths: PathSettings = PathSettings()
