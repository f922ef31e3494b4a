"""What a lab looks like, and its slurm.conf."""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from advisor.model.errors import BadInput

_NAME: Final = re.compile(r"@([a-z_]+)@")
_SLURMCTLD_PARAMETERS: Final = ("idle_on_node_suspend", "power_save_interval=2", "power_save_min_interval=0")
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom")
"""What stands for GPUs: slurmd counts those alone whose files are there."""
_PLUGIN_FOLDERS: Final = ("slurm-wlm", "slurm")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabOptions:
    """What a lab is made of.

    Attributes:
        cluster: Name of the cluster.
        nodes, processors, memory_mb: On-premise nodes, and what each pretends to have (MiB).
        burst_nodes, burst_processors, burst_memory_mb: The same of the cloud nodes; at most 90.
        burst_features, last_burst_features: Node features of the cloud nodes; those of the last one, where
            they are others.
        last_burst_gpus: GPUs that the last cloud node pretends to have, at most 4.
        database: MariaDB and slurmdbd, so that sacct knows ended jobs.
        database_template: Folder with a ready database to copy; made there by the first lab when it is
            missing. It saves every later lab six seconds.
        hook: job_submit.lua to install, with the advisor_submit.lua beside it if there is one.
        hook_settings: Lines of ``advisor_hook.conf`` beside it.
        cloud_programs: Folder with ``resume``, ``suspend`` and ``resume_fail``. None: a stand-in that "boots"
            a cloud node by starting its slurmd on this machine.
        prolog: PrologSlurmctld; None: the stand-in's, which ends Slurm's wait of up to 30 s before the batch
            launch. Needed for fast tests.
        boot_seconds: Boot time of the stand-in. Over one second: slurmctld compares whole seconds, and takes
            a faster "boot" now and then for none.
        suspend_seconds, resume_timeout_seconds, suspend_timeout_seconds: Idle time before a cloud node is
            given back; how long a boot, and a power-down, may last.
        requeue_seconds: How long a requeued job waits unless it is told to start now; 120 on a real site.
        default_minutes: Time limit of a job that asks for none.
        priority_type: ``priority/multifactor`` knows site factors, ``priority/basic`` does not.
        max_jobs, min_job_age_seconds: slurmctld's memory of jobs.
        scheduler_parameters, debug: As in slurm.conf.
        slurmctld_parameters: More of them than a lab needs, as in slurm.conf.
        slurm_user: SlurmUser, who slurmctld and slurmdbd become when root starts them; empty: the lab's own.
        extra: More lines for slurm.conf.
    """

    cluster: str = "lab"
    nodes: int = 2
    processors: int = 4
    memory_mb: int = 4000
    burst_nodes: int = 3
    burst_processors: int = 4
    burst_memory_mb: int = 4000
    burst_features: tuple[str, ...] = ("cloud", "x86")
    last_burst_features: tuple[str, ...] | None = None
    last_burst_gpus: int = 0
    database: bool = False
    database_template: Path | None = None
    hook: Path | None = None
    hook_settings: Mapping[str, str] = field(default_factory=dict)
    cloud_programs: Path | None = None
    prolog: Path | None = None
    boot_seconds: float = 1.5
    suspend_seconds: int = 10
    resume_timeout_seconds: int = 60
    suspend_timeout_seconds: int = 5
    requeue_seconds: int = 5
    default_minutes: int = 60
    priority_type: str = "priority/multifactor"
    max_jobs: int = 20_000
    min_job_age_seconds: int = 300
    scheduler_parameters: str = "sched_interval=2,bf_interval=2,batch_sched_delay=0"
    slurmctld_parameters: tuple[str, ...] = ()
    slurm_user: str = ""
    debug: str = "info"
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= 90 or not 1 <= self.burst_nodes <= 90:
            raise BadInput(
                "a lab has 1 to 90 on-premise and 1 to 90 cloud nodes",
                where="LabOptions",
                mend="Give each node more processors instead: they are pretended anyway",
            )


