"""The interface to a scheduler that the control loops use for what Slurm and LSF both have."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Protocol, TypedDict, Unpack

from advisor.model.snapshot import ClusterSnapshot, Partition, Reservation, SubmittedJob


class NodeChange(TypedDict, total=False):
    """A change of nodes, in the words of ``scontrol update node``."""

    state: str
    reason: str
    address: str
    hostname: str
    weight: int
    features: Sequence[str]


class Scheduler(Protocol):
    """The queries and commands that the advisor sends to a scheduler.

    Every method raises RetryLater when the scheduler does not answer, refuses, or its answer cannot be read
    (codes ``slurm.timeout``, ``slurm.command_failed``, ``slurm.unreadable``, ``slurm.too_long``, and the same
    with ``lsf``); the caller then does nothing. BadInput (``slurm.no_command``): its commands are not
    installed.
    """

    def snapshot(self, now: float) -> ClusterSnapshot:
        """Jobs and nodes, one query each; ``now`` is the epoch time at which it begins."""
        ...

    def waiting(self, known: Container[int]) -> Mapping[int, SubmittedJob | None]:
        """Jobs that wait, by id; None for those that are known, of which nothing but the id is read."""
        ...

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        """Change jobs; `changes` are names and values of ``scontrol update job``."""
        ...

    def update_jobs(self, changes: Mapping[int, Mapping[str, str]]) -> None:
        """Change waiting jobs by id; if some cannot be changed, raise the refusal of one after all others.

        Which jobs were changed only the next poll shows, because one call of Slurm changes many.
        """
        ...

    def requeue(self, job_ids: Collection[int]) -> None:
        """Requeue jobs that run; they keep their ids. No job that has ended by now is run again."""
        ...

    def release(self, job_ids: Collection[int]) -> None:
        """Release held jobs."""
        ...

    def ping(self) -> bool:
        """Whether it answers."""
        ...

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions."""
        ...

    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations of nodes."""
        ...

    def config(self) -> Mapping[str, str]:
        """Values of ``scontrol show config`` by name; under LSF those of them that are known."""
        ...


class CloudScheduler(Scheduler, Protocol):
    """A scheduler whose cloud nodes come and go by us."""

    def requeue_ended(self, job_ids: Collection[int]) -> None:
        """Run jobs again that have failed with their node; they keep their ids."""
        ...

    def update_node(self, nodes: Collection[str], **change: Unpack[NodeChange]) -> None:
        """Change nodes; all of them get one address."""
        ...
