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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecordInSlurm:
    """The data of slurmctld or of the accounting about a job.

    Attributes:
        recorded: The advice in its AdminComment; None when there is none.
        het_job_id: The id that the parts of a heterogeneous job share.
    """

    is_known: bool = False
    recorded: RecordedAdvice | None = None
    het_job_id: int | None = None


def record_in_slurm(commands: Commands, job: str) -> JobRecordInSlurm:
    """Ask slurmctld (for a job that waits, runs or has just ended), then the accounting.

    Args:
        job: The job as Slurm writes it, without a step: ``95``, ``95_2``, ``97+1``.

    Raises:
        BadInput: Slurm's commands are not installed.
    """
    known, het_job_id = False, None
    for found_id, comment in _answers(commands, job):
        known, het_job_id = True, het_job_id or found_id
        if (recorded := parse_admin_comment(comment.strip())) is not None:
            return JobRecordInSlurm(is_known=True, recorded=recorded, het_job_id=het_job_id)
        if het_job_id is not None:
            break
    return JobRecordInSlurm(is_known=known, het_job_id=het_job_id)


def _answers(commands: Commands, job: str) -> Iterator[tuple[int | None, str]]:
    """HetJobID (None for other jobs) and AdminComment of each part or array task."""
    columns = f"HetJobID:{_ID_WIDTH},admin_comment:4096"
    for line in _lines(
        commands, "squeue", "--noheader", "--states=all", f"--jobs={job}", f"--Format={columns}"
    ):
        yield records.whole(line[:_ID_WIDTH]) or None, line[_ID_WIDTH:]
    options = ("--noheader", "--allocations", "--parsable2", "--format=JobID,AdminComment")
    for line in _lines(commands, "sacct", *options, f"--jobs={job}"):
        name, bar, comment = line.partition("|")
        if bar:
            het_job_id, plus, _ = name.partition("+")
            yield records.whole(het_job_id) if plus else None, comment


def _lines(commands: Commands, name: str, *arguments: str) -> Iterator[str]:
    try:
        answer = commands.text(name, *arguments)
    except BadInput:
        raise
    except AdvisorError:  # an unknown job id, or no accounting at this site
        return
    yield from filter(str.strip, answer.splitlines())
