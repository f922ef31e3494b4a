"""The advisor's own rule on a log: what it sends, and the record it keeps on the way."""

from __future__ import annotations

import heapq
import math

import numpy as np
from numpy.typing import NDArray

from advisor.decide import advise
from advisor.decide.placement import as_case
from advisor.decide.proven import candidate_chance, worst_seconds
from advisor.decide.record import RecordKeeper
from advisor.model.advice import Placement
from advisor.model.settings import PlacementSettings, Settings
from advisor.model.site import SiteState, TrackRecord
from advisor.model.table import JobTable
from advisor.predict.fitness import Target
from advisor.predict.tracker import StateColumns
from advisor.replay.forecasts import ForecastColumns, estimates_at
from advisor.replay.submissions import job_of

Booleans = NDArray[np.bool_]


def sent_by_the_advisor(
    table: JobTable,
    states: StateColumns,
    forecasts: dict[Target, ForecastColumns],
    placement: PlacementSettings,
) -> Booleans:
    """Where the advisor's rule sends the forecast rows: True for the cloud.

    Rows are advised one by one through `advisor.decide.advise`. The record takes in each candidate when it
    has ended (on-premise, as the log says), so that nothing is known earlier than it was.

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
    """
    rows = forecasts["wait"].rows
    settings = Settings(placement=placement)
    record = RecordInTime(placement.win_probability)
    sent = np.zeros(len(rows), dtype=bool)
    for index, row in enumerate(rows.tolist()):
        now = float(table.submit[row])
        record.settle(now)
        estimates = estimates_at(forecasts, index)
        if estimates is None:
            continue
        job = job_of(table, row)
        case = as_case(
            processors=job.processors,
            requested_time=job.requested_time,
            estimates=estimates,
            boot=placement.boot_seconds,
            settings=placement,
        )
        chance = candidate_chance(case)
        if chance is None:
            continue
        state = SiteState(time=now, cluster=states.state(row), record=record.now)
        advice = advise(job, state, estimates, settings, advice_id="replay")
        if advice.placement is Placement.BURST:
            sent[index] = True
            record.moved(row, worst_seconds(case))
        end = now + max(0.0, float(table.wait[row])) + float(table.run[row])
        saved = float(table.wait[row]) - case.penalty_seconds(float(table.run[row]))
        record.candidate(row, end, saved, chance)
    return sent


class RecordInTime:
    """The record as time goes on: what a candidate saved is known when it has ended, and no sooner.

    Parameters
    ----------
    floor : float
        The settings' `win_probability`.
    """

    def __init__(self, floor: float) -> None:
        self._keeper = RecordKeeper(floor)
        self._open = list[tuple[float, int, float, float]]()

    @property
    def now(self) -> TrackRecord:
        """As of the last moment settled."""
        return self._keeper.record

    def settle(self, now: float) -> None:
        """Take in what had ended before `now` (seconds)."""
        while self._open and self._open[0][0] < now:
            _, key, saved, chance = heapq.heappop(self._open)
            self._keeper.ended(key, saved, chance)

    def moved(self, key: int, worst_seconds: float) -> None:
        """A job risks so much until it ends."""
        self._keeper.moved(key, worst_seconds)

    def candidate(self, key: int, ends: float, saved_seconds: float, chance: float) -> None:
        """A job's outcome, to be known when it ends."""
        heapq.heappush(self._open, (ends, key, saved_seconds, chance))


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
        case = as_case(
            processors=job.processors,
            requested_time=job.requested_time,
            estimates=estimates,
            boot=placement.boot_seconds,
            settings=placement,
        )
        chance = candidate_chance(case)
        if chance is not None:
            keeper.ended(row, float(waits[row]) - case.penalty_seconds(float(runs[row])), chance)
    return keeper
