"""Check Slurm: the settings of slurm.conf that are needed, the installed programs, and the cloud nodes."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from advisor.decide.explanation.display import duration
from advisor.decide.submission.capacity import is_never_spot
from advisor.model.advice import Mode
from advisor.model.cluster import Node
from advisor.model.errors import BadInput
from advisor.model.node_sets import expand
from advisor.model.settings import Settings
from advisor.model.snapshot import Partition
from advisor.service.admin.doctor import Diagnosis, error, guarded, ok, warning
from advisor.service.admin.doctor_hook import hook, told_by, unknown_keys, without_hook
from advisor.service.admin.doctor_power import power_saving
from advisor.service.observation.reserved_nodes import open_cloud_nodes
from advisor.slurm import hook_files
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.pyslurm_backend import load_pyslurm

_OLDEST: Final = (22, 5)
_SHOWS_CLOUD_NODES: Final = (23, 2)
"""From this release on powered-down nodes are always shown, and PrivateData has no word for it."""
_REQUEUES_UNBOOTED: Final = (25, 5)
"""From this release on there is SchedulerParameters=requeue_on_resume_failure."""
_PARAMETER: Final = re.compile(r"([a-z_]+)(?:=([^,]*))?")
_WEIGHT: Final = re.compile(r"(?:^|=)(\d+)")
"""A weight: a number, or each one of a list of TRES such as ``cpu=1000,gres/gpu=2000``."""
_PROGRAMS_CONF: Final = "advisor_programs.conf"


class SlurmExamination:
    """The checks of Slurm; slurmctld is asked for its configuration once."""

    def __init__(self, settings: Settings, slurm: SlurmBackend) -> None:
        self._settings = settings
        self._slurm = slurm
        self.partitions: dict[str, Partition] = {}
        self._config: Mapping[str, str] = {}
        self._version: tuple[int, ...] = ()

    def run(self) -> Iterator[Diagnosis]:
        """Make all checks; only the first one if slurmctld does not answer."""
        yield from guarded("slurm", self._reach())
        if not self._config:
            return
        yield from guarded("pyslurm", self._pyslurm())
        yield from guarded("slurm.conf", self._slurm_conf())
        yield from guarded("rights", self._rights())
        yield from guarded("partitions", unmanaged_partitions(self._settings, self.partitions))
        yield from guarded("partitions", shared_processors(self._settings, self.partitions))
        yield from guarded("hook", self._hook())
        if self._has_no_cloud_yet():
            none = ok("not needed: no partition has any, and shadow mode moves no job")
            yield from guarded("cloud nodes", [none])
            return
        yield from guarded("cloud programs", self._cloud_programs())
        yield from guarded("cloud nodes", self._cloud_nodes())

    def _has_no_cloud_yet(self) -> bool:
        """Whether a site begins in shadow mode, without a burst partition."""
        cluster = self._settings.cluster
        return cluster.burst_partition not in self.partitions and not cluster.moves_jobs

    def _reach(self) -> Iterator[Diagnosis]:
        version = self._slurm.version()
        if not self._slurm.ping():
            yield error("no slurmctld answers", "Start it, or check paths.slurm_conf and paths.slurm_bin")
            return
        self._config = self._slurm.config()
        self.partitions = {partition.name: partition for partition in self._slurm.partitions()}
        self._version = version
        text = ".".join(map(str, version))
        if version < _OLDEST:
            yield warning(
                f"release {text} is older than 22.05",
                "The advisor was not tested with this release: test it before use",
            )
        else:
            yield ok(f"slurmctld answers, release {text}")

    def _pyslurm(self) -> Iterator[Diagnosis]:
        if self._settings.cluster.slurm_api == "pyslurm":
            module = load_pyslurm(self._settings.paths.slurm_conf, self._version)
            yield ok(f"pyslurm {module.__version__} can be imported, and is for this release")

    def _slurm_conf(self) -> Iterator[Diagnosis]:
        mend = "Use slurmdbd: without it the advisor cannot learn from ended jobs"
        wanted = [("AccountingStorageType", "slurmdbd", mend)]
        if self._settings.cluster.hook:
            mend = "Add lua to JobSubmitPlugins and restart slurmctld, or set cluster.hook = false"
            wanted.insert(0, ("JobSubmitPlugins", "lua", mend))
        has_cloud = not self._has_no_cloud_yet()
        if has_cloud and self._version < _SHOWS_CLOUD_NODES:
            mend = "Set PrivateData=cloud: without it Slurm hides nodes that are powered down"
            wanted.append(("PrivateData", "cloud", mend))
        for name, word, mend in wanted:
            value = self._config.get(name, "")
            if word in value:
                yield ok(f"{name}={value}")
            else:
                yield error(f"{name}={value or '(null)'} has no {word}", mend)
        said, ours = self._config.get("JobRequeue", ""), self._settings.cluster.requeue_default
        if said in ("0", "1") and (said == "1") != ours:
            yield error(
                f"JobRequeue={said}, but cluster.requeue_default is {str(ours).lower()}",
                f"Set cluster.requeue_default = {str(not ours).lower()}",
            )
        yield from self._controllers()
        if has_cloud:
            yield from self._for_the_cloud()
            yield from self._requeues()
            yield from self._priorities()

    def _for_the_cloud(self) -> Iterator[Diagnosis]:
        """Check how slurmctld goes on with nodes that were powered down, and learns their addresses."""
        wanted = {
            "idle_on_node_suspend": "Add it: a node that is suspended while DOWN then becomes usable again",
            "cloud_reg_addrs": "Add it, unless a NAT lies between the nodes and slurmctld: else it looks "
            "by name for a node that registers before its address is known, answers no command for ten "
            "seconds each time, and may start the job on a second node",
        }
        for word, mend in wanted.items():
            if word not in self._config.get("SlurmctldParameters", ""):
                yield warning(f"SlurmctldParameters has no {word}", mend)

    def _controllers(self) -> Iterator[Diagnosis]:
        """Check what a second controller needs."""
        second = self._config.get("SlurmctldHost[1]")
        if second and not self._settings.paths.shared:
            yield warning(
                f"there is a second controller, {second}",
                "Set paths.shared (docs/install.md, 'Two controllers'); else jobs stay here while it acts",
            )

    def _requeues(self) -> Iterator[Diagnosis]:
        """Check what becomes of a job whose node does not boot, and when a requeued job may start."""
        parameters = dict(_PARAMETER.findall(self._config.get("SchedulerParameters", "")))
        if self._version >= _REQUEUES_UNBOOTED and "requeue_on_resume_failure" not in parameters:
            yield warning(
                "SchedulerParameters has no requeue_on_resume_failure: a job with --no-requeue ends if its "
                "cloud node does not boot while advisor control is down",
                "Add it: such a job has not begun, and is requeued then like any other",
            )
        delay, needed = parameters.get("requeue_delay", ""), 2.0 * self._settings.loops.snapshot_seconds
        if delay.isdecimal() and int(delay) < needed:
            yield warning(
                f"requeue_delay={delay} in SchedulerParameters: a job that is requeued to return may "
                "start in the cloud again before it is moved",
                f"Set it to {needed:g} (seconds, twice loops.snapshot_seconds) or more, or leave it out: "
                "jobs that the advisor requeues may start as soon as they are in place",
            )

    def _priorities(self) -> Iterator[Diagnosis]:
        if "multifactor" in self._config.get("PriorityType", ""):
            yield from self._small_first()
            return
        ours = self._settings.portfolio
        if self._settings.size.small_priority_offset:
            yield warning(
                "PriorityType is not priority/multifactor: small jobs cannot be put first by the site factor",
                "Use priority/multifactor, or set size.small_priority_offset = 0",
            )
        if ours.enabled and ours.order_jobs:
            yield warning(
                "PriorityType is not priority/multifactor: burst jobs cannot be put in the policy's order",
                "Use priority/multifactor, or set portfolio.order_jobs = false",
            )

    def _small_first(self) -> Iterator[Diagnosis]:
        """Check whether the offset exceeds the largest difference of Slurm's own factors."""
        offset, weights = self._settings.size.small_priority_offset, priority_weights(self._config)
        most = sum(weights.values())
        if not self._settings.size.enabled or not offset:
            return
        if offset > most:
            yield ok(f"small jobs go first: {offset} is more than the sum of all weights, {most}")
            return
        names = ", ".join(f"{name} {weight}" for name, weight in weights.items())
        yield warning(
            f"small jobs may still start after large ones: size.small_priority_offset is {offset}, and the "
            f"other factors differ by up to {most} ({names})",
            f"size.small_priority_offset = {most + 1} always puts small jobs first; keep it smaller if age, "
            "fair share or QOS are to outweigh it",
        )

    def _rights(self) -> Iterator[Diagnosis]:
        """Check the rights of the user who runs the doctor, which should be the service's (``sudo -u``)."""
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = str(os.getuid())
        slurm_user = self._config.get("SlurmUser", "").partition("(")[0]
        if os.getuid() == 0 or user == slurm_user or self._slurm.is_administrator(user):
            yield ok(f"{user} may change nodes and jobs")
            return
        only_reads = self._has_no_cloud_yet() and self._settings.cluster.hook
        yield (warning if only_reads else error)(
            f"{user} may not change nodes and jobs: no cloud node can start, and no job can be requeued",
            f"sacctmgr -i add user {user} account=root adminlevel=Admin, or, if slurmdbd knows the user, "
            f"sacctmgr -i modify user {user} set adminlevel=Admin"
            + ("; shadow mode works without" if only_reads else ""),
        )

    def _hook(self) -> Iterator[Diagnosis]:
        conf = Path(self._config.get("SLURM_CONF") or self._settings.paths.slurm_conf)
        if self._settings.cluster.hook:
            yield from hook(conf.parent, self._settings)
            return
        has_lua = "lua" in self._config.get("JobSubmitPlugins", "")
        yield without_hook(conf.parent if has_lua else None)

    def _cloud_programs(self) -> Iterator[Diagnosis]:
        for setting, name in zip(
            ("ResumeProgram", "SuspendProgram", "ResumeFailProgram"), hook_files.CLOUD_PROGRAMS, strict=True
        ):
            path = Path(self._config.get(setting, ""))
            if path.name != name:
                yield error(
                    f"{setting}={path} is not the advisor's", f"{setting}={hook_files.installed(name)}"
                )
            elif hook_files.is_ours(path, name) is not True or not os.access(path, os.X_OK):
                yield warning(
                    f"{path} is not this release's version", f"Copy {hook_files.folder() / name} there"
                )
            else:
                yield ok(f"{setting}={path}")
        yield from self._program_settings(Path(self._config.get("ResumeProgram", "")).parent)
        prolog = Path(self._config.get("PrologSlurmctld", ""))
        if prolog.name == hook_files.PROLOG and hook_files.is_ours(prolog, prolog.name) is not True:
            yield warning(
                f"{prolog} is not this release's version", f"Copy {hook_files.folder() / prolog.name} there"
            )

    def _program_settings(self, own: Path) -> Iterator[Diagnosis]:
        """Compare the programs' settings file, or their defaults, with the settings."""
        conf = Path(self._config.get("SLURM_CONF") or self._settings.paths.slurm_conf)
        # of no ResumeProgram the folder is the present one
        folders = (own, conf.parent, Path("/etc/slurm"))
        places = [folder / _PROGRAMS_CONF for folder in folders if folder.is_absolute()]
        path = next((place for place in places if place.is_file()), places[0])
        told, defaults = told_by(path), hook_files.program_defaults()
        paths = self._settings.paths
        wanted = {
            "control_socket": str(paths.control_socket),
            "handover_folder": str(paths.state / "handover"),
            "burst_partition": self._settings.cluster.burst_partition,
            "stage_in": str(self._settings.data.stage_in or ""),
        }
        for name, value in wanted.items():
            found = told.get(name, defaults[name])
            if found != value:
                # prolog_slurmctld finds its jobs by the partition; without it they only start later
                yield (warning if name in {"burst_partition", "stage_in"} else error)(
                    f"their {name} is {found or 'not set'}, but the settings say {value or 'none'}",
                    f"Set `{name} = {value}` in {path}",
                )
        yield from unknown_keys(path, defaults)

    def _cloud_nodes(self) -> Iterator[Diagnosis]:
        name = self._settings.cluster.burst_partition
        partition = self.partitions.get(name)
        if partition is None:
            return  # the check of the settings reports it
        if not partition.is_up:
            yield error(f"partition {name} is not up", f"scontrol update partition={name} state=up")
        nodes = self._slurm.snapshot(0.0).nodes_of(name)
        fixed = [node.name for node in nodes if not node.is_cloud]
        down = [node.name for node in nodes if node.is_down or node.is_draining]
        if not nodes:
            yield error(f"partition {name} has no node", "Add lines NodeName=... State=CLOUD to slurm.conf")
        if fixed:
            yield error(f"{', '.join(fixed[:5])} are not State=CLOUD", "Add State=CLOUD to them")
        if down:
            yield warning(f"{', '.join(down[:5])} are down or drained", "See `sinfo -R`")
        if nodes and not fixed and not down:
            yield ok(f"{len(nodes)} nodes, all State=CLOUD and usable")
        yield from self._capacity_features(nodes)
        yield from self._steady_feature(nodes)
        yield from self._reservations(nodes)
        yield from power_saving(self._settings, self._config, self.partitions)

    def _reservations(self, nodes: Sequence[Node]) -> Iterator[Diagnosis]:
        """Check that a reservation, say for maintenance, leaves some cloud node to jobs."""
        now = time.time()
        _, closings = open_cloud_nodes(nodes, self._slurm.reservations(), now)
        closes_at = next((at for at, left in closings if not left), None)
        if closes_at is not None:
            yield warning(
                f"all are in a reservation that begins in {duration(max(0.0, closes_at - now))}: "
                "no job moves that might run into it",
                "Reserve the on-premise nodes alone, and the cloud goes on (docs/operate.md)",
            )

    def _steady_feature(self, nodes: Sequence[Node]) -> Iterator[Diagnosis]:
        """Check that slurm.conf has the feature by which matching marks nodes that are likely to survive."""
        matching = self._settings.matching
        feature = matching.long_lived_feature
        if nodes and matching.enabled and feature and not any(feature in node.features for node in nodes):
            yield warning(
                f"none has the feature {feature}: long jobs cannot prefer nodes that are likely to survive",
                f"Give them Feature=...,{feature} in slurm.conf, or empty matching.long_lived_feature",
            )

    def _capacity_features(self, nodes: Sequence[Node]) -> Iterator[Diagnosis]:
        """Check that features allow spot instances on some nodes, and exclude them on others."""
        if not nodes or not self._settings.capacity.use_spot:
            return
        stable = [node for node in nodes if is_never_spot(node.features)]
        if not stable:
            yield warning(
                "none has the feature on-demand: jobs with --no-requeue are never moved",
                "Give some of them Feature=...,on-demand in slurm.conf: they are then never spot instances",
            )
        elif len(stable) == len(nodes):
            yield warning(
                "all have the feature on-demand or reserved: none can be a spot instance",
                "Remove it from some of them in slurm.conf, or set capacity.use_spot = false",
            )


