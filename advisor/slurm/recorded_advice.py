"""Find a job's advice in its AdminComment, and whether the job is heterogeneous, for `advisor why`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from advisor.decide.explanation.admin_comment import RecordedAdvice, parse_admin_comment
from advisor.model.errors import AdvisorError, BadInput
from advisor.slurm import records
from advisor.slurm.commands import Commands

_ID_WIDTH: Final = 24


@dataclass(frozen=True, slots=True)
class JobRecordInSlurm:
    """The data of slurmctld or of the accounting about a job.

    Attributes:
        recorded: The advice in its AdminComment; None when there is none.
        het_job_id: The id that the parts of a heterogeneous job share.
        submit_time: Of a job in its first run that slurmctld knows, epoch seconds.
    """

    is_known: bool = False
    recorded: RecordedAdvice | None = None
    het_job_id: int | None = None
    submit_time: float | None = None


def record_in_slurm(commands: Commands, job: str, *, has_ended: bool = True) -> JobRecordInSlurm:
    """Ask slurmctld (for a job that waits, runs or has just ended), then the accounting.

    Args:
        has_ended: Whether it may have ended longer ago: else the accounting is not asked.
        job: The job as Slurm writes it, without a step: ``95``, ``95_2``, ``97+1``.

    Raises:
        BadInput: Slurm's commands are not installed.
    """
    known, het_job_id, submit_time = False, None, None
    for found_id, submitted, comment in _answers(commands, job, has_ended=has_ended):
        known, het_job_id, submit_time = True, het_job_id or found_id, submit_time or submitted
        if (recorded := parse_admin_comment(comment.strip())) is not None:
            return JobRecordInSlurm(True, recorded, het_job_id, submit_time)
        if het_job_id is not None:
            break
    return JobRecordInSlurm(known, None, het_job_id, submit_time)


def _answers(
    commands: Commands, job: str, *, has_ended: bool
) -> Iterator[tuple[int | None, float | None, str]]:
    """HetJobID (None for other jobs), submission and AdminComment of each part or array task."""
    columns = ("HetJobID", "SubmitTime", "RestartCnt", "admin_comment")
    asked = ",".join(f"{name}:{_ID_WIDTH if name != 'admin_comment' else 4096}" for name in columns)
    for line in _lines(
        commands, "squeue", "--noheader", "--states=all", f"--jobs={job}", f"--Format={asked}"
    ):
        leader, submitted, restarts = (
            records.whole(line[at : at + _ID_WIDTH]) for at in range(0, 3 * _ID_WIDTH, _ID_WIDTH)
        )
        yield leader or None, None if restarts else submitted, line[3 * _ID_WIDTH :]
    if not has_ended:
        return
    options = ("--noheader", "--allocations", "--parsable2", "--format=JobID,AdminComment")
    for line in _lines(commands, "sacct", *options, f"--jobs={job}"):
        name, bar, comment = line.partition("|")
        if bar:
            het_job_id, plus, _ = name.partition("+")
            yield records.whole(het_job_id) if plus else None, None, comment


def _lines(commands: Commands, name: str, *arguments: str) -> Iterator[str]:
    try:
        answer = commands.text(name, *arguments)
    except BadInput:
        raise
    except AdvisorError:  # an unknown job id, or no accounting at this site
        return
    yield from filter(str.strip, answer.splitlines())
