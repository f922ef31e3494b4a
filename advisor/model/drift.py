"""The measures of the forecasts in one partition on one day, and a partition that has fallen back."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

_Count = Annotated[int, Meta(ge=0)]


class Measure(enum.StrEnum):
    """A measure that may leave its band."""

    COVERAGE = "coverage"
    SAVED_TIME = "saved time"


class DayMeasured(msgspec.Struct, array_like=True):
    """One day of one partition.

    Attributes:
        day: Days since the epoch.
        judged, inside: Intervals of waits and run times that were judged, and those that held.
        moved: Jobs that the advisor has moved and that have ended.
        promised_seconds, saved_seconds: Turnaround that the cloud was expected to save them, and what it did.
    """

    day: _Count
    judged: _Count = 0
    inside: _Count = 0
    moved: _Count = 0
    promised_seconds: float = 0.0
    saved_seconds: float = 0.0


class FallenBack(msgspec.Struct, frozen=True):
    """A partition whose jobs stay on-premise for now: since the day (since the epoch), and for what."""

    since_day: _Count
    measure: Measure
    value: float
    least: float

    @property
    def words(self) -> str:
        """The measures that have left their bands, in words for an admin."""
        if self.measure is Measure.COVERAGE:
            return (
                f"only {100.0 * self.value:.0f} % of the waits and run times of a week lay in their 90 % "
                f"intervals (at least {100.0 * self.least:.0f} %)"
            )
        return (
            f"jobs moved in a week saved only {100.0 * self.value:.0f} % of the time that was forecast "
            f"(at least {100.0 * self.least:.0f} %)"
        )
