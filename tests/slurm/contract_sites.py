"""The two Slurms of the contract: a real slurmctld on this machine, and the one in memory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from advisor.model.cluster import Node
from advisor.model.errors import RetryLater
from advisor.model.job import Job
from advisor.model.snapshot import QueuedJob
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.pyslurm_backend import PyslurmBackend, load_pyslurm
from advisor.slurm.running_jobs import RunningJobs
from advisor.testing.lab import Lab
from advisor.testing.lab_processes import wait_until
from advisor.testing.manual_clock import ManualClock
from advisor.testing.memory_pyslurm import MemoryPyslurm
from advisor.testing.memory_slurm import MemorySlurm, SlurmTimes

NODES = ("burst1", "burst2", "burst3")
FEATURES = ("cloud", "x86")
LONG, SHORT = 300.0, 1.0
UNKNOWN = 987_654
"""Id of no job."""
KINDS = (
    ("--array=1-4,7,9%2", "--time=10"),
    ("--job-name=a 'b\" c|d", "--comment=x\\y, z=1;", "--time=UNLIMITED"),
    ("--job-name=é日本", "--mem=100", "--cpus-per-task=2", "--no-requeue", "--nice=20"),
    ("--dependency=afterok:{first},afterany:{first}", "--constraint=cloud&x86", "--time=1-0"),
    ("--dependency=afterok:{first}?afternotok:{first}", "--constraint=cloud|x86"),
    ("--dependency=singleton", "--prefer=x86", "--account=one"),
    ("--dependency=after:{first}+10", "--nodes=1-3"),
    ("--nodelist=burst[1-2]", "--exclude=burst3", "--exclusive", "--nodes=2"),
    ("--begin=now+1hour", "--constraint=x86*2&cloud", "--nodes=2"),
    ("--partition=onprem,burst", "--ntasks=3"),
)


class Site(Protocol):
    """What a case does to a Slurm beside asking and telling it."""

    slurm: SlurmBackend
    by_commands: SlurmBackend
    pyslurm: Any
    jobs: RunningJobs | MemorySlurm

    @property
    def now(self) -> float: ...
    def submit(
        self,
        seconds: float,
        *,
        partition: str = ...,
        nodes: int = ...,
        fails: bool = ...,
        may_requeue: bool = ...,
    ) -> int: ...
    def submit_all_kinds(self) -> int: ...
    def until(self, is_so: Callable[[], bool]) -> None: ...
    def go_away(self) -> None: ...
    def leave(self) -> None: ...


class InMemory:
    """`advisor.testing.memory_slurm`; nodes boot in two seconds."""

    def __init__(self, *, by_pyslurm: bool) -> None:
        self.clock = ManualClock()
        self.jobs = MemorySlurm(
            now=lambda: self.clock.wall,
            program=lambda *_: None,
            answers=lambda _name, _address, since: self.clock.wall >= since + 2.0,
            node_count=len(NODES),
            features=FEATURES,
            times=SlurmTimes(suspend=5.0, idle=10.0, requeue=5.0),
        )
        self.by_commands: SlurmBackend = self.jobs
        self.slurm, self.pyslurm = self.by_commands, MemoryPyslurm(self.jobs)
        if by_pyslurm:
            self.slurm = PyslurmBackend(self.pyslurm, self.by_commands)

    @property
    def now(self) -> float:
        return self.clock.wall

    def submit(
        self,
        seconds: float,
        *,
        partition: str = "burst",
        nodes: int = 1,
        fails: bool = False,
        may_requeue: bool = True,
    ) -> int:
        job = self.jobs.submit(
            seconds, partition=partition, nodes_wanted=nodes, fails=fails, may_requeue=may_requeue
        )
        return job.job_id

    def submit_all_kinds(self) -> int:
        """Jobs that differ in what is read of them; how many rows of squeue they make."""
        self.jobs.hold([self.submit(LONG, partition="onprem"), self.submit(LONG, nodes=2)])
        self.jobs.submit_array(3, LONG, partition="burst")
        for dependency in ("afterok:1,afterany:1", "afterok:1?afternotok:1", "singleton"):
            job_id = self.submit(LONG)
            said = Job(job_id=job_id, submit_time=0.0, processors=4, requeue=True, dependency=dependency)
            self.jobs.jobs[job_id].described = said
        limited = self.submit(LONG)
        said = Job(job_id=limited, submit_time=0.0, processors=4, array_tasks=6, array_at_once=2)
        self.jobs.jobs[limited].described = said
        return len(self.jobs.snapshot(self.now).jobs)

    def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(600):
            if is_so():
                return
            self.clock.pass_by(0.5)
            self.jobs.advance()
        assert is_so()

    def go_away(self) -> None:
        """Nobody plays slurmctld."""
        self.jobs.is_away = True

    def leave(self) -> None:
        """Nothing: the next case has a new one."""


class OnThisMachine:
    """`advisor.testing.lab`: one for all cases."""

    def __init__(self, lab: Lab, *, by_pyslurm: bool) -> None:
        self.lab = lab
        commands = Commands(Path(shutil.which("squeue") or "").parent, lab.conf)
        self.by_commands: SlurmBackend = CliBackend(commands)
        self.jobs = RunningJobs(commands)
        self.slurm, self.pyslurm = self.by_commands, None
        if by_pyslurm:
            self.pyslurm = load_pyslurm(lab.conf, self.by_commands.version())
            self.slurm = PyslurmBackend(self.pyslurm, self.by_commands)

    @property
    def now(self) -> float:
        return time.time()

    def submit(
        self,
        seconds: float,
        *,
        partition: str = "burst",
        nodes: int = 1,
        fails: bool = False,
        may_requeue: bool = True,
    ) -> int:
        requeue = "--requeue" if may_requeue else "--no-requeue"
        options = (f"--partition={partition}", f"--nodes={nodes}", "--exclusive", requeue)
        script = f"sleep {seconds}; exit {int(fails)}"
        return self.lab.sbatch(*options, script=script).job_id

    def submit_all_kinds(self) -> int:
        """Jobs that differ in what is read of them; how many rows of squeue they make."""
        first = self.submit(LONG, partition="onprem")
        self.until(lambda: state(self, first) == "RUNNING")  # it must not start between two looks
        for options in KINDS:
            given = [option.format(first=first) for option in options]
            self.lab.sbatch("--partition=burst", "--hold", *given, script=f"sleep {LONG}")
        mixed = ("--partition=burst", "--nodes=1", "--hold")
        self.lab.run("sbatch", *mixed, ":", *mixed, f"--wrap=sleep {LONG}")
        return 1 + len(KINDS) + 2

    def until(self, is_so: Callable[[], bool]) -> None:
        try:
            wait_until(is_so, seconds=240.0, what="what the case waits for")
        except RetryLater:
            shown = self.lab.run("scontrol", "show", "job").stdout + self.lab.run("sinfo", "-N", "-l").stdout
            pytest.fail(shown)

    def go_away(self) -> None:
        self.lab.stop_slurmctld()

    def leave(self) -> None:
        if self.lab.slurmctld_pid() is None:
            self.lab.start_slurmctld()
        self.lab.run("scancel", "--user=root", check=False)
        wait_until(lambda: not self.slurm.snapshot(self.now).jobs, seconds=240.0, what="no job is left")
        for name in NODES:
            if {"DRAIN", "DRAINED", "DRAINING", "DOWN"} & node(self, name).states:
                self.lab.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)
        self.slurm.update_node(NODES, weight=100)


def job(site: Site, job_id: int) -> QueuedJob | None:
    """A job as the snapshot shows it; None when it is not queued."""
    return next((each for each in site.slurm.snapshot(site.now).jobs if each.job.job_id == job_id), None)


def state(site: Site, job_id: int) -> str:
    found = job(site, job_id)
    return "" if found is None else found.state


def node(site: Site, name: str) -> Node:
    found = site.slurm.snapshot(site.now).node(name)
    assert found is not None
    return found
