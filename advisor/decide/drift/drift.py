"""When a partition falls back to on-premise, and when it comes back. Pure.

The learn loop asks in each round; the page Accuracy shows the same figures.

Intervals follow how often they hold, so a day outside the band is usual where a user submits a thousand like
jobs. A week is not: something has changed that the forecasts do not learn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from advisor.model.drift import DayMeasured, FallenBack, Measure
from advisor.model.settings_learning import DriftSettings

WEEK: Final = 7
_MOST_DAYS: Final = 4
"""So many days of the week have to be out of the band each by itself: one bad day is no drift."""
_DAY_SHARE: Final = 20
"""A day counts by itself when it has this part of the jobs that a week needs."""
_BACK_DAYS: Final = 3
"""A partition comes back when the last days together hold."""


class Standing(NamedTuple):
    """A measure over some days: jobs or intervals, and the share; ``least``: its band."""

    cases: int
    value: float
    least: float

    def is_out(self, needed: int) -> bool:
        """Whether it is below its band; with fewer cases than ``needed`` it is not."""
        return self.cases >= max(1, needed) and self.value < self.least


def fallen_back(
    days: Sequence[DayMeasured], today: int, before: FallenBack | None, settings: DriftSettings
) -> FallenBack | None:
    """Whether a partition's jobs stay on-premise from now on.

    Args:
        days: What was measured, one entry a day, in any order.
        today: Days since the epoch.
        before: The last decision about the partition; None: its jobs may move.

    Returns:
        None where they may move.
    """
    if not settings.enabled:
        return None
    week = _week(days, today)
    if before is not None:
        return before if _lasts(before, week, today, settings) else None
    for measure in Measure:
        whole = _sum(measure, week, settings)
        if not whole.is_out(settings.jobs):
            continue
        out = [one.day for one in week if _sum(measure, [one], settings).is_out(settings.jobs // _DAY_SHARE)]
        newest = _sum(measure, [one for one in week if one.day > today - _BACK_DAYS], settings)
        is_lasting = len(out) >= _MOST_DAYS and min(out) <= today - WEEK + 1
        if is_lasting and newest.is_out(1):
            return FallenBack(today, measure, whole.value, whole.least)
    return None


def of_week(measure: Measure, days: Iterable[DayMeasured], today: int, settings: DriftSettings) -> Standing:
    """A measure over the last week; ``today`` in days since the epoch."""
    return _sum(measure, _week(days, today), settings)


def _week(days: Iterable[DayMeasured], today: int) -> list[DayMeasured]:
    return [one for one in days if today - WEEK < one.day <= today]


def _lasts(before: FallenBack, week: list[DayMeasured], today: int, settings: DriftSettings) -> bool:
    """Whether what has left its band is still out of it; what is not measured any more is tried again.

    Coverage is measured on jobs that stay, too. Saved time is not: no job of the partition moves.
    """
    if before.measure is Measure.SAVED_TIME:
        return today - before.since_day < WEEK
    newest = [one for one in week if one.day > max(today - _BACK_DAYS, before.since_day)]
    found = _sum(before.measure, newest, settings)
    if found.cases >= max(1, settings.jobs * _BACK_DAYS // WEEK):
        return found.value < found.least
    return bool(week) and any(one.judged for one in week)


def _sum(measure: Measure, days: Iterable[DayMeasured], settings: DriftSettings) -> Standing:
    days = list(days)
    if measure is Measure.COVERAGE:
        count, least = sum(one.judged for one in days), settings.coverage
        return Standing(count, sum(one.inside for one in days) / max(1, count), least)
    promised = sum(one.promised_seconds for one in days)
    share = sum(one.saved_seconds for one in days) / promised if promised > 0.0 else 1.0
    return Standing(sum(one.moved for one in days), share, settings.saved_share)
