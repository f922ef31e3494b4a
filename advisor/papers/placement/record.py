"""Keeping the record of what moving jobs has brought (docs/designs/0009-placement-rule.md).

The record is kept by the probability of being faster that was forecast, because how likely is likely enough
is not for us to say: it differs from site to site. So several rules are tried at once, each on what its own
jobs have brought. From the site's `win_probability` on, rule t moves every job at least t likely, for each t
in steps of 0.05; a job is judged by the best of those that would move it. Below, less likely jobs must pay
for themselves: rule t moves the jobs from t up to `win_probability`, and what likelier jobs have won does not
pay for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

STEP: Final = 0.05
"""Width of a band of probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTerms:
    """Constants of the rule; docs/designs/0009-placement-rule.md has what each brings.

    Attributes:
        margin: The expected wait must be this many times what the cloud costs in time.
        win_probability: A job with at least this probability of ending sooner is judged by the record of all
            such jobs, one below it only by the record of jobs that were as unlikely.
        record_deviations, record_discount: Standard errors, and share of all gains and losses, that are
            subtracted from the record before it counts.
        stake_share, exposure_share: Share of the record that one job, and that all jobs in the cloud
            together, may lose at worst.
        loss_share: Share of what a perfect forecast would have saved that all moved jobs together may lose.
    """

    margin: float = 1.0
    win_probability: float = 0.4
    record_deviations: float = 2.0
    record_discount: float = 0.05
    stake_share: float = 0.05
    exposure_share: float = 1.0
    loss_share: float = 0.01


class Earned(NamedTuple):
    """What some moves saved, counted after the jobs ended: sums of it, of its absolute value, and squared."""

    saved_seconds: float = 0.0
    absolute_seconds: float = 0.0
    squared_seconds: float = 0.0


class TrackRecord(NamedTuple):
    """What moving jobs has saved so far, which bounds what further moves may risk.

    Attributes:
        bands: By the probability of being faster that was forecast (`bands`), least likely first; empty:
            nothing yet.
        at_risk_seconds: Worst-case loss of the jobs that are in the cloud now.
        may_lose_seconds: The loss that is allowed: what moves have saved and lost so far, plus
            ``RuleTerms.loss_share`` of what a clairvoyant would have saved. None where it is not counted.
    """

    bands: tuple[Earned, ...] = ()
    at_risk_seconds: float = 0.0
    may_lose_seconds: float | None = None


@lru_cache(maxsize=64)
def bands(floor: float) -> tuple[tuple[float, ...], int]:
    """Where the bands of probabilities begin, from 0 up, and which is the first from `floor` on."""
    below, above = list[float](), [floor]
    while (edge := round(floor - (len(below) + 1) * STEP, 9)) > 0.0:
        below.append(edge)
    if floor > 0.0:
        below.append(0.0)
    while (edge := round(floor + len(above) * STEP, 9)) < 1.0:
        above.append(edge)
    return (*reversed(below), *above), len(below)


class RecordKeeper:
    """Adds up what every job with a large enough expected gain saved, when it has ended.

    Jobs that were not moved count as well: what the cloud would have saved them is known once they have
    waited and run. So the record grows before the first job is moved.

    Args:
        floor: The site's `win_probability`.
    """

    def __init__(self, floor: float) -> None:
        self._edges, self._likely = bands(floor)
        self._bands = [Earned()] * len(self._edges)
        self._at_risk: dict[Hashable, float] = {}
        self._exposure = 0.0

    def moved(self, key: Hashable, worst_seconds: float) -> None:
        """Note a job that went to the cloud and what it may lose at worst."""
        self._at_risk[key] = worst_seconds
        self._exposure += worst_seconds

    def ended(self, key: Hashable, saved_seconds: float, chance: float) -> None:
        """Note what a job saved, or would have saved; negative when it lost.

        Args:
            key: The job.
            saved_seconds: Its turnaround on-premise less its turnaround in the cloud.
            chance: The probability of being faster that had been forecast.
        """
        band = bisect_right(self._edges, chance) - 1
        before = self._bands[band]
        self._bands[band] = Earned(
            saved_seconds=before.saved_seconds + saved_seconds,
            absolute_seconds=before.absolute_seconds + abs(saved_seconds),
            squared_seconds=before.squared_seconds + saved_seconds * saved_seconds,
        )
        self._exposure -= self._at_risk.pop(key, 0.0)
        if not self._at_risk:
            self._exposure = 0.0  # rounding errors do not add up

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
        share: Share of the clairvoyant's savings (``RuleTerms.loss_share``), 0 to 1.
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
