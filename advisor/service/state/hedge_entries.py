"""The watch loop's stored state of hedged jobs. Each change is on disk before anything is done in Slurm.

A hedged job runs in the cloud while another job of its user, its placeholder, keeps its place in the
on-premise queue. Its slot is the on-premise start that becomes possible when the placeholder starts.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import structlog

from advisor.files.state_file import StateFile, good_entries

log = structlog.get_logger(__name__)

MAX_PLACES: Final = 20_000
"""Jobs that keep a place at once: each is one more job in slurmctld. Of further jobs only the stop holds."""


class Phase(enum.StrEnum):
    """The phase of a hedged start."""

    PLACING = "placing"  # the placeholder is about to be submitted, or was submitted
    OPEN = "open"  # the job is in the cloud, its placeholder in the on-premise queue
    RETURNING = "returning"  # the job is to be brought back, and may have been requeued already
    SETTLED = "settled"  # the outcome is decided; only the placeholder may still have to be cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgeEntry:
    """One hedged job and its placeholder.

    Attributes:
        advice_id: Id of the advice under which the job was submitted, the only id that is never used twice:
            a slurmctld that dies before it has stored a job gives that job's id to another one.
        kind: ``slice`` (time in the cloud bought by the price), ``speculation`` (Ambati et al. 2021) or
            ``promise`` (its user named a time).
        submitted: When the job was first submitted, epoch seconds; Slurm forgets it at a requeue.
        stop_seconds: Longest time in the cloud before the slot is available; None: no limit.
        ran_seconds: The longest time for which it ran in the cloud before it returned; 0: it has not.
        cloud_starts: How often it has been sent to the cloud.
        partition: The on-premise partition to which it was submitted.
        limit_seconds: The time limit that its user set; None: none.
        features: The user's own constraint, if the advisor has added a feature to it; None: nothing added.
        site_factor: The site factor (a term of Slurm's job priority) that the job would have on-premise.
        placeholder: Job id of the placeholder; 0: none.
        restarts: How often the job had been requeued before the advisor requeues it.
        is_requeued: Slurm was asked, or is about to be asked, to requeue the job.
        is_raised: The job waits on-premise again, behind its placeholder.
        priority: The job's priority at that moment; before it, the placeholder's at its submission.
        has_slot: The placeholder has started and its slot is being given to the job.
        in_place: The job waits on-premise and has got back the age that the requeue took from its priority.
        delay_seconds: The time by which the placeholder was submitted later than the job, for which its
            priority has not been raised yet; 0: it has.
        place_processors, place_nodes: Size of the placeholder at its submission, which its user may change
            later; 0: not known.
        place_limit_seconds: Time limit of the placeholder at its submission; None: none, or not known.
        tries_after: Epoch seconds before which no placeholder is submitted again, because the last attempt
            may still succeed.
        acted: Epoch seconds of the last change in Slurm (`is_shown`).
        why: The reason for which the job came back, or stays.
    """

    job_id: int
    advice_id: str
    kind: str
    submitted: float
    stop_seconds: float | None
    partition: str
    limit_seconds: float | None
    features: tuple[str, ...] | None
    site_factor: int
    phase: Phase = Phase.PLACING
    placeholder: int = 0
    restarts: int = 0
    ran_seconds: float = 0.0
    cloud_starts: int = 1
    is_requeued: bool = False
    is_raised: bool = False
    priority: int = 0
    has_slot: bool = False
    in_place: bool = False
    delay_seconds: float = 0.0
    place_processors: int = 0
    place_nodes: int = 0
    place_limit_seconds: float | None = None
    tries_after: float = 0.0
    acted: float = 0.0
    why: str = ""

    def is_shown(self, seen_at: float, now: float) -> bool:
        """Whether a snapshot of that moment shows the last change in Slurm; times in epoch seconds.

        A change in the future was made before the clock was set back.
        """
        return not seen_at <= self.acted <= now

    @property
    def only_waits(self) -> bool:
        """Whether the job waits here with its age restored, and its slot has not come."""
        return self.in_place and not self.has_slot


class HedgeEntries(msgspec.Struct):
    """All hedge entries, and counts of events since the first start.

    Each entry is decoded separately: an entry that this release does not understand affects no other job.
    """

    kept: list[msgspec.Raw] = []
    counts: dict[str, msgspec.Raw] = {}


class HedgeRecord:
    """All hedge entries, on disk. Used by one thread."""

    def __init__(self, state: StateFile[HedgeEntries]) -> None:
        self._state = state
        found = state.read()
        entries = good_entries(found.kept, HedgeEntry, "hedge.unreadable")
        self._kept: dict[int, HedgeEntry] = {kept.job_id: kept for kept in entries}
        self.counts: dict[str, int] = {
            name: count
            for name, raw in found.counts.items()
            for count in good_entries([raw], int, "hedge.unreadable")
        }

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._kept

    @property
    def is_full(self) -> bool:
        """Whether no further placeholder is to be submitted; entries are accepted: they hold a job's stop."""
        return len(self._kept) > MAX_PLACES

    def all(self) -> list[HedgeEntry]:
        """Every entry, the oldest first."""
        return list(self._kept.values())

    def put(self, kept: HedgeEntry, **changes: Any) -> HedgeEntry:
        """Store an entry with changes; when this returns it survives a power cut.

        Raises:
            OSError: It cannot be written: it stays as it was, or the next round would do in Slurm what is
                written nowhere.
        """
        kept = replace(kept, **changes)
        before, self._kept = self._kept, self._kept | {kept.job_id: kept}
        try:
            self._write()
        except Exception:
            self._kept = before
            raise
        return kept

    def count(self, what: str) -> None:
        """Count something that happened; written with the next change."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def drop(self, job_id: int) -> None:
        """Forget a job that has ended."""
        if self._kept.pop(job_id, None) is not None:
            self._write()

    def stop_of(self, job_id: int) -> float | None:
        """A job's stop, seconds in the cloud; infinite for a job that stays there; None without an entry."""
        kept = self._kept.get(job_id)
        if kept is None:
            return None
        is_open = kept.phase is not Phase.SETTLED and kept.stop_seconds is not None
        return kept.stop_seconds if is_open else math.inf

    def _write(self) -> None:
        self._state.write(
            HedgeEntries(
                kept=[msgspec.Raw(msgspec.json.encode(kept)) for kept in self._kept.values()],
                counts={name: msgspec.Raw(b"%d" % count) for name, count in self.counts.items()},
            )
        )
