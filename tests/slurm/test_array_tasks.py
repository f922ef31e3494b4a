"""The last task of an array has the array's own id: what is done to it is not done to the other tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.model.errors import RetryLater
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.slurm.running_jobs import RunningJobs
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.lab_processes import wait_until

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.temporary(LabOptions(nodes=1)) as lab:
        yield lab


def commands(lab: Lab) -> Commands:
    return Commands(Path("/usr/bin"), lab.conf)


def states(lab: Lab, array: int) -> dict[str, str]:
    shown = lab.run("squeue", "-h", "--states=all", "-r", f"--jobs={array}", "-o", "%i %T").stdout
    return {name.partition("_")[2]: state for name, state in map(str.split, shown.splitlines())}


def submit(lab: Lab, script: str, becomes: dict[str, str]) -> int:
    """An array of two tasks; the id of the second one is the array's."""
    array = lab.sbatch("--array=1-2", script=script).job_id
    wait_until(lambda: states(lab, array) == becomes, seconds=60, what=f"an array of {becomes}")
    return array


def warned(lab: Lab, array: int) -> str:
    """What it was warned by; empty where slurmctld does not find the task at the moment of its start."""
    try:
        return RunningJobs(commands(lab)).warn(array)
    except RetryLater:
        return ""


def test_a_task_is_changed_signalled_and_requeued_alone(lab: Lab) -> None:
    script = '#SBATCH --signal=B:USR1@10\ntrap "exit 7" USR1; while :; do sleep 0.1; done'
    array = submit(lab, script, {"1": "RUNNING", "2": "RUNNING"})
    slurm = CliBackend(commands(lab))
    slurm.requeue([array])
    wait_until(lambda: states(lab, array)["2"] == "PENDING", seconds=240, what="the second task waits again")
    assert states(lab, array)["1"] == "RUNNING"
    slurm.update_job([array], {"starttime": "now"})  # slurmctld refuses that of a running task
    wait_until(lambda: states(lab, array)["2"] == "RUNNING", seconds=240, what="the second task runs again")
    wait_until(lambda: warned(lab, array) == "USR1", seconds=60, what="the second task is warned")
    wait_until(lambda: states(lab, array)["2"] == "FAILED", seconds=240, what="the second task has heard it")
    assert states(lab, array)["1"] == "RUNNING"
    lab.run("scancel", str(array))


def test_a_task_that_has_completed_is_not_run_again_with_one_that_failed(lab: Lab) -> None:
    array = submit(lab, "exit $((SLURM_ARRAY_TASK_ID - 1))", {"1": "COMPLETED", "2": "FAILED"})
    CliBackend(commands(lab)).requeue_ended([array])
    wait_until(lambda: states(lab, array)["2"] != "FAILED", seconds=240, what="the second task waits again")
    assert states(lab, array)["1"] == "COMPLETED"
    lab.run("scancel", str(array))
