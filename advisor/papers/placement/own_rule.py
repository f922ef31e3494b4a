"""The advisor's own rule on a log: what it sends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advisor.decide.submission.advise import advise
from advisor.decide.submission.proven import candidate_chance, worst_seconds
from advisor.decide.submission.proven_rows import Fate, RecordInTime, case_of
from advisor.decide.submission.table_row import job_of
from advisor.model.advice import Placement
from advisor.model.settings import ClusterSettings, PlacementSettings, Settings
from advisor.model.site import SiteState
from advisor.model.table import JobTable
from advisor.predict.forecast.forecast_rows import ForecastColumns, estimates_at
from advisor.predict.knn.fitness import Target
from advisor.predict.knn.tracker import StateColumns

Booleans = NDArray[np.bool_]


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

    Args:
        table: The whole log.
        states: What each row met.
        forecasts: Of rows in submission order; rows without a forecast stay.
        placement: Overheads and the rule's settings; the boot time must be 0 or the log's waits are not
            comparable.
        first: Position of the first row that may be moved. Those before are the site's history: they earn the
            record, but nothing that may be lost (:class:`~advisor.decide.submission.record.LossAllowance`).
    """
    rows = forecasts["wait"].rows
    settings = Settings(placement=placement, cluster=ClusterSettings(policy="advisor"))
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
            case = case_of(job, estimates, placement)
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
