"""The back end's advice of live jobs, on disk: a job of LSF has no place for it, as Slurm's AdminComment."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

import msgspec

from advisor.decide.explanation.admin_comment import RecordedAdvice, parse_admin_comment
from advisor.files.state_file import StateFile
from advisor.model.job_id import array_of

_KEPT_SECONDS: Final = 3600.0
"""For so long the advice of a job that has ended is kept: its record in lsb.acct has to be read by then."""


class KeptAdvice(msgspec.Struct):
    """The advice of a live job.

    Attributes:
        comment: The text that would be the job's AdminComment in Slurm.
        queue: The queue to which the job is being moved; empty once it is there, and for a job that stays.
        ended: Epoch seconds since which the job has not been live; 0 while it is. A job that is requeued is
            not live for some seconds.
    """

    comment: str
    queue: str = ""
    ended: float = 0.0


class AdviceOfLiveJobs(msgspec.Struct):
    """The advice of jobs that have not ended, or only just, by 64-bit id; an array's by the array's id."""

    jobs: dict[int, KeptAdvice] = {}


class AdviceBook:
    """Keeps the advice; each change is on disk before it returns. Not thread-safe."""

    def __init__(self, file: StateFile[AdviceOfLiveJobs]) -> None:
        self._file = file
        self._jobs = dict(file.read().jobs)

    @property
    def comments(self) -> dict[int, str]:
        """Job id to the text of its AdminComment; a job that is being moved has none yet."""
        return {job_id: kept.comment for job_id, kept in self._jobs.items() if not kept.queue}

    @property
    def moving(self) -> tuple[int, ...]:
        """Jobs that are being moved, or whose move was cut short."""
        return tuple(job_id for job_id, kept in self._jobs.items() if kept.queue)

    @property
    def advice_ids(self) -> dict[int, str]:
        """The id of each job's advice, those being moved included."""
        found = {job_id: parse_admin_comment(kept.comment) for job_id, kept in self._jobs.items()}
        return {job_id: recorded.advice_id for job_id, recorded in found.items() if recorded is not None}

    def keep(self, comments: Mapping[int, str], queues: Mapping[int, str]) -> None:
        """Keep the advice of jobs; `queues` are those to which some of them are about to be moved."""
        for job_id, comment in comments.items():
            self._jobs[job_id] = KeptAdvice(comment, queues.get(job_id, ""))
        if comments:
            self._write()

    def forget(self, job_id: int) -> None:
        """Forget a job's advice: it could not be moved, and is asked about again."""
        if self._jobs.pop(job_id, None) is not None:
            self._write()

    def advice_of(self, job_id: int) -> RecordedAdvice | None:
        """A job's advice, live or just ended; an element of an array has that of the array."""
        kept = self._jobs.get(job_id) or self._jobs.get(array_of(job_id))
        return None if kept is None else parse_admin_comment(kept.comment)

    def settle(self, live: Container[int], queues: Mapping[int, str], now: float) -> None:
        """Forget jobs that ended long ago; a move is done where the job is in the queue it was to go to.

        Args:
            live: Ids of the jobs that have not ended.
            queues: The queue of each.
            now: Epoch seconds.
        """
        settled: dict[int, KeptAdvice] = {}
        for job_id, one in self._jobs.items():
            is_live = job_id in live
            ended = 0.0 if is_live else one.ended or now
            is_there = bool(one.queue) and queues.get(job_id) == one.queue
            if now - (ended or now) <= _KEPT_SECONDS:
                settled[job_id] = KeptAdvice(one.comment, "" if is_there else one.queue, ended)
        if settled != self._jobs:
            self._jobs = settled
            self._write()

    def _write(self) -> None:
        self._file.write(AdviceOfLiveJobs(jobs=self._jobs))
