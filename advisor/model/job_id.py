"""Job ids as Slurm writes them: ``95``, ``95_2``, ``95_[1-4]``, ``97+1``, ``94.0``, ``94.batch``.

An element of an array of LSF is a job of its own: ``95[2]``, which in 64 bits is index * 2**32 + job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from advisor.model.errors import BadInput

_LARGEST: Final = 2**63 - 1
_JOB_ID: Final = re.compile(
    r"(?P<job>[1-9][0-9]{0,18})"
    r"(?:_(?P<task>[0-9]{1,9})|_\[(?P<tasks>[0-9][0-9,:%.-]*)\]|\+(?P<part>[0-9]{1,9})"
    r"|\[(?P<element>[1-9][0-9]{0,8})\])?"
    r"(?:\.(?P<step>[0-9]{1,10}(?:\+[0-9]{1,9})?|batch|extern|interactive))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobId:
    """A job, or a part of one.

    Attributes:
        job: The job; of an array its own number, which all its tasks share; of a heterogeneous job its
            HetJobID.
        name: The job, task or part as Slurm's commands take it, without a step: steps are never placed by
            themselves.
        part: One component of a heterogeneous job, counted from 0.
    """

    job: int
    name: str
    task: int | None = None
    part: int | None = None


def array_of(job_id: int) -> int:
    """The array of LSF of which a job is an element; the job itself, if it is none."""
    return job_id & 0xFFFFFFFF


def job_name(job_id: int) -> str:
    """A job as the commands of its scheduler take it.

    Examples:
        >>> job_name(95), job_name(2 * 2**32 + 95)
        ('95', '95[2]')
    """
    index, job = job_id >> 32, array_of(job_id)
    return f"{job}[{index}]" if index else f"{job}"


def parse_job_id(text: str, *, where: str) -> JobId:
    """Read a job's id.

    Args:
        where: The argument or field, for the message.

    Raises:
        BadInput: Slurm writes no job so (``job.id``).
    """
    match = _JOB_ID.fullmatch(text.strip())
    if match is None or int(match["job"]) > _LARGEST:
        raise BadInput(
            f"{text[:60]!r} is no job id",
            where=where,
            mend="Write it as Slurm does: 95, a task of an array 95_2, waiting tasks 95_[1-4], a part of a "
            "heterogeneous job 97+1, a step 94.0; or as LSF does: 95, an element of an array 95[2]",
            code="job.id",
        )
    task, part = (None if match[name] is None else int(match[name]) for name in ("task", "part"))
    suffix = f"_{task}" if task is not None else f"+{part}" if part is not None else ""
    job = int(match["element"] or 0) << 32 | int(match["job"])
    return JobId(job=job, name=f"{job_name(job)}{suffix}", task=task, part=part)
