"""The advisor's own rule on a log: what it sends, and the record it keeps on the way."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from advisor.decide import advise
from advisor.decide.placement import as_case
from advisor.decide.proven import candidate_chance, worst_seconds
from advisor.decide.record import RecordKeeper
from advisor.model.advice import Placement
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import PlacementSettings, Settings
from advisor.model.site import SiteState
from advisor.model.table import JobTable
from advisor.predict.fitness import Target
from advisor.predict.tracker import StateColumns
from advisor.replay.forecasts import ForecastColumns

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
    wait, run = forecasts["wait"], forecasts["run"]
    settings = Settings(placement=placement)
    keeper = RecordKeeper(placement.win_probability)
    open_cases = list[tuple[float, int, float, float]]()
    sent = np.zeros(len(wait.rows), dtype=bool)
    for index, row in enumerate(wait.rows.tolist()):
        now = float(table.submit[row])
        while open_cases and open_cases[0][0] < now:
            _, key, saved, past = heapq.heappop(open_cases)
            keeper.ended(key, saved, past)
        if not (np.isfinite(wait.mean[index]) and np.isfinite(run.mean[index])):
            continue
        job = job_of(table, row)
        estimates = Estimates(wait=wait.estimate(index), run=run.estimate(index))
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
        state = SiteState(time=now, cluster=states.state(row), record=keeper.record)
        advice = advise(job, state, estimates, settings, advice_id="replay")
        if advice.placement is Placement.BURST:
            sent[index] = True
            keeper.moved(row, worst_seconds(case))
        end = now + max(0.0, float(table.wait[row])) + float(table.run[row])
        saved = float(table.wait[row]) - case.penalty_seconds(float(table.run[row]))
        heapq.heappush(open_cases, (end, row, saved, chance))
    return sent


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
    wait, run = forecasts["wait"], forecasts["run"]
    keeper = RecordKeeper(placement.win_probability)
    for index, row in enumerate(wait.rows.tolist()):
        if not (np.isfinite(wait.mean[index]) and np.isfinite(run.mean[index])):
            continue
        job = job_of(table, row)
        case = as_case(
            processors=job.processors,
            requested_time=job.requested_time,
            estimates=Estimates(wait=wait.estimate(index), run=run.estimate(index)),
            boot=placement.boot_seconds,
            settings=placement,
        )
        chance = candidate_chance(case)
        if chance is not None:
            keeper.ended(row, float(table.wait[row]) - case.penalty_seconds(float(table.run[row])), chance)
    return keeper


def job_of(table: JobTable, row: int) -> Job:
    """A row of a log as a submission."""
    asked = float(table.requested_time[row])
    user = int(table.user[row])
    return Job(
        job_id=int(table.job_id[row]),
        submit_time=float(table.submit[row]),
        processors=int(table.processors[row]),
        user=None if user < 0 else str(user),
        requested_time=None if np.isnan(asked) else asked,
    )
