"""The loop that asks again about waiting jobs, and moves those that should go to the cloud.

At a job's submission its wait is a forecast; later more is known. So the submit server is asked the same
question as inside ``sbatch`` about each job that still waits, and a job that it would move now is moved with
``scontrol update jobid= partition=``, which keeps its id. Each intent is on disk before it is acted upon, and
each step polls Slurm first, so that a kill at any point loses nothing and repeats nothing
(docs/designs/0010-waiting.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.submission.waiting import has_gate
from advisor.files.state_file import StateFile
from advisor.history.records import AdviceRecord
from advisor.model.advice import Mode, Placement
from advisor.model.errors import RetryLater
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.protocol import AdviseReply
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.running.isolating import for_each
from advisor.service.running.loops import Step
from advisor.service.state.records import Move, MovesUnderWay
from advisor.service.waiting.candidates import as_asked, may_be_asked, user_words
from advisor.slurm.protocol import QueuedJob, SlurmBackend, SlurmSnapshot

log = structlog.get_logger(__name__)

AskAdvice = Callable[[int], AdviceRecord | None]
"""Job id to the newest advice it was given; None while it is on its way to the ledger."""
AskAgain = Callable[[Job], AdviseReply]
"""Asks the submit server about a waiting job."""

_MAX_ASKED: Final = 200
"""Jobs asked about in a round: each takes about 0.3 ms of the submit server."""
_MAX_MOVED: Final = 20
_MUCH: Final = 1.25
"""Ratio of waiting processors, up or down, from which the queue has changed much."""
_MIN_SECONDS: Final = 30.0
_INTENT_SECONDS: Final = 600.0
"""An older intent is dropped, as its reasons may have changed; the job is asked about again."""


class AskingAgainLoop:
    """Asks about waiting jobs, records intents, and moves jobs.

    Args:
        advice: A job's newest advice, with its submission as the hook saw it.
        again: Asks the submit server about a job.
        state: Moves that are decided and not yet confirmed by a poll.
        paid_nodes: Number of free reserved nodes.
        prefers: Job id to its user's ``--prefer``, empty for none; squeue and the ledger do not have it.
    """

    name = "ask again"

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: SlurmBackend,
        view: SharedView,
        advice: AskAdvice,
        again: AskAgain,
        state: StateFile[MovesUnderWay],
        clock: Clock,
        paid_nodes: Callable[[], int] = lambda: 0,
        prefers: Callable[[int], str] = lambda _job_id: "",
    ) -> None:
        self._settings = settings
        self._slurm = slurm
        self._view = view
        self._advice = advice
        self._again = again
        self._state = state
        self._clock = clock
        self._paid_nodes = paid_nodes
        self._prefers = prefers
        self._moving = state.read().moving
        self._submitted: dict[str, Job] = {}  # by advice
        self._asked: dict[int, float] = {}  # monotonic seconds
        self._waiting = (
            0,
            -math.inf,
        )  # processors that waited when the queue had last changed much, and when
        self._would_move: set[int] = set()
        self.counts = {"asked": 0, "moved": 0, "given_up": 0}

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return max(self._settings.loops.snapshot_seconds, min(_MIN_SECONDS, self._period))

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("finish moves", self.finish), Step("ask waiting jobs", self.ask))

    @property
    def is_on(self) -> bool:
        """Whether waiting jobs are asked about: jobs wait by policy, or paid nodes might idle beside them.

        Without a gate a job stays because it is not surely faster in the cloud. Asking until the answer is
        yes would be another rule than the one whose record allows its stakes.
        """
        capacity, waiting = self._settings.capacity, self._settings.waiting
        is_gated = has_gate(waiting) or capacity.reserved_nodes > 0 or self._paid_nodes() > 0
        return waiting.ask_again_seconds > 0.0 and is_gated

    def report(self) -> Mapping[str, Any]:
        """What `advisor status` shows."""
        return {
            "on": self.is_on,
            "moving": len(self._moving),
            "would_move": len(self._would_move),
            **self.counts,
        }

    @property
    def _period(self) -> float:
        return self._settings.waiting.ask_again_seconds or _INTENT_SECONDS

    # --------------------------------------------------------------------------------------- finish

    def finish(self) -> None:
        """Repeat what a crash, or a slurmctld that did not answer, may have left undone."""
        if not self._moving:
            return
        snapshot = self._view.fresh()
        seen = {queued.job.job_id: queued for queued in snapshot.jobs}
        left: list[int] = []
        for job_id, intent in list(self._moving.items()):
            if snapshot.time <= intent.time:
                continue  # the snapshot is older than the intent
            queued = seen.get(job_id)
            if queued is not None and self._settings.cluster.burst_partition in queued.partitions:
                self.counts["moved"] += 1
                log.info("waiting.moved", job=job_id, advice=intent.advice_id)
                self._drop(job_id)
            elif queued is None or self._clock.wall() - intent.time > _INTENT_SECONDS:
                self._give_up(job_id, "it has ended" if queued is None else "the move was not done in time")
            else:
                left.append(job_id)
        if left:
            self._move(left)

    # ------------------------------------------------------------------------------------------ ask

    def ask(self) -> None:
        """Ask about the jobs that are due, longest unasked first; record the moves, then make them."""
        if not self.is_on:
            return
        snapshot = self._view.fresh()
        due = self._due(snapshot)
        going: list[int] = []
        is_over = False

        def ask(queued: QueuedJob) -> None:
            nonlocal is_over
            if is_over or len(going) >= _MAX_MOVED:
                return
            try:
                if self._goes(queued):
                    going.append(queued.job.job_id)
            except RetryLater:  # a submit server that hangs is not asked for 200 jobs
                is_over = True
                raise

        try:
            for_each(due, ask)
        finally:
            if going:
                self._move(going)

    def _due(self, snapshot: SlurmSnapshot) -> list[QueuedJob]:
        now = self._clock.monotonic()
        waiting = [q for q in snapshot.jobs if may_be_asked(q, self._settings) is not None]
        present = {queued.job.job_id for queued in waiting}
        self._asked = {job_id: time for job_id, time in self._asked.items() if job_id in present}
        self._would_move &= present
        known = {recorded.advice_id for q in waiting if (recorded := parse_admin_comment(q.admin_comment))}
        self._submitted = {advice: job for advice, job in self._submitted.items() if advice in known}
        if self._has_changed_much(snapshot, now):
            self._asked.clear()
        due = [q for q in waiting if q.job.job_id not in self._moving and self._is_due(q, now)]
        due.sort(key=lambda queued: (self._asked.get(queued.job.job_id, -math.inf), queued.job.submit_time))
        return due[:_MAX_ASKED]

    def _has_changed_much(self, snapshot: SlurmSnapshot, now: float) -> bool:
        fixed = set(self._settings.cluster.on_premise_partitions)
        processors = sum(
            queued.job.processors * queued.job.array_tasks
            for queued in snapshot.jobs
            if queued.is_queued and fixed & set(queued.partitions)
        )
        before, since = self._waiting
        if now - since < _MIN_SECONDS or before / _MUCH <= processors <= before * _MUCH:
            return False
        self._waiting = processors, now
        return True

    def _is_due(self, queued: QueuedJob, now: float) -> bool:
        asked = self._asked.get(queued.job.job_id)
        if asked is None:
            return True
        longest = self._settings.waiting.short_wait_seconds
        over = self._clock.wall() - queued.job.submit_time - longest  # since when it has waited b
        return now - asked >= self._period or (longest > 0.0 and 0.0 <= over < now - asked)

    def _goes(self, queued: QueuedJob) -> bool:
        """Ask about one job; True: it is to move, and that is on disk."""
        recorded = may_be_asked(queued, self._settings)
        job_id = queued.job.job_id
        submitted = None if recorded is None else self._submission(job_id, recorded.advice_id)
        now = self._clock.monotonic()
        if submitted is None:
            # its advice is on its way to the ledger; if it never arrives, other jobs are asked about first
            self._asked[job_id] = now - max(0.0, self._period - _MIN_SECONDS)
            return False
        self._asked[job_id] = now
        job = as_asked(queued, submitted)
        if job is None:
            return False
        reply = self._again(job)
        self.counts["asked"] += 1
        if reply.placement != Placement.BURST:
            return False
        if reply.partition is None or reply.mode != Mode.ACT:
            if job_id not in self._would_move:
                self._would_move.add(job_id)
                log.info("waiting.would_move", job=job_id, mode=reply.mode)
            return False
        changes = self._changes(job_id, reply)
        if changes is None:
            self.counts["given_up"] += 1
            log.info("waiting.not_moved", job=job_id, why="its user set --prefer")
            return False
        self._moving[job_id] = Move(
            advice_id=reply.id,
            was=list(queued.partitions),
            words=user_words(queued.job),
            changes=changes,
            time=self._clock.wall(),
        )
        try:
            self._write()
        except OSError:
            del self._moving[job_id]  # without an intent on disk the job is not moved
            raise
        return True

    def _submission(self, job_id: int, advice_id: str) -> Job | None:
        known = self._submitted.get(advice_id)
        if known is None:
            record = self._advice(job_id)
            if record is None or record.advice.advice_id != advice_id:
                return None
            known = self._submitted[advice_id] = record.job
        return known

    def _changes(self, job_id: int, reply: AdviseReply) -> dict[str, str] | None:
        """Arguments of ``scontrol update``: what the hook would have set inside ``sbatch``.

        The user's own preference stays. Slurm would use it instead of required features: None then.
        """
        has_own = bool((reply.features or reply.prefer) and self._prefers(job_id))
        if has_own and reply.features is not None:
            return None
        changes = {"partition": reply.partition or "", "admincomment": reply.admin_comment or ""}
        if reply.features is not None:
            changes["features"] = reply.features
        if reply.prefer is not None and not has_own:
            changes["prefer"] = reply.prefer
        if reply.time_limit is not None:
            most = [p.max_minutes for p in self._slurm.partitions() if p.name == reply.partition]
            limits = [minutes for minutes in (reply.time_limit, *most) if minutes is not None]
            changes["timelimit"] = str(min(limits))
        return changes

    # ----------------------------------------------------------------------------------------- move

    def _move(self, job_ids: Sequence[int]) -> None:
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
            elif user_words(queued.job) != intent.words:
                self._give_up(job_id, "it was changed, and is asked about again")
            else:
                self._slurm.update_job([job_id], intent.changes)

        for_each(job_ids, move)

    def _give_up(self, job_id: int, why: str) -> None:
        self.counts["given_up"] += 1
        log.info("waiting.not_moved", job=job_id, why=why)
        self._drop(job_id)

    def _drop(self, job_id: int) -> None:
        del self._moving[job_id]
        self._write()

    def _write(self) -> None:
        self._state.write(MovesUnderWay(moving=self._moving))


def asking_by_socket(settings: Settings) -> AskAgain:
    """Ask `advisor serve` on a new connection for each question, as it may restart at any time."""

    def ask(job: Job) -> AdviseReply:
        with SubmitClient(settings.paths.submit_socket) as client:
            return client.again(job)

    return ask
