"""The loop that advises new jobs in the queue where slurmctld has no hook (``cluster.hook = false``).

The submit server answers the question that the hook asks inside ``sbatch``; the answer is set with
``scontrol update`` while the job is pending (docs/designs/0010-waiting.md). A job's AdminComment is the
record that it was advised: after a crash a job without one is asked about again, so that nothing of this loop
is kept on disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import structlog

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.model.errors import RetryLater, UseFallback
from advisor.model.job import Job
from advisor.model.scheduler import Scheduler
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING, Partition, SubmittedJob
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.protocol import AdviseReply
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature
from advisor.service.running.isolating import for_each
from advisor.service.running.loops import LoopRunner, Step
from advisor.service.waiting.candidates import user_words
from advisor.service.waiting.unadvised import (
    as_submitted,
    changes_here,
    changes_of,
    has_our_comment,
    is_unadvised,
    obstacle,
)
from advisor.slurm.parsing import default_memory

log = structlog.get_logger(__name__)

AskNew: TypeAlias = Callable[[Job], AdviseReply]
"""Asks the submit server about a job that was not advised before."""

_PERIOD_SECONDS: Final = 1.0
"""A job is advised within 5 s, with a round of up to 2 s before its own."""
_MAX_ASKED: Final = 300
"""Jobs advised in a round: about a second."""
_SOON_SECONDS: Final = 4.0
"""A younger job can still be advised in time."""
_MANY: Final = 50
_MAX_ROUNDS: Final = 5
"""After a round with many new jobs, as in a burst of submissions, the next one begins without a rest."""
_MAX_ATTEMPTS: Final = 3
_LIMITS_SECONDS: Final = 30.0
"""For so long the partitions' limits and defaults are taken as known."""


@dataclass(slots=True)
class _Advised:
    """A job that was advised, until a poll shows it.

    Attributes:
        is_accepted: Whether slurmctld has accepted it; its job may begin before the next poll.
    """

    words: str
    changes: dict[str, str]
    attempts: int = 0
    is_accepted: bool = False


