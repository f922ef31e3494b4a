"""Keeping the record of what moving jobs has brought (docs/designs/0009-placement-rule.md)."""

from __future__ import annotations

import math
from collections.abc import Hashable

from advisor.model.settings import PlacementSettings
from advisor.model.site import TrackRecord


class RecordKeeper:
    """Adds up what every job the rule would have moved saved, when it has ended.

    Jobs that were not moved count as well: what the cloud would have saved them is known once they have
    waited and run. So a site's record grows in shadow mode, and from its history.

    Parameters
    ----------
    before : TrackRecord, optional
        What was earned before; jobs at risk are told anew.
    """

    def __init__(self, before: TrackRecord | None = None) -> None:
        earned = before or TrackRecord()
        self._saved, self._absolute = earned.saved_seconds, earned.absolute_seconds
        self._squared = earned.squared_seconds
        self._at_risk: dict[Hashable, float] = {}
        self._exposure = 0.0

    def moved(self, key: Hashable, worst_seconds: float) -> None:
        """Note a job that went to the cloud and what it may lose at worst."""
        self._at_risk[key] = worst_seconds
        self._exposure += worst_seconds

    def ended(self, key: Hashable, saved_seconds: float) -> None:
        """Note what a job saved, or would have saved; negative when it lost."""
        self._saved += saved_seconds
        self._absolute += abs(saved_seconds)
        self._squared += saved_seconds * saved_seconds
        self._exposure -= self._at_risk.pop(key, 0.0)
        if not self._at_risk:
            self._exposure = 0.0  # rounding ends here

    @property
    def record(self) -> TrackRecord:
        """The record now."""
        return TrackRecord(
            saved_seconds=self._saved,
            absolute_seconds=self._absolute,
            squared_seconds=self._squared,
            at_risk_seconds=max(0.0, self._exposure),
        )


def trusted_seconds(record: TrackRecord, settings: PlacementSettings) -> float:
    """How much of a record counts: gains less a discount and some standard errors of their sum.

    The sum of n gains has a standard error of about the root of the sum of their squares, so that a record
    that rests on one lucky job counts for nothing.
    """
    return (
        record.saved_seconds
        - settings.record_discount * record.absolute_seconds
        - settings.record_deviations * math.sqrt(record.squared_seconds)
    )
