"""The advice of live jobs, on disk: LSF has no place for it in the job, as Slurm has the AdminComment."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from advisor.files.state_file import StateFile


class KeptAdvice(msgspec.Struct):
    """The advice of a live job.

    Attributes:
        comment: What its AdminComment would be.
        queue: Where it is being moved; empty once it is there, and for a job that stays.
    """

    comment: str
    queue: str = ""


class AdviceOfLiveJobs(msgspec.Struct):
    """The advice of the jobs that have not ended, by 64-bit id; an array's by the array's id."""

    jobs: dict[int, KeptAdvice] = {}


class AdviceBook:
    """Keeps the advice; each change is on disk before it returns. Not thread-safe."""

    def __init__(self, file: StateFile[AdviceOfLiveJobs]) -> None:
        self._file = file
        self._jobs = dict(file.read().jobs)

    @property
    def comments(self) -> dict[int, str]:
        """What AdminComments would be; a job that is being moved has none yet."""
        return {job_id: kept.comment for job_id, kept in self._jobs.items() if not kept.queue}

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

    def settle(self, live: Container[int], queues: Mapping[int, str]) -> None:
        """Forget jobs that have ended; a move is done where the job is in the queue it was to go to.

        Args:
            live: Ids of the jobs that have not ended.
            queues: The queue of each.
        """
        kept = {job_id: one for job_id, one in self._jobs.items() if job_id in live}
        done = [job_id for job_id, one in kept.items() if one.queue and queues.get(job_id) == one.queue]
        if not done and len(kept) == len(self._jobs):
            return
        self._jobs = kept | {job_id: KeptAdvice(kept[job_id].comment) for job_id in done}
        self._write()

    def _write(self) -> None:
        self._file.write(AdviceOfLiveJobs(jobs=self._jobs))
