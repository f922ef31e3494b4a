"""The record that the advisor's rule keeps on a log: what a site's jobs have earned, and when it is known."""

from __future__ import annotations

import enum
import heapq
import math
from typing import NamedTuple

from advisor.decide.submission.placement import PlacementCase, as_case
from advisor.decide.submission.proven import candidate_chance
from advisor.decide.submission.record import LossAllowance, RecordKeeper
from advisor.decide.submission.table_row import job_of
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import PlacementSettings
from advisor.model.site import TrackRecord
from advisor.model.table import JobTable
from advisor.predict.forecast.forecast_rows import ForecastColumns, estimates_at
from advisor.predict.knn.fitness import Target


class _Known(enum.IntEnum):
    """What is known of a job from some moment on."""

    STARTED = 0  # its wait here
    RAN = 1  # its run, in the cloud
    ENDED = 2  # both
    ENDED_BEFORE = 3  # both, of the site's history


def case_of(job: Job, estimates: Estimates, placement: PlacementSettings) -> PlacementCase:
    """Give the placement rule's case of a job that has a forecast."""
    return as_case(
        processors=job.processors,
        requested_time=job.requested_time,
        estimates=estimates,
        boot=placement.boot_seconds,
        settings=placement,
    )


class Fate(NamedTuple):
    """What will turn out of a job: submission, wait and run here, and its cost in the cloud; seconds.

    The cost is the boot and what the run is longer there.
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
        settings: Where likely begins, and what may be lost.
    """

    def __init__(self, settings: PlacementSettings) -> None:
        self._keeper = RecordKeeper(settings.win_probability)
        self._allowance = LossAllowance(settings.loss_share)
        self._open = list[tuple[float, int, _Known, Fate, float | None]]()
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
            _, key, what, fate, chance = heapq.heappop(self._open)
            if what is _Known.STARTED:
                self._allowance.waited(key, fate.wait)
                continue
            if what is _Known.RAN:
                self._allowance.ran(key, fate.cost)
                continue
            if what is _Known.ENDED:
                self._allowance.could_save(fate.saved)
            if chance is not None:
                self._keeper.ended(key, fate.saved, chance)
        self._time = now

    def submitted(self, key: int, fate: Fate, chance: float | None, *, counts: bool = True) -> None:
        """A job, to be known when it ends; `chance` is None for one that is no candidate.

        Where `counts` is False, what the cloud would have saved it allows no loss.
        """
        what = _Known.ENDED if counts else _Known.ENDED_BEFORE
        heapq.heappush(self._open, (fate.submitted + fate.wait + fate.run, key, what, fate, chance))

    def moved(self, key: int, fate: Fate, worst_seconds: float) -> None:
        """A job risks so much until it ends."""
        self._keeper.moved(key, worst_seconds)
        self._allowance.moved(key, fate.submitted, worst_seconds)
        for what, after in ((_Known.STARTED, fate.wait), (_Known.RAN, fate.run + fate.cost)):
            heapq.heappush(self._open, (fate.submitted + after, key, what, fate, None))


def earned_by_candidates(
    table: JobTable, forecasts: dict[Target, ForecastColumns], placement: PlacementSettings
) -> RecordKeeper:
    """The record a site has earned with jobs of its history, none of which was moved.

    Args:
        table: The history.
        forecasts: Of rows in submission order; rows without a forecast earn nothing.
        placement: Overheads, boot time and the rule's settings.
    """
    keeper = RecordKeeper(placement.win_probability)
    waits, runs = table.first_wait, table.whole_run
    for index, row in enumerate(forecasts["wait"].rows.tolist()):
        estimates = estimates_at(forecasts, index)
        if estimates is None or math.isnan(waits[row]) or math.isnan(runs[row]):
            continue  # no forecast, or nobody knows what it saved: it was requeued, or cut short
        job = job_of(table, row)
        case = case_of(job, estimates, placement)
        chance = candidate_chance(case)
        if chance is not None:
            keeper.ended(row, float(waits[row]) - case.penalty_seconds(float(runs[row])), chance)
    return keeper
