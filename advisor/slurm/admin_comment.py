"""The AdminComment of one job: the only thread from a job back to its advice that Slurm keeps itself."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.decide.admin_comment import RecordedAdvice, parse_admin_comment
from advisor.model.errors import AdvisorError, BadInput
from advisor.slurm.commands import Commands


def recorded_advice(commands: Commands, job_id: int) -> RecordedAdvice | None:
    """What a job's AdminComment says of its advice; None when Slurm does not know the job or it has none.

    slurmctld is asked first (the job waits, runs or has just ended), then the accounting.

    Raises
    ------
    BadInput
        Slurm's commands are not there.
    """
    for line in _lines(commands, job_id):
        if (recorded := parse_admin_comment(line.strip())) is not None:
            return recorded
    return None


def _lines(commands: Commands, job_id: int) -> Iterator[str]:
    job = str(job_id)
    queries = (
        ("squeue", "--noheader", "--states=all", f"--jobs={job}", "--Format=admin_comment:4096"),
        ("sacct", "--noheader", "--allocations", "--parsable2", "--format=AdminComment", f"--jobs={job}"),
    )
    for name, *arguments in queries:
        try:
            answer = commands.text(name, *arguments)
        except BadInput:
            raise
        except AdvisorError:  # a job id nobody knows any more, or no accounting at this site
            continue
        yield from answer.splitlines()
