"""The record that the advisor's rule keeps on a log: what a site's jobs have earned, and when it is known."""

from __future__ import annotations

import enum
import heapq
from typing import NamedTuple

from advisor.papers.placement.record import LossAllowance, RecordKeeper, RuleTerms, TrackRecord


class _Known(enum.IntEnum):
    """What is known of a job from some moment on."""

    STARTED = 0  # its wait here
    RAN = 1  # its run, in the cloud
    ENDED = 2  # both
    ENDED_BEFORE = 3  # both, of the site's history


class Outcome(NamedTuple):
    """How a job turns out: its submission, its wait and run time on-premise, its cost in the cloud; seconds.

    The cost is the boot, and the time by which the run is longer in the cloud.
    """

    submitted: float
    wait: float
    run: float
    cost: float

    @property
    def saved(self) -> float:
        """What the cloud saves it."""
        return self.wait - self.cost


class RecordInTime:
    """The record as time goes on: nothing is in it sooner than it could be known.

    Waits are known when the job starts here, or would have; runs when it has ended, wherever it is.

    Args:
        terms: Where likely begins, and what may be lost.
    """

    def __init__(self, terms: RuleTerms) -> None:
        self._keeper = RecordKeeper(terms.win_probability)
        self._allowance = LossAllowance(terms.loss_share)
        self._open = list[tuple[float, int, _Known, Outcome, float | None]]()
        self._time = 0.0

    @property
    def now(self) -> TrackRecord:
        """As of the last moment settled."""
        record = self._keeper.record
        left = self._allowance.left(self._time)
        return TrackRecord(
            bands=record.bands,
            at_risk_seconds=record.at_risk_seconds,
            may_lose_seconds=left + record.at_risk_seconds,
        )

    def settle(self, now: float) -> None:
        """Take in what was known before `now` (seconds)."""
        while self._open and self._open[0][0] < now:
            _, key, what, outcome, chance = heapq.heappop(self._open)
            if what is _Known.STARTED:
                self._allowance.waited(key, outcome.wait)
                continue
            if what is _Known.RAN:
                self._allowance.ran(key, outcome.cost)
                continue
            if what is _Known.ENDED:
                self._allowance.could_save(outcome.saved)
            if chance is not None:
                self._keeper.ended(key, outcome.saved, chance)
        self._time = now

    def submitted(self, key: int, outcome: Outcome, chance: float | None, *, counts: bool = True) -> None:
        """A job, to be known when it ends; `chance` is None for one that is no candidate.

        Where `counts` is False, what the cloud would have saved it allows no loss.
        """
        what = _Known.ENDED if counts else _Known.ENDED_BEFORE
        heapq.heappush(
            self._open, (outcome.submitted + outcome.wait + outcome.run, key, what, outcome, chance)
        )

    def moved(self, key: int, outcome: Outcome, worst_seconds: float) -> None:
        """A job risks so much until it ends."""
        self._keeper.moved(key, worst_seconds)
        self._allowance.moved(key, outcome.submitted, worst_seconds)
        for what, after in ((_Known.STARTED, outcome.wait), (_Known.RAN, outcome.run + outcome.cost)):
            heapq.heappush(self._open, (outcome.submitted + after, key, what, outcome, None))
