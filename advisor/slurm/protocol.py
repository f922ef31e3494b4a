"""The interface to Slurm that the control loops use."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from advisor.model.snapshot import PENDING, ClusterSnapshot, Partition, SubmittedJob

_WAITING: Final = {"EXPEDITING": PENDING}
"""What a pending job shows from 25.11 on that its node has failed, if it has ``--requeue=expedite``."""


def state_of(shown: str) -> str:
    """The state that a row of squeue shows, in the words of 22.05; an unknown one is kept."""
    return _WAITING.get(shown.strip(), shown.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingExport:
    """sacct's output, for ``advisor.history.ingest.ingest_sacct``."""

    fields: tuple[str, ...]
    delimited_by: str
    lines: Iterator[str]


class SlurmBackend(Protocol):
    """The queries and commands that the advisor sends to Slurm.

    Every method raises RetryLater when Slurm does not answer, refuses, or its answer cannot be read (codes
    ``slurm.timeout``, ``slurm.command_failed``, ``slurm.unreadable``, ``slurm.too_long``); the caller then
    does nothing. BadInput (``slurm.no_command``): Slurm's commands are not installed.
    """

    def snapshot(self, now: float) -> ClusterSnapshot:
        """Jobs and nodes, one query each; ``now`` is the epoch time at which it begins."""
        ...

    def waiting(self, known: Container[int]) -> Mapping[int, SubmittedJob | None]:
        """Jobs that wait, by id; None for those that are known, of which nothing but the id is read."""
        ...

    def accounting(
        self, since: float, until: float | None = None
    ) -> AbstractContextManager[AccountingExport]:
        """Ended jobs, for ``advisor.history.ingest.ingest_sacct``; times are epoch seconds."""
        ...

    def update_node(
        self,
        nodes: Collection[str],
        *,
        state: str | None = None,
        reason: str | None = None,
        address: str | None = None,
        hostname: str | None = None,
        weight: int | None = None,
        features: Sequence[str] | None = None,
    ) -> None:
        """Change nodes."""
        ...

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        """Change jobs; `changes` are names and values of ``scontrol update job``."""
        ...

    def update_jobs(self, changes: Mapping[int, Mapping[str, str]]) -> None:
        """Change waiting jobs by id, all that can be; then raise what was said of one that could not.

        A poll shows which were changed: one call of Slurm changes many, and does not tell.
        """
        ...

    def requeue(self, job_ids: Collection[int]) -> None:
        """Requeue jobs; they keep their ids."""
        ...

    def release(self, job_ids: Collection[int]) -> None:
        """Release held jobs."""
        ...

    def ping(self) -> bool:
        """Whether a slurmctld answers."""
        ...

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions."""
        ...

    def config(self) -> Mapping[str, str]:
        """Values of ``scontrol show config`` by name."""
        ...

    def is_administrator(self, user: str) -> bool:
        """Whether the accounting makes a user Operator or Administrator."""
        ...

    def version(self) -> tuple[int, ...]:
        """Slurm's release, e.g. ``(22, 5, 8)``."""
        ...
