"""Limits of the burst partition alone, at which slurmctld refuses a job, or holds it for ever."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from advisor.model.job import ANYBODY, Job
from advisor.model.periods import USER


def whose(payers: Iterable[str]) -> str:
    """A user in an account, by what a job's payers are."""
    return "\n".join(payers)


def counted_as(payers: tuple[str, ...]) -> tuple[str, ...]:
    """The keys by which a job counts."""
    return (ANYBODY, *payers, whose(payers)) if len(payers) > 1 else (ANYBODY, *payers)


class BurstLimits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Limits of the partition's own QOS, and of its users' associations. Infinite: no limit.

    Attributes:
        max_seconds: Time limit of a job.
        min_processors, min_nodes, max_processors, max_nodes, max_memory_mb: Of a job; MiB.
        max_jobs, max_jobs_of_user, max_jobs_of_account: Jobs that run or wait there, array tasks counted.
        max_jobs_of_association: The same of users who have an association for the partition, by `whose`.
        jobs: Those that do, of each payer (`Job.payers`), of all together (`ANYBODY`), and by `whose`.
        since: Those that were sent there since.
    """

    max_seconds: float = math.inf
    min_processors: float = 0.0
    min_nodes: float = 0.0
    max_processors: float = math.inf
    max_nodes: float = math.inf
    max_memory_mb: float = math.inf
    max_jobs: float = math.inf
    max_jobs_of_user: float = math.inf
    max_jobs_of_account: float = math.inf
    max_jobs_of_association: dict[str, float] = {}
    jobs: dict[str, int] = {}
    since: dict[str, int] = {}

    def keeps_out(self, job: Job) -> str:
        """Slurm's name of a limit that a job would exceed there; empty: it would exceed none."""
        return next(self._exceeded(job), "")

    def _exceeded(self, job: Job) -> Iterator[str]:
        nodes = job.nodes or 1
        if (job.requested_time or math.inf) > self.max_seconds:
            yield "MaxWall"
        if job.processors < self.min_processors or nodes < self.min_nodes:
            yield "MinTRES"
        if (
            job.processors > self.max_processors
            or nodes > self.max_nodes
            or (job.memory_mb or 0) > self.max_memory_mb
        ):
            yield "MaxTRES"
        if self._jobs_of(ANYBODY) + job.array_tasks > self.max_jobs:
            yield "GrpSubmitJobs"
        for payer in job.payers:
            is_user = payer.startswith(USER)
            most = self.max_jobs_of_user if is_user else self.max_jobs_of_account
            if self._jobs_of(payer) + job.array_tasks > most:
                yield "MaxSubmitJobsPerUser" if is_user else "MaxSubmitJobsPerAccount"
        association = whose(job.payers)
        most = self.max_jobs_of_association.get(association, math.inf)
        if self._jobs_of(association) + job.array_tasks > most:
            yield "MaxSubmitJobs"

    def _jobs_of(self, key: str) -> int:
        return self.jobs.get(key, 0) + self.since.get(key, 0)