def render(template: str, values: Mapping[str, object]) -> str:
    """Fill in a template of ``lab_files``."""
    text = (files("advisor.testing") / "lab_files" / template).read_text(encoding="utf-8")
    return _NAME.sub(lambda match: str(values[match[1]]), text)


def slurm_conf(options: LabOptions, folder: Path, base_port: int) -> str:
    """Text of the lab's slurm.conf."""
    return render("slurm.conf.in", _values(options, folder, base_port))


def slurmdbd_conf(options: LabOptions, folder: Path, base_port: int) -> str:
    """Text of the lab's slurmdbd.conf."""
    return render("slurmdbd.conf.in", _values(options, folder, base_port))


def _values(options: LabOptions, folder: Path, base: int) -> dict[str, object]:
    programs = options.cloud_programs or folder / "cloud"
    prolog = options.prolog or folder / "cloud" / "prolog"
    values: dict[str, object] = {name: getattr(options, name) for name in options.__dataclass_fields__}
    return values | {
        "folder": folder,
        "host": socket.gethostname().partition(".")[0],
        "user": (own := pwd.getpwuid(os.geteuid()).pw_name),
        "slurm_user": options.slurm_user or own,
        "plugin_folder": plugin_folder(),
        "port_slurmctld": base,
        "port_slurmdbd": base + 1,
        "port_slurmd": base + 2,
        "port_node_first": base + 10,
        "port_node_last": base + 9 + options.nodes,
        "slurmctld_parameters": ",".join((*_SLURMCTLD_PARAMETERS, *options.slurmctld_parameters)),
        "burst_lines": "\n".join(_burst_lines(options, base + 99)),
        "resume_program": programs / "resume",
        "suspend_program": programs / "suspend",
        "resume_fail_program": programs / "resume_fail",
        "prolog_line": f"PrologSlurmctld={prolog}",
        "hook_line": "JobSubmitPlugins=lua" if options.hook else "",
        "accounting_lines": _accounting_lines(options, folder, base),
        "extra": "\n".join(options.extra),
    }


def gres_conf(options: LabOptions) -> str:
    """Text of the lab's gres.conf; empty where no node has GPUs."""
    devices = _DEVICES[: options.last_burst_gpus]
    return "".join(f"NodeName=burst{options.burst_nodes} Name=gpu File={device}\n" for device in devices)


def _burst_lines(options: LabOptions, port: int) -> Iterator[str]:
    if options.last_burst_gpus:
        yield "GresTypes=gpu"
    for number in range(1, options.burst_nodes + 1):
        features, weight = options.burst_features, "100"
        if number == options.burst_nodes and options.last_burst_features is not None:
            features = options.last_burst_features
        if number == options.burst_nodes and options.last_burst_gpus:
            weight = f"200 Gres=gpu:{options.last_burst_gpus}"
        yield (
            f"NodeName=burst{number} Port={port + number} State=CLOUD CPUs={options.burst_processors} "
            f"RealMemory={options.burst_memory_mb} Feature={','.join(features)} Weight={weight}"
        )


def _accounting_lines(options: LabOptions, folder: Path, base: int) -> str:
    if not options.database:
        return "AccountingStorageType=accounting_storage/none"
    return "\n".join(
        (
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={base + 1}",
            f"AccountingStoragePass={folder}/munge/sock",
            "AccountingStoreFlags=job_comment",
        )
    )


@cache
def plugin_folder() -> Path:
    """Where Debian keeps Slurm's plugins.

    Raises:
        BadInput: Slurm is not installed.
    """
    for library in (*Path("/usr/lib").glob("*-linux-gnu*"), Path("/usr/lib64"), Path("/usr/lib")):
        for name in _PLUGIN_FOLDERS:
            if (library / name / "auth_munge.so").exists():
                return library / name
    raise BadInput(
        "Slurm's plugins are not there",
        where="/usr/lib",
        mend="Install slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins and munge (make system)",
        code="lab.no_slurm",
    )