def priority_weights(config: Mapping[str, str]) -> dict[str, int]:
    """Slurm's PriorityWeight settings that are not 0, by name; those of TRES are added up.

    Each weights a factor from 0 to 1, so priorities without nice and site factor differ at most by the sum.
    """
    weights = {}
    for name, value in config.items():
        if name.startswith("PriorityWeight"):
            weight = sum(int(digits) for digits in _WEIGHT.findall(value))
            if weight:
                weights[name] = weight
    return weights


def unmanaged_partitions(settings: Settings, partitions: Mapping[str, Partition]) -> Iterator[Diagnosis]:
    """Name the partitions whose waiting jobs the forecasts of the queue do not see."""
    managed = settings.cluster.on_premise_partitions
    ours = frozenset[str]().union(*(_nodes(partitions[name]) for name in managed if name in partitions))
    beside = [
        name
        for name, partition in partitions.items()
        if name not in {*managed, settings.cluster.burst_partition} and not ours.isdisjoint(_nodes(partition))
    ]
    if beside:
        yield warning(
            f"jobs of {', '.join(beside)} have nodes of on-premise partitions",
            "Add them to cluster.on_premise_partitions, with the mode off in cluster.modes where their jobs "
            "must not move: forecast waits do not know jobs that wait in a partition that is not named there",
        )
    else:
        yield ok("no other partition has nodes of the on-premise ones")


def shared_processors(settings: Settings, partitions: Mapping[str, Partition]) -> Iterator[Diagnosis]:
    """Name the partitions whose jobs share processors, which neither forecasts nor prices know."""
    cluster = settings.cluster
    moving = [name for name in cluster.on_premise_partitions if cluster.mode_of(name) is not Mode.OFF]
    for name in (*moving, cluster.burst_partition):
        most = partitions[name].forced if name in partitions else 1
        if most > 1:
            off = f', or the mode of its jobs to off: cluster.modes = {{{name} = "off"}}'
            yield warning(
                f"OverSubscribe=FORCE:{most} of partition {name} lets jobs share processors: forecasts take "
                "each for one job's, and jobs that would start here at once move for money",
                f"Set it to NO in slurm.conf{off if name in moving else ''}",
            )


def _nodes(partition: Partition) -> frozenset[str]:
    try:
        return frozenset(expand(partition.nodes))
    except BadInput:  # text from outside
        return frozenset()
