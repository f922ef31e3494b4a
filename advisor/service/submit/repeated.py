"""The answers to jobs that were moved, kept for jobs that say the same.

Who submits in a loop asks the same question again and again, and slurmctld waits each time while four
questions are worked out and their answers put into words, with cold caches. Where nothing that was known has
changed since but what moved jobs have taken, that alone is asked again
(:mod:`advisor.decide.submission.repeated`), and the answer is the same but for its id and time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from advisor.decide.submission.repeated import Moved, may_be_repeated
from advisor.history.records import AdviceRecord
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.site import SiteState
from advisor.service.exchange.protocol import AdviseReply, AdviseRequest
from advisor.service.submit.recent import Submission
from advisor.service.submit.state_holder import KnownNow

_MAX_KEPT: Final = 16


class Asked(msgspec.Struct, frozen=True, gc=False):
    """One question, and all that its answer may rest on."""

    request: AdviseRequest
    knowledge: KnownNow
    state: SiteState
    job: Job
    estimates: Estimates
    advice_id: str


class Answered(msgspec.Struct, frozen=True, gc=False):
    """One advice as given: the reply's content, the record for the ledger, what it does to the site."""

    reply: AdviseReply
    record: AdviceRecord
    submission: Submission


class _Kept(msgspec.Struct, frozen=True, gc=False):
    """An answer, what its advice rests on, and what else its reply does."""

    answered: Answered
    moved: Moved
    features: str | None


class RepeatedMoves:
    """Answers by the estimates they rest on, while the same is known. Its owner holds the lock."""

    def __init__(self) -> None:
        self._knowledge: KnownNow | None = None
        self._last: Estimates | None = None
        self._kept: dict[int, _Kept] = {}

    def keep(self, asked: Asked, answered: Answered, values: Mapping[str, float]) -> None:
        """Keep an answer that was just worked out, if it may be kept and two in a row have asked for it.

        Parameters
        ----------
        asked, answered
            The question and its answer.
        values : mapping
            The advice's ``values()``.
        """
        if asked.estimates is not self._last:
            # the first that says so: most are alone, and what is kept of them would be in the others' way
            self._last = asked.estimates
            return
        advice = answered.record.advice
        if not may_be_repeated(advice):
            return
        if asked.knowledge is not self._knowledge or len(self._kept) >= _MAX_KEPT:
            self._knowledge, self._kept = asked.knowledge, {}
        moved = Moved(advice, values, asked.job, asked.state, asked.estimates, asked.knowledge.settings)
        # by identity, for the estimates of jobs that say the same are one object (`kept_estimates`); it is
        # held here, so that no other can come to lie where it is
        self._kept[id(asked.estimates)] = _Kept(answered, moved, asked.request.features)

    def answer_to(self, asked: Asked) -> Answered | None:
        """Answer from what is kept; None where the answer is to be worked out."""
        kept = self._kept.get(id(asked.estimates))
        if kept is None or asked.knowledge is not self._knowledge:
            return None
        reply, advice = kept.answered.reply, kept.answered.record.advice
        comment, advice_id = reply.admin_comment, asked.advice_id
        # of a longer id the AdminComment might have to leave numbers out
        if comment is None or len(advice_id) != len(advice.advice_id):
            return None
        if asked.request.features != kept.features or not kept.moved.holds_for(asked.job, asked.state):
            return None
        time = asked.state.time
        return Answered(
            replace(
                reply,
                seq=asked.request.seq,
                id=advice_id,
                admin_comment=comment.replace(advice.advice_id, advice_id, 1),
            ),
            AdviceRecord(
                advice=replace(advice, advice_id=advice_id, time=time),
                job=asked.job,
                estimates=asked.estimates,
            ),
            replace(kept.answered.submission, time=time),
        )
