"""The advisor's own rule on a log: what it sends, and the record it keeps on the way."""

from __future__ import annotations

import enum
import heapq
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.decide.submission.advise import advise
from advisor.decide.submission.placement import PlacementCase, as_case
from advisor.decide.submission.proven import candidate_chance, worst_seconds
from advisor.decide.submission.record import LossAllowance, RecordKeeper
from advisor.decide.submission.table_row import job_of
from advisor.model.advice import Placement
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import PlacementSettings, Settings
from advisor.model.site import SiteState, TrackRecord
from advisor.model.table import JobTable
from advisor.predict.forecast.forecast_rows import ForecastColumns, estimates_at
from advisor.predict.knn.fitness import Target
from advisor.predict.knn.tracker import StateColumns

Booleans = NDArray[np.bool_]


class _Known(enum.IntEnum):
    """What is known of a job from some moment on."""

    STARTED = 0  # its wait here
    RAN = 1  # its run, in the cloud
    ENDED = 2  # both
    ENDED_BEFORE = 3  # both, of the site's history


def sent_by_the_advisor(
    table: JobTable,
    states: StateColumns,
    forecasts: dict[Target, ForecastColumns],
    placement: PlacementSettings,
    first: int = 0,
) -> Booleans:
    """Where the advisor's rule sends the forecast rows: True for the cloud.

    Rows are advised one by one through `advisor.decide.submission.advise`. The record takes in each
    candidate when it has ended (on-premise, as the log says), so that nothing is known earlier than it was.

    Parameters
    ----------
    table : JobTable
        The whole log.
    states : StateColumns
        What each row met.
    forecasts : dict
        Of rows in submission order; rows without a forecast stay.
    placement : PlacementSettings
        Overheads and the rule's settings; the boot time must be 0 or the log's waits are not comparable.
    first : int
        Position of the first row that may be moved. Those before are the site's history: they earn the
        record, but nothing that may be lost (:class:`~advisor.decide.submission.record.LossAllowance`).
    """
    rows = forecasts["wait"].rows
    settings = Settings(placement=placement)
    record = RecordInTime(placement)
    sent = np.zeros(len(rows), dtype=bool)
    for index, row in enumerate(rows.tolist()):
        now, run = float(table.submit[row]), float(table.run[row])
        record.settle(now)
        estimates = estimates_at(forecasts, index)
        job = job_of(table, row)
        cost = placement.boot_seconds + (placement.performance_ratio(job.processors) - 1.0) * run
        fate = Fate(now, max(0.0, float(table.wait[row])), run, cost)
        case, chance = None, None
        if estimates is not None:
            case = _case(job, estimates, placement)
            chance = candidate_chance(case)
        record.submitted(row, fate, chance, counts=index >= first)
        if case is None or estimates is None or chance is None or index < first:
            continue
        state = SiteState(time=now, cluster=states.state(row), record=record.now)
        advice = advise(job, state, estimates, settings, advice_id="replay")
        if advice.placement is Placement.BURST:
            sent[index] = True
            record.moved(row, fate, worst_seconds(case))
    return sent


def _case(job: Job, estimates: Estimates, placement: PlacementSettings) -> PlacementCase:
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

    Parameters
    ----------
    settings : PlacementSettings
        Where likely begins, and what may be lost.
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

    Parameters
    ----------
    table : JobTable
        The history.
    forecasts : dict
        Of rows in submission order; rows without a forecast earn nothing.
    placement : PlacementSettings
        Overheads, boot time and the rule's settings.
    """
    keeper = RecordKeeper(placement.win_probability)
    waits, runs = table.first_wait, table.whole_run
    for index, row in enumerate(forecasts["wait"].rows.tolist()):
        estimates = estimates_at(forecasts, index)
        if estimates is None or math.isnan(waits[row]) or math.isnan(runs[row]):
            continue  # no forecast, or nobody knows what it saved: it was requeued, or cut short
        job = job_of(table, row)
        case = _case(job, estimates, placement)
        chance = candidate_chance(case)
        if chance is not None:
            keeper.ended(row, float(waits[row]) - case.penalty_seconds(float(runs[row])), chance)
    return keeper
