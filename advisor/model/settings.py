"""Every setting, defined once: type, unit, range, default, what it does and why the default is what it is.

The loader, ``advisor config show|check|sample`` and ``docs/settings.md`` are all made from these definitions
(``advisor.config``). Settings that a site decides are everyday ones; the others are marked ``expert``.
Files are not read here: `advisor.model` does no I/O.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import field_validator, model_validator

from advisor.model.advice import Mode
from advisor.model.settings_cloud import CapacitySettings, Ec2Settings
from advisor.model.settings_data import DataSettings
from advisor.model.settings_decision import PlacementSettings, RuleSettings, WaitingSettings
from advisor.model.settings_hedge import HedgeSettings
from advisor.model.settings_learning import DriftSettings, EstimatorSettings, SizeSettings
from advisor.model.settings_nodes import AcquirerSettings, MatchingSettings, PortfolioSettings
from advisor.model.settings_notices import NoticeSettings
from advisor.model.settings_price import BudgetSettings, PriceSettings
from advisor.model.settings_promise import PromiseSettings
from advisor.model.settings_section import Section, setting
from advisor.model.settings_service import LoopSettings, SubmitSettings, WebSettings

DEFAULT_CLUSTER_NAME: Final = "cluster"
Policy: TypeAlias = Literal["price", "cunha2017", "zrigui2022", "ambati2021", "deng2013", "agarwal2023"]
"""The rule that decides about jobs and nodes (`advisor.decide.submission.policy`)."""


_NAMED_BY_SLURM: Final = {
    "cluster": ("pilot_accounts",),
    "budget": ("accounts",),
    "rules": ("allow_accounts", "deny_accounts", "deny_qos"),
    "data": ("accounts",),
}
"""The settings of each section that name accounts or QOS."""
SCHEMA_WORD: Final = "schema="
"""Of the query of a PostgreSQL URL: the schema that the history is in."""


class ClusterSettings(Section):
    """The partitions, and what the advisor may do in each of them."""

    name: str = setting(
        DEFAULT_CLUSTER_NAME,
        "The owner tag of every EC2 instance that the advisor launches. Two clusters with the same name in "
        "one AWS account terminate each other's nodes. A site that sets `ec2.image_id` must set this too; "
        "Slurm's ClusterName is a good choice. `advisor control` refuses a change while "
        "instances run; a history in PostgreSQL begins anew.",
        why="No real cluster is called so, and the advisor refuses the name once `ec2.image_id` is set.",
        form="at most 63 letters, digits and . _ -, with a letter or digit at both ends",
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$",
        max_length=63,
    )
    on_premise_partitions: tuple[str, ...] = setting(
        ("onprem",),
        "The partitions whose jobs the advisor may move. Jobs that name no partition count to the first: "
        "list Slurm's default partition first. Waits are forecast for each by itself; those that share nodes "
        "have one queue.",
        why="It is the name in the demo and in the examples of the documentation.",
    )
    burst_partition: str = setting(
        "burst",
        "The partition whose nodes are EC2 instances.",
        why="It is the name in the demo and in the examples of the documentation.",
    )
    default_mode: Mode = setting(
        Mode.SHADOW,
        "What the advisor does with a job. `off` asks nothing about it. `shadow` decides, and records the "
        "decision in the ledger and in the job's AdminComment; it changes nothing else. `advise` also tells "
        "the user. `act` also changes the job's partition, time limit and priority; `opt-in` does so for "
        "jobs whose `--comment` contains the word `cluster.opt_in_comment`, and advises the others.",
        why="In shadow mode a new site can compare decisions with what happened before any job moves.",
    )
    policy: Policy = setting(
        "price",
        "The rule that decides about jobs. `price` moves a job if the time that it is expected to save is "
        "worth its money at the price that the budget sets. Each other value applies one published rule "
        "instead: `cunha2017` moves jobs by forecasts and a cutoff; `ambati2021` moves jobs, but keeps long "
        "jobs and jobs with a short wait on-premise; `zrigui2022` moves no job and lets small ones go first "
        "here; `deng2013` schedules the burst partition by a portfolio of policies; `agarwal2023` matches "
        "its jobs to nodes. These two move no job either.",
        why="`price` needs no setting but a budget, and it moves nothing until `budget.usd` is set.",
        expert=True,
    )
    modes: dict[str, Mode] = setting(
        {},
        'The mode of single on-premise partitions, such as `{ short = "act" }`. All others follow '
        "`default_mode`.",
        why="The table is empty so that one setting switches the whole cluster.",
    )
    opt_in_comment: str = setting(
        "burst",
        "The word in a job's `--comment` that lets it move in a partition whose mode is `opt-in`; empty: no "
        "job moves there.",
        why="It is the opposite of `no-burst`.",
        expert=True,
    )
    pilot_users: tuple[str, ...] = setting(
        (),
        "The users whose jobs are moved during a pilot; jobs of all others, unless `pilot_accounts` names "
        "their account, are in shadow mode.",
        why="The list is empty: without a pilot all users' jobs follow the mode of their partition.",
        expert=True,
    )
    pilot_accounts: tuple[str, ...] = setting(
        (),
        "The accounts whose jobs are moved during a pilot; see `pilot_users`.",
        why="The list is empty: without a pilot all users' jobs follow the mode of their partition.",
        expert=True,
    )
    hook: bool = setting(
        True,
        "Whether the hook in slurmctld asks for advice inside `sbatch`. Without it `advisor control` finds "
        "new jobs in the queue, within 5 s of their submission, and moves them while they are pending.",
        why="With the hook a job is where it belongs before Slurm looks at it. Slurm's guide for "
        "high-throughput computing advises against Lua in slurmctld; such a site sets it to false.",
        expert=True,
    )
    scheduler: Literal["slurm", "lsf"] = setting(
        "slurm",
        "What schedules the cluster. With `lsf`, partitions are LSF's queues, and new jobs are found in "
        "lsb.events and moved by bswitch while they are pending (docs/lsf.md). Hedged starts and the "
        "portfolio, matching and acquisition of nodes are then off.",
        why="All features work under Slurm, on which they were developed and tested.",
        expert=True,
    )
    slurm_api: Literal["commands", "pyslurm"] = setting(
        "commands",
        "How `advisor control` talks to slurmctld: by Slurm's own commands, or by pyslurm in its process. "
        "What pyslurm cannot do is done by the commands in either case.",
        why="The commands come with every Slurm; pyslurm has to be built for the release that is installed.",
        expert=True,
    )
    requeue_default: bool = setting(
        True,
        "Whether a job whose user did not say so may be requeued. It holds until the advisor has read "
        "`JobRequeue` from slurmctld, which then decides.",
        why="Slurm's own default is JobRequeue=1.",
        expert=True,
    )
    time_zone: str = setting(
        "",
        "The users' time zone, such as `Europe/Berlin`; empty: that of the host. `by=18:00` in a job's "
        "comment is a time of this zone, and so are those of its price list, the days of the ledger, and "
        "the time of day that forecasts know.",
        why="Slurm reads and shows times in the zone of its hosts.",
        expert=True,
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

    @field_validator("time_zone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            return ZoneInfo(name).key if name else name
        except (ValueError, OSError, KeyError):  # an unknown name is a ZoneInfoNotFoundError, a KeyError
            raise ValueError(
                f"there is no time zone {name!r}; a name is written like Europe/Berlin"
            ) from None

    @property
    def zone(self) -> ZoneInfo | None:
        """The users' time zone, as `datetime` takes it; None: that of the host."""
        return ZoneInfo(self.time_zone) if self.time_zone else None

    @property
    def utc_offset_seconds(self) -> float:
        """The present offset of the users' clock from UTC."""
        offset = datetime.now(UTC).astimezone(self.zone).utcoffset()
        return offset.total_seconds() if offset else 0.0

    @property
    def moves_jobs(self) -> bool:
        """Whether jobs of any on-premise partition may be moved."""
        acting = {Mode.ACT, Mode.OPT_IN}
        return any(self.mode_of(partition) in acting for partition in self.on_premise_partitions)

    def mode_of(self, partition: str | None) -> Mode:
        """Mode in force for a partition; of several, joined by commas, the one that changes least."""
        if partition and "," in partition:
            modes = {self.mode_of(name.strip()) for name in partition.split(",")}
            return next(mode for mode in Mode if mode in modes)
        return self.modes.get(partition or self.on_premise_partitions[0], self.default_mode)


