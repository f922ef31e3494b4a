"""The placement rule of 2026 on a log: what it sends."""

from __future__ import annotations

import numpy as np

from advisor.arrays import Bools
from advisor.decide.submission.cloud_terms import configured_slowdown
from advisor.model.settings_decision import PlacementSettings
from advisor.model.table import JobTable
from advisor.papers.placement.forecast_rows import ForecastColumns, estimates_at
from advisor.papers.placement.proven import ProvenCase, candidate_chance, proven, worst_seconds
from advisor.papers.placement.record import RuleTerms
from advisor.papers.placement.record_in_time import Outcome, RecordInTime
from advisor.predict.knn.known import Target

_TERMS = RuleTerms()


def sent_by_the_advisor(
    table: JobTable,
    forecasts: dict[Target, ForecastColumns],
    placement: PlacementSettings,
    first: int = 0,
    terms: RuleTerms = _TERMS,
) -> Bools:
    """Where the rule sends the forecast rows: True for the cloud.

    The record takes in each candidate when it has ended (on-premise, as the log says), so that nothing is
    known earlier than it was.

    Args:
        table: The whole log.
        forecasts: Of rows in submission order; rows without a forecast stay.
        placement: Overheads; the boot time must be 0 or the log's waits are not comparable.
        first: Position of the first row that may be moved. Those before are the site's history: they earn the
            record, but nothing that may be lost (:class:`~advisor.papers.placement.record.LossAllowance`).
        terms: The rule's constants.
    """
    rows = forecasts["wait"].rows
    record = RecordInTime(terms)
    sent = np.zeros(len(rows), dtype=bool)
    for index, row in enumerate(rows.tolist()):
        now, run = float(table.submit[row]), float(table.run[row])
        record.settle(now)
        processors, asked = int(table.processors[row]), float(table.requested_time[row])
        slowdown = configured_slowdown(processors, placement)
        cost = placement.boot_seconds + (slowdown - 1.0) * run
        outcome = Outcome(now, max(0.0, float(table.wait[row])), run, cost)
        case, chance = None, None
        if (estimates := estimates_at(forecasts, index)) is not None:
            case = ProvenCase(
                processors=processors,
                requested_time=None if np.isnan(asked) else asked,
                wait=estimates.wait,
                run=estimates.run,
                boot_seconds=placement.boot_seconds,
                performance_ratio=slowdown,
                settings=placement,
                record=record.now,
                terms=terms,
            )
            chance = candidate_chance(case)
        record.submitted(row, outcome, chance, counts=index >= first)
        if case is not None and chance is not None and index >= first and proven(case):
            sent[index] = True
            record.moved(row, outcome, worst_seconds(case))
    return sent
