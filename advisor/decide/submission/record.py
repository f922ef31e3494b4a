"""Keeping the record of what moving jobs has brought (docs/designs/0009-placement-rule.md).

The record is kept by the probability of being faster that was forecast, because how likely is likely enough
is not for us to say: it differs from site to site. So several rules are tried at once, each on what its own
jobs have brought. From the site's `win_probability` on, rule t moves every job at least t likely, for each t
in steps of 0.05; a job is judged by the best of those that would move it. Below, less likely jobs must pay
for themselves: rule t moves the jobs from t up to `win_probability`, and what likelier ones won is not lent.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable

from advisor.decide.submission.proven import bands
from advisor.model.settings import PlacementSettings
from advisor.model.site import Earned, TrackRecord


class RecordKeeper:
    """Adds up what every job with a large enough expected gain saved, when it has ended.

    Jobs that were not moved count as well: what the cloud would have saved them is known once they have
    waited and run. So a site's record grows in shadow mode, and from its history.

    Parameters
    ----------
    floor : float
        The site's `win_probability`.
    before : TrackRecord, optional
        What was earned before, with the same `floor`; jobs at risk are told anew.
    """

    def __init__(self, floor: float, before: TrackRecord | None = None) -> None:
        self._edges, self._likely = bands(floor)
        earned = () if before is None else before.bands
        self._bands = list(earned) if len(earned) == len(self._edges) else [Earned()] * len(self._edges)
        self._at_risk: dict[Hashable, float] = {}
        self._exposure = 0.0

    def moved(self, key: Hashable, worst_seconds: float) -> None:
        """Note a job that went to the cloud and what it may lose at worst."""
        self._at_risk[key] = worst_seconds
        self._exposure += worst_seconds

    def ended(self, key: Hashable, saved_seconds: float, chance: float | None) -> None:
        """Note what a job saved, or would have saved; negative when it lost.

        Parameters
        ----------
        key : hashable
            The job.
        saved_seconds : float
            Its turnaround here less the one in the cloud.
        chance : float or None
            The probability of being faster that had been forecast; None: not known any more, but likely
            enough at the time.
        """
        band = self._likely if chance is None else bisect_right(self._edges, chance) - 1
        self._bands[band] += Earned(
            saved_seconds=saved_seconds,
            absolute_seconds=abs(saved_seconds),
            squared_seconds=saved_seconds * saved_seconds,
        )
        self._exposure -= self._at_risk.pop(key, 0.0)
        if not self._at_risk:
            self._exposure = 0.0  # rounding ends here

    def add(self, earned: TrackRecord) -> None:
        """Add what another record of the same `floor` has earned."""
        if len(earned.bands) == len(self._bands):
            self._bands = [one + other for one, other in zip(self._bands, earned.bands, strict=True)]

    @property
    def record(self) -> TrackRecord:
        """The record now."""
        return TrackRecord(bands=tuple(self._bands), at_risk_seconds=max(0.0, self._exposure))


class LossAllowance:
    """What moved jobs may lose at worst, so that moving never costs more than a share of what it could bring.

    Sum of what moves have saved, plus a share of what a clairvoyant would have saved, counted when each is
    known. While all that jobs in the cloud may lose at worst stays below it, the sum of all moves is never
    below minus that share of the clairvoyant's, whatever forecasts say and however many jobs lose at once:
    his sum only grows. A job that ends later than its time limit allows may still lose more.

    Parameters
    ----------
    share : float
        Of the clairvoyant's seconds (``placement.loss_share``).
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._worst: dict[Hashable, float] = {}
        self._waiting: dict[Hashable, float] = {}
        self._seconds = self._since = 0.0

    def could_save(self, seconds: float) -> None:
        """Note what the cloud saved a job, or would have saved it; a clairvoyant leaves losses out."""
        self._seconds += self._share * max(0.0, seconds)

    def moved(self, key: Hashable, now: float, worst_seconds: float) -> None:
        """Note a job that goes to the cloud and what it may lose at worst."""
        self._worst[key], self._waiting[key] = worst_seconds, now
        self._seconds -= worst_seconds
        self._since += now

    def waited(self, key: Hashable, seconds: float) -> None:
        """Note how long a moved job would have waited here."""
        self._since -= self._waiting.pop(key)
        self._seconds += seconds

    def ran(self, key: Hashable, cost_seconds: float) -> None:
        """Note by how much the boot and the slower run were longer than the run here would have been."""
        self._seconds += self._worst.pop(key) - cost_seconds

    def left(self, now: float) -> float:
        """What may still be staked, seconds: who would still wait has won the time since he was moved."""
        return self._seconds + len(self._waiting) * now - self._since


def could_have_saved(record: TrackRecord) -> float:
    """What a clairvoyant would have saved on a record's jobs, seconds: its gains without its losses."""
    return math.fsum(0.5 * (band.absolute_seconds + band.saved_seconds) for band in record.bands)


def record_of(earned: Earned, settings: PlacementSettings, *, at_risk_seconds: float = 0.0) -> TrackRecord:
    """Make a record of which no more is known than what likely enough jobs brought in sum."""
    edges, likely = bands(settings.win_probability)
    nothing = Earned()
    return TrackRecord(
        bands=tuple(earned if band == likely else nothing for band in range(len(edges))),
        at_risk_seconds=at_risk_seconds,
    )


def likely_earned(record: TrackRecord, settings: PlacementSettings) -> Earned:
    """What the likely enough jobs brought in sum."""
    edges, likely = bands(settings.win_probability)
    return sum(record.bands[likely:] if len(record.bands) == len(edges) else (), Earned())
