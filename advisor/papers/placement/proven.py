"""The placement rule of 2026: expected gain, its probability, and stakes only from proven winnings.

The published rule loses where one wrong large job costs more than a thousand right ones gain. Four conditions
(docs/designs/0009-placement-rule.md has what each brings):

1. the expected wait exceeds what the cloud is expected to cost by a margin;
2. the cloud is faster with a probability that is not small, a mean carried by a thin tail is no reason; or
   jobs as unlikely as this one have paid here by themselves;
3. what the job may lose at worst, and what all jobs in the cloud may, is a small part of what such moves
   have brought so far, counted from jobs that have ended;
4. if all jobs in the cloud lost what they may at worst, moves would still have cost no more than a small
   share of what a clairvoyant would have saved (`advisor.papers.placement.record.LossAllowance`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import repeat

from advisor.decide.submission.placement import PlacementCase
from advisor.papers.placement.record import Earned, RuleTerms, TrackRecord, bands


class ProvenCase(PlacementCase, frozen=True, kw_only=True, gc=False):
    """What the rule looks at.

    Attributes:
        requested_time: The user's time limit, seconds: no job runs longer.
        record: What moves have saved so far.
        terms: The rule's constants.
    """

    requested_time: float | None
    record: TrackRecord = TrackRecord()
    terms: RuleTerms = RuleTerms()


def win_probability(case: ProvenCase) -> float:
    """Probability that the cloud is faster: of wait > start + (s(c) - 1) * run, taken as independent."""
    waits, runs = case.wait.quantiles, case.run.quantiles
    pairs, penalties = len(waits) * len(runs), map(case.penalty_seconds, runs)
    return (pairs - sum(map(bisect_right, repeat(waits), penalties))) / pairs


def worst_seconds(case: ProvenCase) -> float:
    """What moving the job may lose: no wait here, and a run as long as its user allows."""
    longest = case.requested_time
    if longest is None or not math.isfinite(longest):
        longest = case.run.quantiles[-1] if case.run.quantiles else math.inf
    return max(0.0, case.penalty_seconds(longest))


def candidate_chance(case: ProvenCase) -> float | None:
    """Probability of being faster where the expected gain is large enough, else None.

    Such jobs make the record, moved or not.
    """
    return win_probability(case) if _gains(case) else None


def proven(case: ProvenCase) -> bool:
    """Whether the job moves."""
    if not _gains(case):
        return False
    chance, stake = win_probability(case), worst_seconds(case)
    if chance >= case.terms.win_probability and stake == 0.0:
        return True  # a likely job that can lose nothing needs no record
    trusted = trusted_seconds(case.record, case.terms, chance)
    if trusted <= 0.0 or stake > case.terms.stake_share * trusted:
        return False
    return not is_overexposed(case.record, stake, trusted, case.terms)


def _gains(case: ProvenCase) -> bool:
    """Whether the expected wait exceeds what the cloud is expected to cost by the margin."""
    cost = case.penalty_seconds(case.run.seconds)
    return math.isfinite(cost) and case.wait.seconds > case.terms.margin * cost


def is_overexposed(record: TrackRecord, stake: float, trusted: float, terms: RuleTerms) -> bool:
    """Whether one more stake is too much beside those of the jobs that are in the cloud.

    Args:
        record: With what is at risk now.
        stake: What the job may lose at worst, seconds.
        trusted: What counts of the record for such a job, seconds.
        terms: The share that may be at risk.
    """
    at_risk = record.at_risk_seconds + stake
    if record.may_lose_seconds is not None and at_risk > record.may_lose_seconds:
        return True
    return at_risk > terms.exposure_share * trusted


def trusted_seconds(record: TrackRecord, terms: RuleTerms, chance: float = 1.0) -> float:
    """How much of a record counts for a job: gains less a discount and some standard errors of their sum.

    The sum of n gains has a standard error of about the root of the sum of their squares, so that a record
    that rests on one lucky job counts for nothing. Of the rules that would move the job the one with the
    best record is asked.

    Args:
        record: What such moves brought.
        terms: Discount, standard errors, and where likely begins.
        chance: The job's probability of being faster; 1: what counts for the likeliest job.

    Returns:
        Seconds; not above 0 where nothing is proved. A record of other bands counts for nothing.
    """
    edges, likely = bands(terms.win_probability)
    if len(record.bands) != len(edges):
        return 0.0
    return _trusted(record.bands, terms, edges, likely)[bisect_right(edges, chance) - 1]


def _trusted(
    earned: tuple[Earned, ...], terms: RuleTerms, edges: tuple[float, ...], likely: int
) -> list[float]:
    trusted = [0.0] * len(edges)
    for first, last in ((0, likely), (likely, len(edges))):
        kept = squared = 0.0
        rules = list[float]()
        for band in range(last - 1, first - 1, -1):
            kept += earned[band].saved_seconds - terms.record_discount * earned[band].absolute_seconds
            squared += earned[band].squared_seconds
            rules.append(kept - terms.record_deviations * math.sqrt(squared))
        # a rule from some band on moves the jobs of all bands above: theirs is the best of these
        best = -math.inf
        for band in range(first, last):
            trusted[band] = best = max(best, rules[last - 1 - band])
    return trusted