class AdvisingLoop(Feature):
    """Advises new jobs.

    Args:
        session: Gives a way to ask; entered once a round.
        hedged: Called when a job that starts hedged was moved.
        join: Joins advice given at submission to jobs; None where there is no such advice.
        raises_limits: Whether a job's limit is raised with its move, and not once it runs.
    """

    name = "advise"
    period_seconds = _PERIOD_SECONDS
    steering = (name,)

    def __init__(
        self,
        *,
        slurm: Scheduler,
        clock: Clock,
        session: Callable[[], AbstractContextManager[AskNew]],
        hedged: Callable[[], None] = lambda: None,
        join: Callable[[], None] | None = None,
        raises_limits: bool = False,
    ) -> None:
        self._slurm = slurm
        self._clock = clock
        self._session = session
        self._hedged = hedged
        self._raises_limits = raises_limits
        self._join = join
        self._partitions: Mapping[str, Partition] = {}
        self._default_memory: tuple[int | None, int | None] = (None, None)  # slurm.conf's
        self._site_read_at = -math.inf  # monotonic seconds
        self._known: set[int] = set()
        self._advised: dict[int, _Advised] = {}
        self.advised = self.moved = self.left_alone = 0
        self.slowest_seconds = 0.0
        self.runners = (LoopRunner(self, clock),)

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        advise = Step("advise new jobs", self.advise)
        return (advise,) if self._join is None else (Step("join advice of submissions", self._join), advise)

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"advising": self.report()}

    def report(self) -> Mapping[str, Any]:
        """What `advisor status` shows."""
        return {
            "advised": self.advised,
            "moved": self.moved,
            "left_alone": self.left_alone,
            "slowest_seconds": self.slowest_seconds,
        }

    def advise(self) -> None:
        """Ask about the jobs that are new, and set the answers; at once again after many."""
        for _ in range(_MAX_ROUNDS):
            if self._advise() < _MANY:
                return

    def _advise(self) -> int:
        found = self._slurm.waiting(self._known)
        self._known &= found.keys()
        for job_id in [job_id for job_id in self._advised if job_id not in found]:
            gone = self._advised.pop(job_id)
            if gone.is_accepted:
                self._count(job_id, gone)
        new = self._new(found)
        if not new:
            return 0
        self._read_site()
        try:
            self._ask([job_id for job_id in new if job_id not in self._advised], new)
        finally:
            self._set({job_id: one for job_id, one in self._advised.items() if job_id in new}, new)
        return len(new)

    def _new(self, found: Mapping[int, SubmittedJob | None]) -> dict[int, SubmittedJob]:
        """Jobs without advice; those whose advice is seen are known from now on."""
        new: dict[int, SubmittedJob] = {}
        for job_id, one in found.items():
            if one is None:
                continue
            if is_unadvised(one.queued):
                new[job_id] = one
                continue
            self._known.add(job_id)
            advised = self._advised.pop(job_id, None)
            if advised is not None and has_our_comment(one.queued):
                self._count(job_id, advised)
        return new

    def _count(self, job_id: int, advised: _Advised) -> None:
        self.advised += 1
        if "partition" in advised.changes:
            self.moved += 1
            log.info("advise.moved", job=job_id)

    def _read_site(self) -> None:
        now = self._clock.monotonic()
        if now - self._site_read_at >= _LIMITS_SECONDS:
            self._partitions = {partition.name: partition for partition in self._slurm.partitions()}
            self._default_memory = default_memory(self._slurm.config())
            self._site_read_at = now

    # ------------------------------------------------------------------------------------------ ask

    def _ask(self, job_ids: Sequence[int], new: Mapping[int, SubmittedJob]) -> None:
        """Ask about those that come first, in the order of their submission.

        Raises:
            UseFallback: The server has refused to answer about a job; the others were asked about.
        """
        if not job_ids:
            return
        refused: UseFallback | None = None
        with self._session() as ask:
            for job_id in sorted(self._first(job_ids, new)):
                one = new[job_id]
                job = as_submitted(
                    one,
                    self._partitions,
                    default_memory=self._default_memory,
                    now=self._clock.wall(),
                )
                try:
                    reply = ask(job)
                except UseFallback as error:
                    refused = error
                    continue
                if reply.reason == Reason.STATE_UNKNOWN:
                    return  # the submit server has no snapshot yet
                changes = self._changes(one, job, reply)
                if changes is None:
                    self._leave(job_id)
                    continue
                self._advised[job_id] = _Advised(user_words(one.queued), changes)
                waited = self._clock.wall() - one.queued.job.submit_time
                self.slowest_seconds = max(self.slowest_seconds, waited)
        if refused is not None:
            raise refused

    def _first(self, job_ids: Sequence[int], new: Mapping[int, SubmittedJob]) -> list[int]:
        """The oldest that can be advised in time; then the newest, as there may be thousands from before."""
        since = self._clock.wall() - _SOON_SECONDS
        in_time = sorted(job_id for job_id in job_ids if new[job_id].queued.job.submit_time >= since)
        late = sorted(set(job_ids).difference(in_time), reverse=True)
        return [*in_time, *late][:_MAX_ASKED]

    def _changes(self, one: SubmittedJob, job: Job, reply: AdviseReply) -> dict[str, str] | None:
        """The fields to set; None: the job is not changed, as by the hook."""
        if reply.partition is None:
            return changes_here(reply, nice=one.nice)
        partition = self._partitions.get(reply.partition)
        why = obstacle(job, partition)
        asked = job.requested_time if self._raises_limits and job.explicit_time_limit else None
        changes = changes_of(reply, prefer=one.prefer, asked_seconds=asked, partition=partition)
        if why or changes is None:
            log.info("advise.left_alone", job=one.queued.job.job_id, why=why or "its user set --prefer")
            return None
        if one.queued.is_of_array:
            # as for an array inside `sbatch`; here one task may be all that is left
            changes.pop("prefer", None)
        return changes

    def _leave(self, job_id: int) -> None:
        self._advised.pop(job_id, None)
        self._known.add(job_id)
        self.left_alone += 1

    # ------------------------------------------------------------------------------------------ set

    def _set(self, advised: Mapping[int, _Advised], new: Mapping[int, SubmittedJob]) -> None:
        """Set what was answered; the next poll shows whether it is."""
        for job_id in [job_id for job_id, one in advised.items() if one.attempts >= _MAX_ATTEMPTS]:
            log.info("advise.left_alone", job=job_id, why="slurmctld refuses the change")
            self._leave(job_id)
        due = {job_id: one for job_id, one in advised.items() if job_id in self._advised}
        moving = {job_id: one for job_id, one in due.items() if "partition" in one.changes}
        unmoved = self._changed_since(moving, new) if moving else frozenset[int]()
        due = {job_id: one for job_id, one in due.items() if job_id not in unmoved}
        first = {job_id: one.changes for job_id, one in due.items() if not one.attempts}
        again = {job_id: one.changes for job_id, one in due.items() if one.attempts}
        for one in due.values():
            one.attempts += 1
        try:
            # each alone the second time, so that what is said is about that job
            for_each(again, lambda job_id: self._slurm.update_job([job_id], again[job_id]))
        finally:
            self._set_first(first)
            if any(_starts_hedged(one) for one in due.values()):
                self._hedged()

    def _set_first(self, changes: Mapping[int, Mapping[str, str]]) -> None:
        try:
            self._slurm.update_jobs(changes)
        except RetryLater as error:  # the next round sees which jobs it concerns
            log.info("advise.not_all_set", why=str(error))
            return
        for job_id in changes:
            self._advised[job_id].is_accepted = True

    def _changed_since(self, moving: Mapping[int, _Advised], new: Mapping[int, SubmittedJob]) -> set[int]:
        """Jobs that have begun or that their users have changed: they are not moved by this answer.

        Of an array no task may have begun: all of it moves, or nothing.
        """
        seen = self._slurm.waiting(self._known | (new.keys() - moving.keys()))
        begun: set[int] = set()
        rows = [new[job_id].queued for job_id in moving]
        if any(row.is_of_array or row.job.array_tasks > 1 for row in rows):
            jobs = self._slurm.snapshot(self._clock.wall()).jobs
            begun = {queued.array_job_id for queued in jobs if queued.state != PENDING}
        changed: set[int] = set()
        for job_id, one in moving.items():
            now, before = seen.get(job_id), new[job_id].queued
            if now is None or job_id in begun:
                self._leave(job_id)
                changed.add(job_id)
            elif user_words(now.queued) != one.words or now.queued.partitions != before.partitions:
                del self._advised[job_id]  # it is asked about as it is now
                changed.add(job_id)
        return changed


def _starts_hedged(advised: _Advised) -> bool:
    recorded = parse_admin_comment(advised.changes.get("admincomment"))
    return recorded is not None and recorded.hedge is not None


def session_by_socket(settings: Settings) -> Callable[[], AbstractContextManager[AskNew]]:
    """Ask `advisor serve`, a connection a round, as it may restart at any time."""

    @contextmanager
    def session() -> Iterator[AskNew]:
        with SubmitClient(settings.paths.submit_socket) as client:
            yield lambda job: client.again(job, is_new=True)

    return session