class PathSettings(Section):
    """Where Slurm is, and where the advisor keeps its data."""

    slurm_conf: Path = setting(
        Path("/etc/slurm/slurm.conf"),
        "The slurm.conf of the cluster. If it is not set, the environment variable `SLURM_CONF` counts.",
        why="Distribution packages of Slurm put the file there.",
    )
    slurm_bin: Path = setting(
        Path("/usr/bin"),
        "The folder of Slurm's commands, such as scontrol, squeue and sacct.",
        why="Distribution packages of Slurm put its commands there.",
    )
    lsf_envdir: Path = setting(
        Path("/etc"),
        "The folder of LSF's lsf.conf. If it is not set, the environment variable `LSF_ENVDIR` counts. "
        "lsf.conf has to have LSF_BINDIR and LSB_SHAREDIR. Slurm sites do not need it.",
        why="LSF's own commands look there without LSF_ENVDIR.",
        expert=True,
    )
    database_url: str | None = setting(
        None,
        "The SQLAlchemy URL of the job history, such as `postgresql:///advisor`. It must not contain a "
        "password. Several clusters may share the database: each has a schema named after `cluster.name`. "
        "Without it the history is the SQLite file `history.db` in `paths.state`.",
        why="SQLite needs no server and serves some ten million jobs.",
    )
    state: Path = setting(
        Path("/var/lib/advisor"),
        "The folder of the history, the models and the launch journal. It belongs to the service's user; "
        "slurmctld's user writes only into its folder `handover`.",
        why="The Filesystem Hierarchy Standard puts the state of a service under /var/lib.",
        expert=True,
    )
    run: Path = setting(
        Path("/run/advisor"),
        "The folder of the sockets and of the newest snapshot of the cluster.",
        why="systemd creates this folder from `RuntimeDirectory=advisor`, and a reboot empties it.",
        expert=True,
    )

    shared: bool = setting(
        False,
        "Whether `state` is a folder that two controllers share. Then `advisor control` runs on both; one "
        "acts, by a lease in that folder, and the other one takes over within 30 s of its end.",
        why="Most sites have one controller. It is needed where slurm.conf names SlurmctldHost twice.",
        expert=True,
    )

    @property
    def submit_socket(self) -> Path:
        """Socket on which the submit server answers Slurm's submission hook."""
        return self.run / "submit.sock"

    @property
    def control_socket(self) -> Path:
        """Socket on which Slurm's ResumeProgram, SuspendProgram, ResumeFailProgram hand over nodes."""
        return self.run / "control.sock"

    @property
    def snapshot(self) -> Path:
        """Cluster state as `advisor control` last saw it, replaced atomically."""
        return self.published / "snapshot.msgpack"

    @property
    def published(self) -> Path:
        """Folder of what `advisor control` publishes, for all hosts that share the state."""
        return self.state if self.shared else self.run

    @property
    def models(self) -> Path:
        """Promoted models, each with a manifest."""
        return self.state / "models"

    @property
    def spool(self) -> Path:
        """Advice given and not yet in the ledger, one JSON object a line."""
        return self.state / "spool"


