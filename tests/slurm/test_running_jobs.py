"""The signal a job asked for, read where its user wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from advisor.model.errors import RetryLater
from advisor.slurm.running_jobs import JobEnd, RequestedSignal, RunningJobs, parse_signal, requested_signal

USR1 = RequestedSignal(name="USR1", to_batch_shell=False)
SHELL = RequestedSignal(name="USR1", to_batch_shell=True)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("USR1", USR1),
        ("SIGUSR1@60", USR1),
        ("B:USR1@60", SHELL),
        ("RB:usr1@300", SHELL),
        ("R:USR1", USR1),
        ("10", RequestedSignal(name="10", to_batch_shell=False)),
        ("", None),
        ("USR1;rm", None),
        ("--batch", None),
    ],
)
def test_values(text: str, asked: RequestedSignal | None) -> None:
    assert parse_signal(text) == asked


@pytest.mark.parametrize(
    ("line", "script", "asked"),
    [
        ("sbatch --signal=USR1@60 job.sh", "", USR1),
        ("sbatch --signal B:USR1 -p burst job.sh", "", SHELL),
        ("sbatch -p burst --signal=B:USR1@10 job.sh", "#!/bin/sh\n#SBATCH --signal=TERM\n", SHELL),
        ("sbatch job.sh --signal=USR1", "", None),
        ("sbatch job.sh", "#!/bin/sh\n#SBATCH -n 1\n#SBATCH --signal=B:USR1@60\nsleep 1\n", SHELL),
        ("sbatch job.sh", "#!/bin/sh\nsleep 1\n#SBATCH --signal=B:USR1@60\n", None),
        ("sbatch job.sh", "#!/bin/sh\n\n# words\n#SBATCH --signal USR1  # why\n", USR1),
        ("sbatch --wrap='echo \"open", "#!/bin/sh\n#SBATCH --comment='x\n#SBATCH --signal=USR1", USR1),
        ("", "", None),
    ],
)
def test_the_command_line_wins(line: str, script: str, asked: RequestedSignal | None) -> None:
    assert requested_signal(line, script) == asked


class Answers:
    """Slurm's commands as a test says: the accounting knows the job after some questions, or never."""

    def __init__(self, *, known_after: int) -> None:
        self.questions_left = known_after
        self.signals: list[Sequence[str]] = []

    def text(self, command: str, *arguments: str) -> str:
        if command == "squeue" and "--jobs=7" in arguments:
            return "7 7_4\n9 7_1\n"
        if command == "squeue":
            assert arguments == ("-h", "-t", "FAILED", "-w", "burst[1-2]", "-o", "%A %N")
            return "7 burst1\n9 burst[2-3]\n"
        if command == "scancel":
            self.signals.append(arguments)
            return ""
        if command == "scontrol":
            return "#!/bin/sh\n#SBATCH --signal=TERM\n"
        self.questions_left -= 1
        return "" if self.questions_left >= 0 else "sbatch --signal=B:USR1@10 job.sh\n"


def test_a_job_that_the_accounting_does_not_know_yet_is_warned_when_it_does() -> None:
    answers = Answers(known_after=2)
    jobs = RunningJobs(cast("Any", answers))
    for _ in range(2):
        with pytest.raises(RetryLater, match="does not know job 7 yet"):
            jobs.warn(7)
    assert answers.signals == []
    assert jobs.warn(7) == "USR1"
    assert answers.signals == [("--signal=USR1", "--batch", "7_4")]  # 7 is the whole array


def test_a_job_that_the_accounting_never_knows_gets_the_signal_of_its_script() -> None:
    answers = Answers(known_after=1000)
    jobs = RunningJobs(cast("Any", answers))
    for _ in range(15):
        with pytest.raises(RetryLater):
            jobs.warn(7)
    assert jobs.warn(7) == "TERM"


def test_what_failed_on_nodes_is_asked_once_for_all_of_them() -> None:
    jobs = RunningJobs(cast("Any", Answers(known_after=0)))
    assert jobs.failed_on(["burst2", "burst1"]) == {7: ("burst1",), 9: ("burst2", "burst3")}


@pytest.mark.parametrize(
    "name", ["sim", "x Requeue=1 JobState=FAILED EndTime=5 Deadline=9", "a\nb JobState=FAILED "]
)
def test_no_name_of_a_job_forges_what_slurm_says_of_it(name: str) -> None:
    class Said:
        def text(self, command: str, *_: str) -> str:
            line = f"JobId=7 JobName={name} UserId=u(1) JobState=RUNNING Requeue=0 EndTime=100 Deadline=N/A"
            return f"{name}\n" if command == "squeue" else f"{line} Command=x Requeue=1\n"

    jobs = RunningJobs(cast("Any", Said()))
    assert jobs.end_of(7) == JobEnd(state="RUNNING", end_time=100.0, may_requeue=False)
    assert not jobs.has_deadline(7)
