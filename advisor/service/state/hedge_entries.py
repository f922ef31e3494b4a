"""Jobs that keep a place on-premise, and how far each is: written down before anything is done about them."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import structlog

from advisor.files.state_file import StateFile, good_entries

log = structlog.get_logger(__name__)

_MOST: Final = 20_000


class Phase(enum.StrEnum):
    """How far a hedge is."""

    PLACING = "placing"  # a placeholder is wanted, and may have been submitted
    OPEN = "open"  # the job is in the cloud, its placeholder in the queue
    RETURNING = "returning"  # the job is to be brought back, and may have been requeued
    SETTLED = "settled"  # decided; only the placeholder may still have to go


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgeEntry:
    """One job and its place.

    Attributes:
        advice_id: The advice it was submitted under: the only id that is never given twice. A slurmctld that
            dies before it wrote a job down gives that job's id to another.
        kind: ``slice`` or ``speculation``.
        submitted: When the job was first submitted, epoch seconds: a requeue forgets it.
        stop_seconds: Longest stay in the cloud before the slot comes; None: no limit.
        features: Its user's constraint, where ours was added to it.
        site_factor: What the job would have had on-premise.
        placeholder: Id of the job that keeps the place; 0: none.
        restarts: How often the job had been requeued before we do it.
        is_requeued: Slurm was asked to requeue it, or is about to be.
        is_raised: It waits here, behind its placeholder.
        priority: What it then had; before that, what its placeholder had when it was submitted.
        has_slot: Its placeholder's slot is being handed to it.
        in_place: It waits here, and has the age that the requeue took.
        delay_seconds: By so much its placeholder is younger than the job, and has not yet been given for it.
        place_processors, place_nodes: What its placeholder asked for when it was submitted; 0: not known. Its
            user may change it.
        place_limit_seconds: Time limit of its placeholder then; None: none, or not known.
        tries_after: Epoch seconds before which no placeholder is submitted again: the last attempt may yet
            succeed.
        acted: Epoch seconds of the last thing done; an older look at Slurm says nothing about it.
        why: Why it came back, or stays.
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


class HedgeEntries(msgspec.Struct):
    """All hedge entries, and counts since the first start.

    Each entry is decoded by itself: one that a release does not understand costs no other job its place.
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
        """Whether no further job is taken in."""
        return len(self._kept) >= _MOST

    def all(self) -> list[HedgeEntry]:
        """Every job, in the order they came."""
        return list(self._kept.values())

    def put(self, kept: HedgeEntry, **changes: Any) -> HedgeEntry:
        """Write down a job's state; when this returns it survives a power cut."""
        kept = replace(kept, **changes)
        self._kept[kept.job_id] = kept
        self._write()
        return kept

    def count(self, what: str) -> None:
        """Count something that happened; written with the next change."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def drop(self, job_id: int) -> None:
        """Forget a job that has ended."""
        if self._kept.pop(job_id, None) is not None:
            self._write()

    def stop_of(self, job_id: int) -> float | None:
        """A job's stop, seconds in the cloud, infinite for one that stays; None: it has no entry."""
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
