"""Waiting jobs that are moved to the cloud: each intent is on disk before Slurm is told.

Each step polls Slurm first, so that a kill at any point loses nothing and repeats nothing
(docs/designs/0010-waiting.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog
from msgspec import structs

from advisor.files.state_file import StateFile
from advisor.model.job import Job
from advisor.model.scheduler import Scheduler
from advisor.model.settings import Settings
from advisor.model.snapshot import Partition, QueuedJob
from advisor.service.exchange.protocol import AdviseReply
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.running.isolating import for_each
from advisor.service.state.records import Move, MovesUnderWay
from advisor.service.waiting.candidates import may_be_asked, user_words
from advisor.service.waiting.unadvised import changes_of, obstacle

log = structlog.get_logger(__name__)

_INTENT_SECONDS: Final = 600.0
"""An older intent is dropped, as its reasons may have changed; the job is asked about again."""


class Moves:
    """Records intents and moves jobs.

    Args:
        prefers: Job id to its user's ``--prefer``, empty for none; squeue and the ledger do not have it.
        raises_limits: Whether a job's limit is raised with its move, and not once it runs.

    Attributes:
        moved, given_up: Jobs since the start.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: Scheduler,
        view: SharedView,
        state: StateFile[MovesUnderWay],
        clock: Clock,
        prefers: Callable[[int], str] = lambda _job_id: "",
        raises_limits: bool = False,
    ) -> None:
        self._settings = settings
        self._slurm = slurm
        self._view = view
        self._state = state
        self._clock = clock
        self._prefers = prefers
        self._raises_limits = raises_limits
        self._moving = state.read().moving
        self._told: set[int] = set()  # jobs whose move slurmctld has accepted
        self._partitions: tuple[float, tuple[Partition, ...]] = (0.0, ())  # as of this poll, epoch seconds
        self.moved = self.given_up = 0

    def __len__(self) -> int:
        return len(self._moving)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._moving

    def foreseen(self, jobs: Sequence[QueuedJob]) -> Sequence[QueuedJob]:
        """The queue as it is once the moves under way are made; for any thread.

        A poll that falls between an advice and its move shows the job here: its money must not be free.
        """
        moving = self._moving.copy()
        return [_as_moved(queued, moving.get(queued.job.job_id)) for queued in jobs] if moving else jobs

    def finish(self) -> None:
        """Repeat what a crash, or a slurmctld that did not answer, may have left undone."""
        if not self._moving:
            return
        snapshot = self._view.fresh()
        seen = {queued.job.job_id: queued for queued in snapshot.jobs}
        left: list[int] = []
        for job_id, intent in list(self._moving.items()):
            if snapshot.time <= intent.time <= self._clock.wall():
                continue  # the snapshot is older than the intent, unless the clock was set back
            queued = seen.get(job_id)
            # a short job may have ended before a poll sees it in its new partition
            is_there = queued is not None and self._settings.cluster.burst_partition in queued.partitions
            if is_there or (queued is None and job_id in self._told):
                self.moved += 1
                log.info("waiting.moved", job=job_id, advice=intent.advice_id)
                self._drop(job_id)
            elif queued is None or self._clock.wall() - intent.time > _INTENT_SECONDS:
                self._give_up(job_id, "it has ended" if queued is None else "the move was not done in time")
            else:
                left.append(job_id)
        if left:
            self.make(left)

    def intend(self, queued: QueuedJob, job: Job, reply: AdviseReply) -> bool:
        """Write down that a waiting job is to move as a reply says; ``job``: as it was asked about.

        False: its user's words forbid it, or it would never start there, as an admin has closed the partition
        or changed its limits; slurmctld does not refuse such a move.
        """
        job_id = queued.job.job_id
        partition = self._partition(reply.partition)
        why, changes = obstacle(job, partition), self._changes(queued, reply, partition)
        if why or changes is None:
            self.given_up += 1
            log.info("waiting.not_moved", job=job_id, why=why or "its user set --prefer")
            return False
        self._moving[job_id] = Move(
            advice_id=reply.id,
            was=list(queued.partitions),
            words=user_words(queued),
            changes=changes,
            time=self._clock.wall(),
        )
        try:
            self._write()
        except OSError:
            del self._moving[job_id]  # without an intent on disk the job is not moved
            raise
        return True

    def _partition(self, name: str | None) -> Partition | None:
        """Find a partition as it is now; Slurm is asked once a poll."""
        polled = self._view.fresh().time
        if self._partitions[0] != polled:
            self._partitions = polled, self._slurm.partitions()
        return next((each for each in self._partitions[1] if each.name == name), None)

    def _changes(
        self, queued: QueuedJob, reply: AdviseReply, partition: Partition | None
    ) -> dict[str, str] | None:
        goes = bool(reply.features or reply.prefer)
        return changes_of(
            reply,
            prefer=self._prefers(queued.job.job_id) if goes else "",
            asked_seconds=(queued.job.requested_time or 0.0) if self._raises_limits else None,
            partition=partition,
        )

    def make(self, job_ids: Sequence[int]) -> None:
        """Move the jobs that still wait unchanged by a new poll.

        slurmctld refuses a job that starts at this moment: only a pending job's partition can be changed.
        """
        snapshot = self._slurm.snapshot(self._clock.wall())
        seen = {queued.job.job_id: queued for queued in snapshot.jobs}

        def move(job_id: int) -> None:
            intent, queued = self._moving[job_id], seen.get(job_id)
            if queued is None or may_be_asked(queued, self._settings) is None:
                self._give_up(job_id, "it has started, is held, or has ended")
            elif list(queued.partitions) != intent.was:
                self._give_up(job_id, "its partition was changed")
            elif user_words(queued) != intent.words:
                self._give_up(job_id, "it was changed, and is asked about again")
            else:
                self._slurm.update_job([job_id], intent.changes)
                self._told.add(job_id)

        for_each(job_ids, move)

    def _give_up(self, job_id: int, why: str) -> None:
        self.given_up += 1
        log.info("waiting.not_moved", job=job_id, why=why)
        self._drop(job_id)

    def _drop(self, job_id: int) -> None:
        del self._moving[job_id]
        self._told.discard(job_id)
        self._write()

    def _write(self) -> None:
        self._state.write(MovesUnderWay(moving=self._moving))


def _as_moved(queued: QueuedJob, intent: Move | None) -> QueuedJob:
    if intent is None or list(queued.partitions) != intent.was:
        return queued
    there, comment = intent.changes["partition"], intent.changes.get("admincomment", "")
    job = structs.replace(queued.job, queue=there)
    return replace(queued, job=job, partitions=(there,), admin_comment=comment)
