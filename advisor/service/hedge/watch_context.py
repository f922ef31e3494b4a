"""What the watch loop and its parts share: Slurm, the hedge entries, and what they ask others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.state.hedge_entries import HedgeRecord
from advisor.slurm.placeholders import Placeholders
from advisor.slurm.protocol import SlurmBackend


class SliceDecider(Protocol):
    """Decides about slices and promised jobs that keep a place (`advisor.service.price.slice_decider`)."""

    def next_stop(self, queued: QueuedJob, elapsed_seconds: float, placeholder: int) -> float | None:
        """The stop of a job's next slice, seconds in the cloud from its start there; None: it comes back."""
        ...

    def stays(
        self, queued: QueuedJob, elapsed_seconds: float, held_seconds: float, ran_seconds: float
    ) -> bool:
        """Whether a job whose slot on-premise has come runs to its end in the cloud instead.

        ``held_seconds`` are those to come for which the money is held already: the rest of its slice.
        ``ran_seconds`` are those of an earlier run in the cloud, which did not end it; 0: there was none.
        """
        ...

    def another_stop(self, queued: QueuedJob, ran_seconds: float) -> float | None:
        """The stop of a further run of a job that has come back, seconds there; None: it waits here."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchContext:
    """Made once, from which each part takes what it needs.

    Attributes:
        divider: Job id to the divider that its size class was decided with, seconds; NaN when it is unknown.
        slowdown: How many times longer a job runs in the cloud than on-premise.
        slices: Decides about slices; None where the policy is not the price.
        may_preempt: Whether a job in a partition may preempt others.
    """

    settings: Settings
    slurm: SlurmBackend
    places: Placeholders
    view: SharedView
    record: HedgeRecord
    clock: Clock
    divider: Callable[[int], float]
    slowdown: Callable[[QueuedJob], float]
    slices: Callable[[], SliceDecider | None] = lambda: None
    may_preempt: Callable[[Job, str], bool] = lambda _job, _home: False
