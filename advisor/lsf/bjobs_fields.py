"""Queue and description of waiting jobs as bjobs shows them, for releases of IBM LSF.

The records of changes (JOB_MODIFY2) in ``lsb.events`` are read in the order of volclava only. On a release of
IBM's a user's change of a waiting job is therefore taken from bjobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from advisor.lsf.commands import LsfCommands
from advisor.lsf.live_job import WAITING, LiveJob
from advisor.lsf.resource_request import gpus_of

BJOBS_ARGUMENTS: Final = (
    "-u",
    "all",
    "-p",
    "-json",
    "-o",
    "jobid jobindex queue job_description combined_resreq",
)
"""Arguments of bjobs for all waiting jobs."""
_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class BjobsRow:
    """The fields of one job as bjobs shows them; an empty description: the job has none.

    Attributes:
        gpus: ``ngpus_physical=1.00`` where the job, its application profile or its queue asks for GPUs.
    """

    queue: str
    description: str
    gpus: str = ""


def read_waiting(text: str) -> dict[tuple[int, int], BjobsRow]:
    """Parse the JSON of bjobs: (job id, array index) to row; a row that cannot be read is left out."""
    try:
        rows = json.loads(text)["RECORDS"]
    except (ValueError, KeyError, TypeError):
        return {}
    found = dict[tuple[int, int], BjobsRow]()
    for row in rows if isinstance(rows, list) else ():
        words = {name: str(value) for name, value in row.items()} if isinstance(row, Mapping) else {}
        job, index, queue = words.get("JOBID", ""), words.get("JOBINDEX") or "0", words.get("QUEUE", "")
        if job.isdecimal() and index.isdecimal() and queue and "JOB_DESCRIPTION" in words:
            description = words["JOB_DESCRIPTION"]
            gpus = gpus_of(words.get("COMBINED_RESREQ", ""))
            found[int(job), int(index)] = BjobsRow(queue, "" if description == "-" else description, gpus)
    return found


def with_bjobs(jobs: Iterable[LiveJob], shown: Mapping[tuple[int, int], BjobsRow]) -> tuple[LiveJob, ...]:
    """The jobs, with queue and description of waiting jobs of IBM LSF as bjobs shows them.

    A waiting job without a readable row counts as changed: its user's options are not known, and the advisor
    does not touch it.
    """
    return tuple(_completed(job, shown) if job.is_ibm_lsf and job.state in WAITING else job for job in jobs)


class BjobsOfWaiting:
    """Asks bjobs about all waiting jobs: where one is new, and every ten seconds. Not thread-safe.

    Args:
        monotonic: A clock in seconds.
    """

    def __init__(self, commands: LsfCommands, monotonic: Callable[[], float]) -> None:
        self._commands = commands
        self._monotonic = monotonic
        self._asked: set[tuple[int, int]] = set()
        self._asked_at = float("-inf")
        self._shown: Mapping[tuple[int, int], BjobsRow] = {}

    def completed(self, jobs: tuple[LiveJob, ...], *, fresh: bool) -> tuple[LiveJob, ...]:
        """The jobs; with `fresh` bjobs is asked now, because something is changed by the answer.

        Raises:
            RetryLater: LSF does not answer.
        """
        waiting = {(job.job_id, job.array_index) for job in jobs if job.is_ibm_lsf and job.state in WAITING}
        if not waiting:
            return jobs
        now = self._monotonic()
        if fresh or now - self._asked_at >= _SECONDS or not waiting <= self._asked:
            self._shown = read_waiting(self._commands.text("bjobs", *BJOBS_ARGUMENTS))
            self._asked, self._asked_at = waiting, now
        return with_bjobs(jobs, self._shown)


def _completed(job: LiveJob, shown: Mapping[tuple[int, int], BjobsRow]) -> LiveJob:
    row = shown.get((job.job_id, job.array_index))
    if row is None:
        return replace(job, is_changed=True, is_unshown=True)
    queue = job.queue if job.is_switched else row.queue  # bjobs may be some seconds behind
    return replace(job, queue=queue, description=row.description, gpus=row.gpus)
