"""What the watch loop asks of the part of Slurm that keeps places."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from advisor.slurm.placeholders import PlaceholderRequest
from advisor.slurm.protocol import JobView, QueuedJob


class PlaceKeeper(Protocol):
    """What the loop asks of :class:`advisor.slurm.placeholders.Placeholders`."""

    def view(self, job_id: int) -> JobView | None:
        """A job as it is now."""
        ...

    def killed(self, job_id: int) -> JobView | None:
        """A job that a signal ended, as long as it is known."""
        ...

    def submitted_by(self, users: Collection[int], partition: str) -> tuple[QueuedJob, ...]:
        """Some users' jobs in a partition; everybody's where none is named."""
        ...

    def prepare(self) -> None:
        """Be ready for `reserve`."""
        ...

    def reserve(self, wish: PlaceholderRequest) -> int:
        """Submit a placeholder."""
        ...

    def place(self, placeholder: int, job_id: int) -> JobView | None:
        """A job's placeholder as it is now."""
        ...

    def cancel(self, placeholder: int, job_id: int) -> None:
        """End a job's placeholder."""
        ...

    def raise_priority(self, job_id: int, *, by: int, to: int | None) -> None:
        """Set a waiting job's place."""
        ...

    def age_points(self, seconds: float) -> int:
        """Priority gained by waiting so long."""
        ...

    @property
    def knows_site_factors(self) -> bool:
        """Whether priorities are made of factors."""
        ...

    @property
    def may_requeue_booting(self) -> bool:
        """Whether a job whose cloud node still boots can be requeued without harm."""
        ...

    @property
    def recalculation_seconds(self) -> float:
        """How often priorities are reckoned anew."""
        ...
