"""Ask the submit server again about one waiting job: the same question as inside ``sbatch``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias, TypeVar

import structlog

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.history.records import AdviceRecord
from advisor.model.advice import Mode, Placement
from advisor.model.errors import RetryLater
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.protocol import AdviseReply
from advisor.service.running.isolating import for_each
from advisor.service.waiting.candidates import as_asked
from advisor.service.waiting.moving import Moves

log = structlog.get_logger(__name__)

AskAdvice: TypeAlias = Callable[[int], AdviceRecord | None]
"""Job id to the newest advice it was given; None until the ledger has it."""
AskAgain: TypeAlias = Callable[[Job, float | None, float | None], AdviseReply]
"""Asks the submit server about a waiting job, with its waits from now on, seconds: by the run times that are
expected of the jobs before it, and by their time limits."""

Item = TypeVar("Item")

MAX_MOVED: Final = 20
"""Jobs moved in a round: each takes a call of scontrol."""


class Asking:
    """Asks about waiting jobs and records the moves.

    Attributes:
        asked: Jobs since the start.
    """

    def __init__(self, moves: Moves, *, advice: AskAdvice, again: AskAgain) -> None:
        self.moves = moves
        self._advice = advice
        self._again = again
        self._submitted: dict[int, tuple[str, Job]] = {}  # with the advice's id
        self._would_move: set[int] = set()
        self.asked = 0

    def report(self) -> dict[str, int]:
        """What `advisor status` shows."""
        return {
            "moving": len(self.moves),
            "would_move": len(self._would_move),
            "asked": self.asked,
            "moved": self.moves.moved,
            "given_up": self.moves.given_up,
        }

    def forget_all_but(self, job_ids: Collection[int]) -> None:
        """Forget jobs that no longer wait."""
        self._would_move.intersection_update(job_ids)
        self._submitted = {job_id: known for job_id, known in self._submitted.items() if job_id in job_ids}

    def goes(
        self, queued: QueuedJob, wait_seconds: float | None = None, planned_wait_seconds: float | None = None
    ) -> bool | None:
        """Ask about a job; True: it is to move, and that is on disk.

        Returns:
            None where it is too soon: its advice is not in the ledger, or the submit server has no snapshot.

        Raises:
            RetryLater: The submit server does not answer.
        """
        job_id = queued.job.job_id
        submitted = self._submission(queued)
        if submitted is None:
            return None
        job = as_asked(queued, submitted)
        if job is None:
            return False
        reply = self._again(job, wait_seconds, planned_wait_seconds)
        self.asked += 1
        if reply.reason == Reason.STATE_UNKNOWN:
            return None
        if reply.placement != Placement.BURST:
            self._would_move.discard(job_id)
            return False
        if reply.partition is None or reply.mode != Mode.ACT:
            if job_id not in self._would_move:
                self._would_move.add(job_id)
                log.info("waiting.would_move", job=job_id, mode=reply.mode)
            return False
        return self.moves.intend(queued, job, reply)

    def move(
        self,
        jobs: Iterable[tuple[int, Item]],
        goes: Callable[[Item], bool],
        *,
        skip: Callable[[int], object] = lambda _job_id: None,
    ) -> None:
        """Ask about jobs in turn and move those that go; at most ``MAX_MOVED``.

        A submit server that hangs is not asked for hundreds of jobs: after one RetryLater no other is asked.

        Args:
            skip: Called with a job about which no advice is asked.
        """
        going: list[int] = []
        is_over = False

        def ask(numbered: tuple[int, Item]) -> None:
            nonlocal is_over
            job_id, job = numbered
            if is_over or len(going) >= MAX_MOVED:
                skip(job_id)
                return
            try:
                if goes(job):
                    going.append(job_id)
            except RetryLater:
                is_over = True
                raise

        try:
            for_each(jobs, ask)
        finally:
            if going:
                self.moves.make(going)

    def _submission(self, queued: QueuedJob) -> Job | None:
        recorded, job_id = parse_admin_comment(queued.admin_comment), queued.job.job_id
        if recorded is None:
            return None
        known = self._submitted.get(job_id)
        if known is None or known[0] != recorded.advice_id:
            record = self._advice(job_id)
            if record is None or record.advice.advice_id != recorded.advice_id:
                return None
            known = self._submitted[job_id] = (recorded.advice_id, record.job)
        return known[1]


def asking_by_socket(settings: Settings) -> AskAgain:
    """Ask `advisor serve` on a new connection for each question, as it may restart at any time."""

    def ask(job: Job, wait_seconds: float | None, planned_seconds: float | None) -> AdviseReply:
        with SubmitClient(settings.paths.submit_socket) as client:
            return client.again(job, wait_seconds, planned_seconds)

    return ask
