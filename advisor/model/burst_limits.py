"""Limits of the burst and of a job's own partition, for question 1: slurmctld refuses a job or holds it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from advisor.model.job import ANYBODY, Job
from advisor.model.node_classes import gpu_count
from advisor.model.periods import USER

PerResource: TypeAlias = tuple[float, float, float, float]
UNLIMITED: Final[PerResource] = (math.inf,) * 4


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
        min_processors, min_nodes: Of a job.
        max_of_job, max_of_node, max_resource_seconds: Of a job, on a node, and times its time limit:
            processors, nodes, memory in MiB, GPUs.
        max_jobs, max_jobs_of_user, max_jobs_of_account: Jobs that run or wait there, array tasks counted.
        max_jobs_of_association: The same of users who have an association for the partition, by `whose`.
        jobs: Those that do, of each payer (`Job.payers`), of all together (`ANYBODY`), and by `whose`.
        since: Those that were sent there since.
        home: The same of on-premise partitions with a QOS of their own: a job that is over these limits could
            not come home. Only limits of a job's size count.
    """

    max_seconds: float = math.inf
    min_processors: float = 0.0
    min_nodes: float = 0.0
    max_of_job: PerResource = UNLIMITED
    max_of_node: PerResource = UNLIMITED
    max_resource_seconds: PerResource = UNLIMITED
    max_jobs: float = math.inf
    max_jobs_of_user: float = math.inf
    max_jobs_of_account: float = math.inf
    max_jobs_of_association: dict[str, float] = {}
    jobs: dict[str, int] = {}
    since: dict[str, int] = {}
    home: dict[str, BurstLimits] = {}

    def keeps_out(self, job: Job) -> str:
        """Slurm's name of a limit that a job would exceed there; empty: it would exceed none."""
        return next(self._exceeded(job), "")

    def _exceeded(self, job: Job) -> Iterator[str]:
        yield from self.exceeded_by_size(job, job.requested_time or math.inf)
        yield from self._exceeded_by_number(job)
        if self.home and not job.qos:  # one that its user named may lift a limit of the partition's
            names = (job.queue or "").split(",")
            at_home = [self._exceeded_at_home(name, job) for name in names]
            if all(at_home):
                yield f"{at_home[0]} of the partition {names[0]}"

    def _exceeded_at_home(self, partition: str, job: Job) -> str:
        own = self.home.get(partition)
        # Slurm gives a job without a time limit what the limits leave
        return "" if own is None else next(own.exceeded_by_size(job, job.requested_time or 0.0), "")

    def exceeded_by_size(self, job: Job, seconds: float) -> Iterator[str]:
        """Slurm's names of the limits of a job alone that it exceeds with this time limit."""
        nodes = job.nodes or 1
        if seconds > self.max_seconds:
            yield "MaxWall"
        if job.processors < self.min_processors or nodes < self.min_nodes:
            yield "MinTRES"
        takes = job.processors, nodes, job.memory_mb or 0, nodes * gpu_count(job.gres) if job.gres else 0
        for limit, most, times in (
            ("MaxTRES", self.max_of_job, 1.0),
            ("MaxTRESPerNode", self.max_of_node, 1.0 / nodes),
            ("MaxTRESMins", self.max_resource_seconds, seconds),
        ):
            if any(taken and taken * times > each for taken, each in zip(takes, most, strict=True)):
                yield limit

    def _exceeded_by_number(self, job: Job) -> Iterator[str]:
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
