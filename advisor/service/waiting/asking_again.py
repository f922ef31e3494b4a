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
from advisor.service.state.records import MovesUnderWay
from advisor.service.waiting.candidates import as_asked, may_be_asked
from advisor.service.waiting.moving import Moves
from advisor.service.waiting.queue_change import MIN_SECONDS, QueueChange
from advisor.slurm.protocol import QueuedJob, SlurmBackend, SlurmSnapshot

log = structlog.get_logger(__name__)

AskAdvice = Callable[[int], AdviceRecord | None]
"""Job id to the newest advice it was given; None while it is on its way to the ledger."""
AskAgain = Callable[[Job], AdviseReply]
"""Asks the submit server about a waiting job."""

_MAX_ASKED: Final = 200
"""Jobs asked about in a round: each takes about 0.3 ms of the submit server."""
_MAX_MOVED: Final = 20
_PERIOD_SECONDS: Final = 600.0
"""Where the settings ask no job again, moves are still finished."""


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
        self._view = view
        self._advice = advice
        self._again = again
        self._clock = clock
        self._paid_nodes = paid_nodes
        self._moves = Moves(settings, slurm=slurm, view=view, state=state, clock=clock, prefers=prefers)
        self._submitted: dict[str, Job] = {}  # by advice
        self._asked: dict[int, float] = {}  # monotonic seconds
        self._change = QueueChange()
        self._would_move: set[int] = set()
        self.asked = 0

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return max(self._settings.loops.snapshot_seconds, min(MIN_SECONDS, self._period))

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("finish moves", self._moves.finish), Step("ask waiting jobs", self.ask))

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
            "moving": len(self._moves),
            "would_move": len(self._would_move),
            "asked": self.asked,
            "moved": self._moves.moved,
            "given_up": self._moves.given_up,
        }

    @property
    def _period(self) -> float:
        return self._settings.waiting.ask_again_seconds or _PERIOD_SECONDS

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
                self._moves.make(going)

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
        due = [q for q in waiting if q.job.job_id not in self._moves and self._is_due(q, now)]
        due.sort(key=lambda queued: (self._asked.get(queued.job.job_id, -math.inf), queued.job.submit_time))
        return due[:_MAX_ASKED]

    def _has_changed_much(self, snapshot: SlurmSnapshot, now: float) -> bool:
        fixed = set(self._settings.cluster.on_premise_partitions)
        processors = sum(
            queued.job.processors * queued.job.array_tasks
            for queued in snapshot.jobs
            if queued.is_queued and fixed & set(queued.partitions)
        )
        return self._change.is_much(processors, now)

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
            self._asked[job_id] = now - max(0.0, self._period - MIN_SECONDS)
            return False
        self._asked[job_id] = now
        job = as_asked(queued, submitted)
        if job is None:
            return False
        reply = self._again(job)
        self.asked += 1
        if reply.placement != Placement.BURST:
            return False
        if reply.partition is None or reply.mode != Mode.ACT:
            if job_id not in self._would_move:
                self._would_move.add(job_id)
                log.info("waiting.would_move", job=job_id, mode=reply.mode)
            return False
        return self._moves.intend(queued, reply)

    def _submission(self, job_id: int, advice_id: str) -> Job | None:
        known = self._submitted.get(advice_id)
        if known is None:
            record = self._advice(job_id)
            if record is None or record.advice.advice_id != advice_id:
                return None
            known = self._submitted[advice_id] = record.job
        return known


def asking_by_socket(settings: Settings) -> AskAgain:
    """Ask `advisor serve` on a new connection for each question, as it may restart at any time."""

    def ask(job: Job) -> AdviseReply:
        with SubmitClient(settings.paths.submit_socket) as client:
            return client.again(job)

    return ask
