"""What newer releases of slurmctld do of themselves, and what earlier ones do instead."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.model.errors import TellAdmin
from advisor.model.job import Job
from advisor.model.snapshot import PENDING, RUNNING, QueuedJob
from advisor.service.exchange.handover import HandOver, decode
from advisor.service.waiting.unadvised import obstacle
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.slurm.placeholders import Placeholders
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.lab_processes import wait_until

pytestmark = pytest.mark.slurm

EXPEDITES = (25, 11)
TELLS_PRIORITIES = (26, 5)


@pytest.fixture
def lab() -> Iterator[Lab]:
    options = LabOptions(nodes=1, burst_nodes=2, slurmctld_parameters=("enable_expedited_requeue",))
    with Lab.temporary(options) as lab:
        yield lab


@pytest.fixture
def slurm(lab: Lab) -> CliBackend:
    return CliBackend(Commands(Path(shutil.which("squeue") or "").parent, lab.conf))


def job(slurm: CliBackend, job_id: int) -> QueuedJob:
    return next(each for each in slurm.snapshot(time.time()).jobs if each.job.job_id == job_id)


def test_an_expedited_job_waits_and_runs_again(lab: Lab, slurm: CliBackend) -> None:
    if slurm.version() < EXPEDITES:
        with pytest.raises(TellAdmin):
            lab.sbatch("--requeue=expedite", script="sleep 300")
        return
    job_id = lab.sbatch("--partition=burst", "--requeue=expedite", script="sleep 300").job_id
    wait_until(lambda: job(slurm, job_id).state == RUNNING, seconds=120, what="it runs in the cloud")
    assert job(slurm, job_id).job.requeue is True
    where = job(slurm, job_id).nodes
    lab.run("scontrol", "update", f"nodename={where}", "state=down", "reason=lost")
    states = []

    def runs_again() -> bool:
        now = job(slurm, job_id)
        states.append(now.state)
        return now.state == RUNNING and now.restarts == 1

    wait_until(runs_again, seconds=120, what="it runs on the other node")
    assert set(states) <= {RUNNING, "COMPLETING", PENDING, "CONFIGURING"}
    assert job(slurm, job_id).nodes != where


def test_the_resume_file_says_which_job_a_node_is_for(lab: Lab, slurm: CliBackend, tmp_path: Path) -> None:
    copied = watch_resume_files(lab, tmp_path)
    job_id = lab.sbatch("--partition=burst", "--nodes=2", "--exclusive", script="sleep 300").job_id
    wait_until(lambda: any(copied.iterdir()), seconds=120, what="slurmctld calls ResumeProgram")
    (text,) = (path.read_text() for path in copied.iterdir())
    asked = hand_over(text)
    assert set(asked.jobs.values()) == {job_id}
    if slurm.version() < TELLS_PRIORITIES:
        assert not asked.priorities
    else:
        assert asked.priorities == dict.fromkeys(asked.jobs, job(slurm, job_id).priority)
    lab.run("scancel", str(job_id))


def test_how_a_job_ended(lab: Lab) -> None:
    """What is asked about a job that slurmctld has killed in order to requeue it."""
    places = Placeholders(Commands(Path(shutil.which("squeue") or "").parent, lab.conf))
    for script, is_killed in (("kill -9 $$", True), ("exit 1", False)):
        job_id = lab.sbatch(script=f"sleep 1; {script}").job_id
        assert lab.wait_for_jobs([job_id]) == {job_id: "FAILED"}
        assert (places.killed(job_id) is not None) == is_killed


def test_accounts_below_those_of_a_partitions_list(database_template: Path) -> None:
    """From 23.02 on ``AllowAccounts`` and ``DenyAccounts`` hold for them as well; no submission is lost."""
    enforced = ("AccountingStorageEnforce=associations", "EnforcePartLimits=ALL")
    options = LabOptions(
        nodes=1, burst_nodes=1, database=True, database_template=database_template, extra=enforced
    )
    with Lab.temporary(options) as lab:
        for account, parent in (("physics", "lab"), ("optics", "physics")):
            lab.run("sacctmgr", "-i", "-Q", "add", "account", account, f"parent={parent}")
            lab.run("sacctmgr", "-i", "-Q", "add", "user", "root", f"account={account}")
        slurm = CliBackend(Commands(Path(shutil.which("squeue") or "").parent, lab.conf))
        for lists in (("AllowAccounts=physics",), ("AllowAccounts=", "DenyAccounts=physics")):
            lab.run("scontrol", "update", "partitionname=burst", *lists)
            burst = next(partition for partition in slurm.partitions() if partition.name == "burst")
            for account in ("lab", "physics", "optics"):
                said = obstacle(Job(job_id=0, submit_time=0.0, processors=1, account=account), burst)
                asked = ("--hold", "--partition=burst", f"--account={account}", "--wrap=true")
                assert (lab.run("sbatch", *asked, check=False).returncode == 0) == (said == ""), account


def watch_resume_files(lab: Lab, folder: Path) -> Path:
    """From now on each resume file is copied into the folder that is returned, before the program runs."""
    cloud, copied = lab.folder / "cloud", folder / "copied"
    program, own, new = cloud / "resume", cloud / "own" / "resume", cloud / "new"
    copied.mkdir()
    own.parent.mkdir()
    shutil.copy(cloud / "stand_in.json", own.parent)
    shutil.copy(program, own)
    new.write_text(
        f'#!/bin/bash\ncp "$SLURM_RESUME_FILE" {shlex.quote(str(folder))}/$$ && '
        f"mv {shlex.quote(str(folder))}/$$ {shlex.quote(str(copied))}/$$\n"
        f'exec {shlex.quote(str(own))} "$@"\n'
    )
    new.chmod(0o755)
    new.replace(program)
    return copied


def hand_over(resume_file: str) -> HandOver:
    message = {
        "v": 1,
        "op": "resume",
        "id": "1795000000000000000-4711-00ff00ff",
        "time": 5.0,
        "nodes": "burst[1-2]",
        "resume_file": resume_file,
    }
    return decode(json.dumps(message).encode() + b"\n")
