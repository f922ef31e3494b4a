"""The page Accuracy's data: how well forecasts hold by week and partition, and where one has fallen back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from advisor.decide.drift.drift import of_week
from advisor.history.ledger_rows import LedgerRow
from advisor.history.records import BriefEstimate, BriefRecord
from advisor.history.store import HistoryStore
from advisor.model.drift import Measure
from advisor.model.estimate import holds
from advisor.model.settings import Settings
from advisor.service.state.records import Drift
from advisor.service.state.state_files import DRIFT

WEEKS: Final = 12
SAMPLE: Final = 400
"""Pieces of advice that are read of a week: coverage is then known to about 1.5 points."""
_DAY: Final = 86_400.0
_WEEK: Final = 7 * _DAY
_MIN_JOBS: Final = 30


def accuracy_view(store: HistoryStore, now: float) -> dict[str, Any]:
    """Of each of the last weeks that has jobs, oldest first; a week ends at this time of its last day.

    ``coverage`` is the share of actual values within the forecast's interval, ``below`` and ``above`` the
    shares on either side, ``under_forecast`` the share that took less than the forecast's mean, whose error
    is ``mean_absolute_error_seconds``; None where fewer than 30 jobs have an interval, or a forecast.
    """
    weeks = []
    for number in range(WEEKS, 0, -1):
        begin = now - number * _WEEK
        found = store.sample(begin, begin + _WEEK, SAMPLE)
        # a moved job's wait here is not known
        stayed = [(record, row) for record, row in found if row.saved_seconds_estimate is None]
        if found:
            weeks.append(
                {
                    "begin": begin,
                    "end": begin + _WEEK,
                    "waits": _of(
                        (record.estimates.wait, row.judged_wait_seconds) for record, row in _placed(stayed)
                    ),
                    "runs": _of(
                        (record.estimates.run, row.judged_run_seconds) for record, row in _placed(stayed)
                    ),
                }
            )
    return {"time": now, "sample": SAMPLE, "weeks": weeks}


def drift_view(settings: Settings, now: float) -> dict[str, Any]:
    """The measures of each partition over the last two weeks, and the partitions that have fallen back.

    ``rows`` has a measure of a partition each: the last week's share, the band that it has to keep, and its
    state; ``days`` the shares of intervals that held, by partition and day (epoch seconds).
    """
    drift = DRIFT.at(settings.paths.state).load() or Drift()
    today = int(now // _DAY)
    rows = [
        _drift_row(name, measure, drift, today, settings)
        for name in sorted({*settings.cluster.on_premise_partitions, *drift.days, *drift.fallen_back})
        for measure in Measure
    ]
    days = [
        {"partition": name, "day": one.day * _DAY, "coverage": one.inside / one.judged, "cases": one.judged}
        for name, measured in sorted(drift.days.items())
        for one in measured
        if one.judged
    ]
    return {"enabled": settings.drift.enabled, "least": settings.drift.coverage, "rows": rows, "days": days}


def _drift_row(name: str, measure: Measure, drift: Drift, today: int, settings: Settings) -> dict[str, Any]:
    week = of_week(measure, drift.days.get(name, ()), today, settings.drift)
    fallen = drift.fallen_back.get(name)
    is_fallen = fallen is not None and fallen.measure is measure
    enough = week.cases >= settings.drift.jobs
    holds = "out of its band" if week.is_out(settings.drift.jobs) else "holds"
    return {
        "partition": name,
        "measure": measure.value,
        "cases": week.cases,
        "needed": settings.drift.jobs,
        "value": week.value if week.cases else None,
        "least": week.least,
        "state": "fallen back" if is_fallen else holds if enough else "too few",
        "since": fallen.since_day * _DAY if fallen is not None and is_fallen else None,
        "why": fallen.words if fallen is not None and is_fallen else None,
    }


def _placed(found: Iterable[tuple[BriefRecord, LedgerRow]]) -> Iterable[tuple[BriefRecord, LedgerRow]]:
    """Without those that their users placed: no forecast decided there."""
    return (one for one in found if not one[1].is_users_choice)


def _of(pairs: Iterable[tuple[BriefEstimate, float]]) -> dict[str, Any]:
    """One kind of forecast in one week."""
    below = above = inside = under = known = 0
    error = 0.0
    nominal = math.nan
    for estimate, actual in pairs:
        if math.isnan(actual):
            continue
        if math.isfinite(estimate.seconds):
            known += 1
            under += actual < estimate.seconds
            error += abs(actual - estimate.seconds)
        if estimate.lower <= estimate.upper:
            nominal = estimate.coverage
            below += actual < estimate.lower
            above += actual > estimate.upper
            inside += holds(estimate.lower, actual, estimate.upper)
    bounded = below + above + inside
    enough = bounded >= _MIN_JOBS
    return {
        "jobs": bounded,
        "nominal": nominal if bounded else None,
        "coverage": inside / bounded if enough else None,
        "below": below / bounded if enough else None,
        "above": above / bounded if enough else None,
        "under_forecast": under / known if known >= _MIN_JOBS else None,
        "mean_absolute_error_seconds": error / known if known >= _MIN_JOBS else None,
    }
