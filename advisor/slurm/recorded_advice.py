"""Find a job's advice in its AdminComment, and whether the job is heterogeneous, for `advisor why`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from advisor.decide.explanation.admin_comment import RecordedAdvice, parse_admin_comment
from advisor.model.errors import AdvisorError, BadInput
from advisor.slurm import records
from advisor.slurm.commands import Commands

_WIDTH: Final = 64


@dataclass(frozen=True, slots=True)
class JobRecordInSlurm:
    """The data of slurmctld or of the accounting about a job.

    Attributes:
        recorded: The advice in its AdminComment; None when there is none.
        het_job_id: The id that the parts of a heterogeneous job share.
        submit_time: Of a job in its first run that slurmctld knows, epoch seconds.
        partition: Of one that slurmctld knows.
    """

    is_known: bool = False
    recorded: RecordedAdvice | None = None
    het_job_id: int | None = None
    submit_time: float | None = None
    partition: str | None = None


def record_in_slurm(commands: Commands, job: str, *, has_ended: bool = True) -> JobRecordInSlurm:
    """Ask slurmctld (for a job that waits, runs or has just ended), then the accounting.

    Args:
        has_ended: Whether it may have ended longer ago: else the accounting is not asked.
        job: The job as Slurm writes it, without a step: ``95``, ``95_2``, ``97+1``.

    Raises:
        BadInput: Slurm's commands are not installed.
    """
    found = JobRecordInSlurm()
    for one in _answers(commands, job, has_ended=has_ended):
        found = replace(one, het_job_id=found.het_job_id or one.het_job_id)
        if found.recorded is not None or found.het_job_id is not None:
            break
    return found


def _answers(commands: Commands, job: str, *, has_ended: bool) -> Iterator[JobRecordInSlurm]:
    """The record of each part or array task."""
    columns = ("HetJobID", "SubmitTime", "RestartCnt", "Partition", "admin_comment")
    asked = ",".join(f"{name}:{_WIDTH if name != columns[-1] else 4096}" for name in columns)
    for line in _lines(
        commands, "squeue", "--noheader", "--states=all", f"--jobs={job}", f"--Format={asked}"
    ):
        leader, submitted, restarts, partition = (
            line[at : at + _WIDTH] for at in range(0, 4 * _WIDTH, _WIDTH)
        )
        submit_time = None if records.whole(restarts) else records.whole(submitted)
        yield _record(line[4 * _WIDTH :], records.whole(leader), submit_time, records.text(partition.strip()))
    if not has_ended:
        return
    options = ("--noheader", "--allocations", "--parsable2", "--format=JobID,AdminComment")
    for line in _lines(commands, "sacct", *options, f"--jobs={job}"):
        name, bar, comment = line.partition("|")
        if bar:
            het_job_id, plus, _ = name.partition("+")
            yield _record(comment, records.whole(het_job_id) if plus else None)


def _record(
    comment: str, leader: int | None, submit_time: float | None = None, partition: str | None = None
) -> JobRecordInSlurm:
    return JobRecordInSlurm(
        True, parse_admin_comment(comment.strip()), leader or None, submit_time, partition
    )


def _lines(commands: Commands, name: str, *arguments: str) -> Iterator[str]:
    try:
        answer = commands.text(name, *arguments)
    except BadInput:
        raise
    except AdvisorError:  # an unknown job id, or no accounting at this site
        return
    yield from filter(str.strip, answer.splitlines())
