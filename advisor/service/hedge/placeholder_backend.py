"""The operations on placeholders and priorities that the watch loop needs of Slurm."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from advisor.model.snapshot import JobView, QueuedJob
from advisor.slurm.placeholders import PlaceholderRequest


class PlaceholderBackend(Protocol):
    """The part of :class:`advisor.slurm.placeholders.Placeholders` that the loop uses."""

    def view(self, job_id: int) -> JobView | None:
        """A job as it is now."""
        ...

    def killed(self, job_id: int) -> JobView | None:
        """A job that a signal ended, while slurmctld still knows it."""
        ...

    def submitted_by(self, users: Collection[int], partition: str) -> tuple[QueuedJob, ...]:
        """Jobs of some users (uids) in a partition; of all users where ``users`` is empty."""
        ...

    def prepare(self) -> None:
        """Open what `reserve` needs, so that it is fast."""
        ...

    def reserve(self, request: PlaceholderRequest) -> int:
        """Submit a placeholder; return its id."""
        ...

    def place(self, placeholder: int, job_id: int) -> JobView | None:
        """A job's placeholder as it is now."""
        ...

    def cancel(self, placeholder: int, job_id: int) -> None:
        """Cancel a job's placeholder."""
        ...

    def raise_priority(self, job_id: int, *, by: int, to: int | None) -> None:
        """Set a pending job's site factor to ``by``; without site factors, its priority to ``to``."""
        ...

    def age_points(self, seconds: float) -> int:
        """Priority gained by waiting for so many seconds."""
        ...

    @property
    def knows_site_factors(self) -> bool:
        """Whether Slurm computes priorities from factors (priority/multifactor)."""
        ...

    @property
    def may_requeue_booting(self) -> bool:
        """Whether a job whose cloud node still boots can be requeued safely."""
        ...

    @property
    def recalculation_seconds(self) -> float:
        """Period in which Slurm recalculates priorities (PriorityCalcPeriod)."""
        ...
