"""The loop that asks again about waiting jobs under the waiting policy (Ambati et al. 2021).

At a job's submission its wait is a forecast; later more is known. So the submit server is asked the same
question as inside ``sbatch`` about each job that still waits, and a job that it would move now is moved with
``scontrol update jobid= partition=``, which keeps its id. Each intent is on disk before it is acted upon, and
each step polls Slurm first, so that a kill at any point loses nothing and repeats nothing
(docs/designs/0010-waiting.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from advisor.decide.submission.waiting import has_gate
from advisor.model.settings import Settings
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature
from advisor.service.running.loops import LoopRunner, Step
from advisor.service.waiting.asking import Asking
from advisor.service.waiting.candidates import may_be_asked
from advisor.service.waiting.queue_change import MIN_SECONDS, QueueChange

_MAX_ASKED: Final = 200
"""The largest number of jobs to ask about in a round; each takes about 0.3 ms of the submit server."""
_PERIOD_SECONDS: Final = 600.0
"""The period if the settings ask about no job again; moves that have begun are still finished."""


class AskingAgainLoop(Feature):
    """Asks about waiting jobs every few minutes, after large changes of the queue, and after a wait of b."""

    name = "ask again"
    steering = (name,)

    def __init__(self, settings: Settings, *, view: SharedView, asking: Asking, clock: Clock) -> None:
        self._settings = settings
        self._view = view
        self._asking = asking
        self._moves = asking.moves
        self._clock = clock
        self._asked: dict[int, float] = {}  # monotonic seconds
        self._change = QueueChange()
        self.runners = (LoopRunner(self, clock),)

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return max(self._settings.loops.snapshot_seconds, min(MIN_SECONDS, self._period))

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("finish moves", self._moves.finish), Step("ask waiting jobs", self.ask))

    @property
    def is_on(self) -> bool:
        """Whether waiting jobs are asked about, which the policy's settings t and b decide."""
        waiting = self._settings.waiting
        return waiting.ask_again_seconds > 0.0 and has_gate(waiting)

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"asking_again": self.report()}

    def report(self) -> Mapping[str, Any]:
        """The loop's fields of `advisor status`."""
        return {"on": self.is_on, **self._asking.report()}

    @property
    def _period(self) -> float:
        return self._settings.waiting.ask_again_seconds or _PERIOD_SECONDS

    # ------------------------------------------------------------------------------------------ ask

    def ask(self) -> None:
        """Ask about the jobs that are due, longest unasked first; record the moves, then make them."""
        if not self.is_on:
            return
        snapshot = self._view.fresh()
        self._asking.move(((queued.job.job_id, queued) for queued in self._due(snapshot)), self._goes)

    def _due(self, snapshot: ClusterSnapshot) -> list[QueuedJob]:
        now = self._clock.monotonic()
        waiting = [q for q in snapshot.jobs if may_be_asked(q, self._settings) is not None]
        present = {queued.job.job_id for queued in waiting}
        self._asked = {job_id: time for job_id, time in self._asked.items() if job_id in present}
        self._asking.forget_all_but(present)
        if self._has_changed_much(snapshot, now):
            self._asked.clear()
        due = [q for q in waiting if q.job.job_id not in self._moves and self._is_due(q, now)]
        due.sort(key=lambda queued: (self._asked.get(queued.job.job_id, -math.inf), queued.job.submit_time))
        return due[:_MAX_ASKED]

    def _has_changed_much(self, snapshot: ClusterSnapshot, now: float) -> bool:
        here = set(self._settings.cluster.on_premise_partitions)
        processors = sum(
            queued.job.processors * queued.job.array_tasks
            for queued in snapshot.jobs
            if queued.is_queued and here & set(queued.partitions)
        )
        return self._change.is_much(processors, now)

    def _is_due(self, queued: QueuedJob, now: float) -> bool:
        asked = self._asked.get(queued.job.job_id)
        if asked is None:
            return True
        longest = self._settings.waiting.short_wait_seconds
        over = self._clock.wall() - queued.job.submit_time - longest  # when it had waited b
        return now - asked >= self._period or (longest > 0.0 and 0.0 <= over < now - asked)

    def _goes(self, queued: QueuedJob) -> bool:
        now, job_id = self._clock.monotonic(), queued.job.job_id
        # where no answer comes, or its advice never arrives in the ledger, other jobs are asked about first
        self._asked[job_id] = now - max(0.0, self._period - MIN_SECONDS)
        goes = self._asking.goes(queued)
        if goes is not None:
            self._asked[job_id] = now
        return bool(goes)