class Settings(Section):
    """All settings of one site, first those that a site decides."""

    cluster: ClusterSettings = ClusterSettings()
    paths: PathSettings = PathSettings()
    budget: BudgetSettings = BudgetSettings()
    price: PriceSettings = PriceSettings()
    rules: RuleSettings = RuleSettings()
    placement: PlacementSettings = PlacementSettings()
    waiting: WaitingSettings = WaitingSettings()
    capacity: CapacitySettings = CapacitySettings()
    ec2: Ec2Settings = Ec2Settings()
    data: DataSettings = DataSettings()
    size: SizeSettings = SizeSettings()
    hedge: HedgeSettings = HedgeSettings()
    promise: PromiseSettings = PromiseSettings()
    matching: MatchingSettings = MatchingSettings()
    acquirer: AcquirerSettings = AcquirerSettings()
    portfolio: PortfolioSettings = PortfolioSettings()
    estimator: EstimatorSettings = EstimatorSettings()
    submit: SubmitSettings = SubmitSettings()
    loops: LoopSettings = LoopSettings()
    web: WebSettings = WebSettings()
    drift: DriftSettings = DriftSettings()
    notices: NoticeSettings = NoticeSettings()

    @model_validator(mode="after")
    def _as_slurm_writes_names(self) -> Settings:
        """Accounts and QOS in lower case, as slurmctld and slurmdbd have them however they were typed."""
        for name, fields in _NAMED_BY_SLURM.items() if self.cluster.scheduler == "slurm" else ():
            section = getattr(self, name)
            found = {field: _in_lower_case(getattr(section, field)) for field in fields}
            if any(getattr(section, field) != value for field, value in found.items()):
                object.__setattr__(self, name, section.model_copy(update=found))  # the model is frozen
        return self

    @property
    def speculates(self) -> bool:
        """Whether jobs of uncertain length run in the cloud for t first (Ambati et al. 2021)."""
        return self.cluster.policy == "ambati2021"

    @property
    def history_url(self) -> str:
        """SQLAlchemy URL in force; on PostgreSQL each cluster has a schema of its own, named after it."""
        url = self.paths.database_url or f"sqlite:///{self.paths.state / 'history.db'}"
        if not url.startswith("postgres") or SCHEMA_WORD in url:
            return url
        return f"{url}{'&' if '?' in url else '?'}{SCHEMA_WORD}{self.cluster.name}"


def _in_lower_case(names: tuple[str, ...] | dict[str, Any]) -> tuple[str, ...] | dict[str, Any]:
    if isinstance(names, dict):
        return {name.lower(): value for name, value in names.items()}
    return tuple(map(str.lower, names))
