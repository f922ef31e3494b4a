"""Every setting, defined once: type, unit, range, default and reason.

The loader, ``advisor config show|check`` and ``docs/settings.md`` are all made from these definitions
(``advisor.config``). Reading files is not done here: this floor has no I/O.
"""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Final

from pydantic import model_validator

from advisor.model.advice import Mode
from advisor.model.settings_cloud import (
    AcquirerSettings,
    CapacitySettings,
    Ec2Settings,
    MatchingSettings,
    PortfolioSettings,
)
from advisor.model.settings_decision import (
    EstimatorSettings,
    HedgeSettings,
    PlacementSettings,
    RuleSettings,
    SizeSettings,
    WaitingSettings,
)
from advisor.model.settings_section import Section, setting

__all__ = [
    "AcquirerSettings",
    "CapacitySettings",
    "ClusterSettings",
    "Ec2Settings",
    "EstimatorSettings",
    "HedgeSettings",
    "LoopSettings",
    "MatchingSettings",
    "PathSettings",
    "PlacementSettings",
    "PortfolioSettings",
    "RuleSettings",
    "Section",
    "Settings",
    "SizeSettings",
    "SubmitSettings",
    "WaitingSettings",
    "setting",
]


DEFAULT_CLUSTER_NAME: Final = "cluster"


class ClusterSettings(Section):
    """Which partitions are which."""

    name: str = setting(
        DEFAULT_CLUSTER_NAME,
        "Owner tag of every instance. Two clusters of one name in an AWS account end each other's nodes: a "
        "site with a cloud (`ec2.image_id`) must set it; Slurm's ClusterName is a good one.",
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$",
        max_length=63,
    )
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


class SubmitSettings(Section):
    """The submit path: what happens inside sbatch. `advisor config hook` tells the hook."""

    budget_seconds: float = setting(
        0.05, "Longest the hook ever waits; slurmctld holds locks meanwhile.", unit="s", gt=0.0, le=0.5
    )
    breaker_failures: int = setting(2, "Failures in a row that open the hook's breaker.", ge=1, le=1000)
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


class PathSettings(Section):
    """Where things are kept."""

    state: Path = setting(Path("/var/lib/advisor"), "Database, models, spool; only the service writes.")
    run: Path = setting(Path("/run/advisor"), "Sockets and the cluster snapshot.")
    slurm_conf: Path = setting(
        Path("/etc/slurm/slurm.conf"), "What Slurm's commands read; the default gives way to `SLURM_CONF`."
    )
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
    """Periods of the control loops, and where /metrics is served."""

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


class WebSettings(Section):
    """Pages for admins (`advisor web`): they show, and change nothing."""

    address: str = setting(
        "127.0.0.1",
        "Where they are served. Whoever reaches it sees everybody's jobs: leave it here, and put the site's "
        "own proxy with its login before it.",
        min_length=1,
    )
    port: int = setting(9420, "Port of the pages; 0: any that is free.", ge=0, le=65535)
    hosts: tuple[str, ...] = setting(
        (),
        "Names the proxy asks for them by, without port. Requests for other names than these and this "
        "machine's own are refused: a page from elsewhere may not read them through a browser.",
    )
    path: str = setting(
        "",
        "Path that the proxy serves them under and takes off, such as `/advisor`.",
        pattern=r"^(/[A-Za-z0-9._~-]+)*$",
        max_length=200,
    )
    whatif_seconds: float = setting(
        1800.0, "Longest a what-if may run before it is ended.", unit="s", gt=0.0, le=86400.0
    )

    @property
    def is_for_this_machine_alone(self) -> bool:
        """Whether nobody on another machine can reach the address."""
        try:
            return ip_address(self.address).is_loopback
        except ValueError:
            return self.address.lower() == "localhost"


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
    web: WebSettings = WebSettings()
    paths: PathSettings = PathSettings()
