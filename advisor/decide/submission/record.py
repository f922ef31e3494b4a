"""Keeping the record of what moving jobs has brought (docs/designs/0009-placement-rule.md).

The record is kept by the probability of being faster that was forecast, because how likely is likely enough
is not for us to say: it differs from site to site. So several rules are tried at once, each on what its own
jobs have brought. From the site's `win_probability` on, rule t moves every job at least t likely, for each t
in steps of 0.05; a job is judged by the best of those that would move it. Below, less likely jobs must pay
for themselves: rule t moves the jobs from t up to `win_probability`, and what likelier jobs have won does not
pay for them.
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

    Args:
        floor: The site's `win_probability`.
        before: What was earned before, with the same `floor`. Its jobs at risk are not taken over: call
            :meth:`moved` for each of them again.
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

        Args:
            key: The job.
            saved_seconds: Its turnaround on-premise less its turnaround in the cloud.
            chance: The probability of being faster that had been forecast; None: not known any more, but
                likely enough at the time.
        """
        band = self._likely if chance is None else bisect_right(self._edges, chance) - 1
        self._bands[band] += Earned(
            saved_seconds=saved_seconds,
            absolute_seconds=abs(saved_seconds),
            squared_seconds=saved_seconds * saved_seconds,
        )
        self._exposure -= self._at_risk.pop(key, 0.0)
        if not self._at_risk:
            self._exposure = 0.0  # rounding errors do not add up

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

    The allowance is what moves have saved, plus a share of what a clairvoyant would have saved; each is
    counted when it is known. As long as the worst-case losses of all jobs in the cloud stay below the
    allowance, all moves together never lose more than that share of the clairvoyant's savings, whatever the
    forecasts say and however many jobs lose at once, because the clairvoyant's savings only grow. A job that
    ends later than its time limit allows may still lose more.

    Args:
        share: Share of the clairvoyant's savings (``placement.loss_share``), 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._worst: dict[Hashable, float] = {}
        self._waiting: dict[Hashable, float] = {}
        self._seconds = 0.0
        self._since = 0.0  # sum of the times at which the waiting jobs were moved

    def could_save(self, seconds: float) -> None:
        """Note what the cloud saved a job, or would have saved it; a clairvoyant leaves losses out."""
        self._seconds += self._share * max(0.0, seconds)

    def moved(self, key: Hashable, now: float, worst_seconds: float) -> None:
        """Note a job that goes to the cloud and what it may lose at worst."""
        self._worst[key], self._waiting[key] = worst_seconds, now
        self._seconds -= worst_seconds
        self._since += now

    def waited(self, key: Hashable, seconds: float) -> None:
        """Note how long a moved job would have waited on-premise, seconds."""
        self._since -= self._waiting.pop(key)
        self._seconds += seconds

    def ran(self, key: Hashable, cost_seconds: float) -> None:
        """Note how many seconds longer boot and run in the cloud took than the run on-premise would have."""
        self._seconds += self._worst.pop(key) - cost_seconds

    def left(self, now: float) -> float:
        """What further moves may lose, seconds.

        A moved job that would still wait on-premise has already saved the time since its move.
        """
        return self._seconds + len(self._waiting) * now - self._since


def could_have_saved(record: TrackRecord) -> float:
    """What a clairvoyant would have saved on a record's jobs, seconds: its gains without its losses."""
    return math.fsum(0.5 * (band.absolute_seconds + band.saved_seconds) for band in record.bands)


def record_of(earned: Earned, settings: PlacementSettings, *, at_risk_seconds: float = 0.0) -> TrackRecord:
    """Make a record from one sum: what all jobs with at least the site's `win_probability` saved."""
    edges, likely = bands(settings.win_probability)
    nothing = Earned()
    return TrackRecord(
        bands=tuple(earned if band == likely else nothing for band in range(len(edges))),
        at_risk_seconds=at_risk_seconds,
    )


def likely_earned(record: TrackRecord, settings: PlacementSettings) -> Earned:
    """What all jobs with at least the site's `win_probability` saved together."""
    edges, likely = bands(settings.win_probability)
    return sum(record.bands[likely:] if len(record.bands) == len(edges) else (), Earned())
