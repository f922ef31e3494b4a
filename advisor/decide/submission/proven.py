"""The advisor's own placement rule: expected gain, its probability, and stakes only from proven winnings.

The published rule loses where one wrong large job costs more than a thousand right ones gain. Three
conditions, each of which may be switched off by its setting (docs/designs/0009-placement-rule.md has what
each brings):

1. the expected wait exceeds what the cloud is expected to cost by a margin;
2. the cloud is faster with a probability that is not small, a mean carried by a thin tail is no reason; or
   jobs as unlikely as this one have paid here by themselves;
3. what the job may lose at worst, and what all jobs in the cloud may, is a small part of what such moves
   have brought so far, counted from jobs that have ended;
4. if all jobs in the cloud lost what they may at worst, moves would still have cost no more than a small
   share of what a clairvoyant would have saved (`advisor.decide.submission.record.LossAllowance`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import lru_cache
from itertools import repeat
from typing import Final

from msgspec.structs import replace

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.placement import (
    PUBLISHED_INSTEAD,
    PlacementCase,
    answer,
    exceeds_limit,
    published,
)
from advisor.model.advice import Answer, Quantity, Verdict
from advisor.model.settings import PlacementSettings
from advisor.model.site import Earned, TrackRecord

STEP: Final = 0.05
"""Width of a band of probabilities."""
_YES: Final = Verdict.YES
_CLOUD_FASTER: Final = Reason.CLOUD_FASTER


def win_probability(case: PlacementCase) -> float:
    """Probability that the cloud is faster: of wait > start + (s(c) - 1) * run, taken as independent."""
    waits, runs = case.wait.quantiles, case.run.quantiles
    start, slowdown = case.starts_after_seconds, case.performance_ratio - 1.0
    pairs = len(waits) * len(runs)
    # `penalty_seconds` of each run, written out: twenty calls less inside sbatch
    penalties = [start + slowdown * run for run in runs] if slowdown else [start] * len(runs)
    return (pairs - sum(map(bisect_right, repeat(waits), penalties))) / pairs


def worst_seconds(case: PlacementCase) -> float:
    """What moving the job may lose: no wait here, and a run as long as its user allows."""
    longest = case.requested_time
    if longest is None or not math.isfinite(longest):
        longest = case.run.quantiles[-1] if case.run.quantiles else math.inf
    return max(0.0, case.penalty_seconds(longest))


def candidate_chance(case: PlacementCase) -> float | None:
    """Probability of being faster where the expected gain is large enough, else None.

    Such jobs make the record, moved or not.
    """
    return win_probability(case) if _gains(case) else None


def proven(case: PlacementCase) -> Answer:
    """Decide by the advisor's own rule; by the published one where the estimates are no distributions."""
    if not (case.wait.quantiles and case.run.quantiles):
        return replace(published(case), detail=PUBLISHED_INSTEAD)
    chance = win_probability(case)
    numbers = [("win_probability", Quantity(chance, ""))]
    if not _gains(case):
        return answer(case, Verdict.NO, Reason.CLOUD_NOT_FASTER, numbers)
    if exceeds_limit(case, numbers):
        return answer(case, Verdict.UNSURE, Reason.TOO_UNCERTAIN, numbers)
    if case.record is None:
        refused = None if chance >= case.settings.win_probability else Reason.UNLIKELY
    else:
        stake, trusted = worst_seconds(case), trusted_seconds(case.record, case.settings, chance)
        numbers += [("stake", Quantity(stake)), ("record", Quantity(trusted))]
        refused = _refused_stake(case, case.record, chance, stake, trusted)
    if refused is not None:
        return answer(case, Verdict.UNSURE, refused, numbers)
    return answer(case, _YES, _CLOUD_FASTER, numbers)


def _gains(case: PlacementCase) -> bool:
    """Whether the expected wait exceeds what the cloud is expected to cost by the margin."""
    cost = case.penalty_seconds(case.run.seconds)
    return math.isfinite(cost) and case.wait.seconds > case.settings.margin * cost


def _refused_stake(
    case: PlacementCase, record: TrackRecord, chance: float, stake: float, trusted: float
) -> Reason | None:
    """Whether the record is too short for this stake; a likely job that can lose nothing needs no record.

    All tasks of an array move at once and may all lose: together they are one stake.
    """
    stake *= case.tasks
    likely = chance >= case.settings.win_probability
    if likely and stake == 0.0:
        return None
    if trusted <= 0.0:
        return Reason.UNPROVEN if likely else Reason.UNLIKELY
    if stake > case.settings.stake_share * trusted:
        return Reason.STAKE_TOO_LARGE
    return Reason.EXPOSURE_TOO_LARGE if is_overexposed(record, stake, trusted, case.settings) else None


def is_overexposed(record: TrackRecord, stake: float, trusted: float, settings: PlacementSettings) -> bool:
    """Whether one more stake is too much beside those of the jobs that are in the cloud.

    Args:
        record: With what is at risk now.
        stake: What the job may lose at worst, all its tasks together, seconds.
        trusted: What counts of the record for such a job, seconds.
        settings: The share that may be at risk.
    """
    at_risk = record.at_risk_seconds + stake
    if record.may_lose_seconds is not None and at_risk > record.may_lose_seconds:
        return True
    return at_risk > settings.exposure_share * trusted


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


def trusted_seconds(record: TrackRecord, settings: PlacementSettings, chance: float = 1.0) -> float:
    """How much of a record counts for a job: gains less a discount and some standard errors of their sum.

    The sum of n gains has a standard error of about the root of the sum of their squares, so that a record
    that rests on one lucky job counts for nothing. Of the rules that would move the job the one with the
    best record is asked.

    Args:
        record: What such moves brought.
        settings: Discount, standard errors, and where likely begins.
        chance: The job's probability of being faster; 1: what counts for the likeliest job.

    Returns:
        Seconds; not above 0 where nothing is proved. A record of other bands counts for nothing.
    """
    edges, likely = bands(settings.win_probability)
    if len(record.bands) != len(edges):
        return 0.0
    return _trusted(record.bands, settings, edges, likely)[bisect_right(edges, chance) - 1]


def _trusted(
    earned: tuple[Earned, ...], settings: PlacementSettings, edges: tuple[float, ...], likely: int
) -> list[float]:
    trusted = [0.0] * len(edges)
    for first, last in ((0, likely), (likely, len(edges))):
        kept = squared = 0.0
        rules = list[float]()
        for band in range(last - 1, first - 1, -1):
            kept += earned[band].saved_seconds - settings.record_discount * earned[band].absolute_seconds
            squared += earned[band].squared_seconds
            rules.append(kept - settings.record_deviations * math.sqrt(squared))
        # a rule from some band on moves the jobs of all bands above: theirs is the best of these
        best = -math.inf
        for band in range(first, last):
            trusted[band] = best = max(best, rules[last - 1 - band])
    return trusted
