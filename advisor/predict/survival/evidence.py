"""What else tells whether a spot node stays the next hour, and what that was worth so far. Pure.

``advisor.predict.survival.survival`` knows ages and each node's own rate. Where nodes come and go more is
known: how
much of the last hours a node was there, how many of all are there against the most there ever were, and the
time of day. A logistic regression of "not lost within the horizon" on these goes through the past once: every
half hour what was known is written down, and learned from a horizon later, when the outcome was known. It
begins with coefficients fitted on other pools (``PRIOR``). While few losses have been seen the forecast is
drawn to the plain rate of outcomes: that is what one could have used instead, and with two dozen losses it is
hard to beat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from advisor.predict.survival._evidence import (
    AGE,
    COSINE,
    DAY_SECONDS,
    HOUR_SECONDS,
    SINE,
    WIDTH,
    Bools,
    Floats,
    Ints,
    Learned,
    Past,
    Weighing,
    age_term,
    chance_of,
    learn,
    next_shrinks,
)

PRIOR: Floats = np.array([0.9, -0.25, -0.7, 0.45, 1.2, 1.1, 0.0, 0.0])
"""Coefficients before anything was seen: constant, log of the pool's losses an hour, log of the node's own
rate over the pool's, log of its age in hours, share of the time it was there - 1, share of all that are there
- 1, time of day (sine, cosine). Fitted on spot traces of 2023, see ``docs/designs/0012-stability.md``."""

_MIN_RATE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRules:
    """How evidence is weighed; half-lives and times in seconds.

    Attributes
    ----------
    horizon : float
        What is forecast: no loss within so long.
    step : float
        Between the moments learned from.
    rate_half_life : float
        In which a loss, of the pool and of a node, loses half its weight.
    presence_half_life : float
        In which it does that a node was there, or not.
    most_half_life : float
        In which half of the most nodes there were is forgotten.
    certainty, certainty_of_hours : float
        How sure the prior is of its coefficients, and that all hours of the day are alike: their inverse
        variances.
    trusted_from, steepness : float
        Losses seen from which evidence has half the say, the plain rate of outcomes the other; and the power
        by which its say grows with them.
    usual, usual_hours : float
        Plain rate of outcomes of a pool of which nothing is known, and how many hours of a node it outweighs.
    least_gone : float
        Share of shrinks that took the whole node from which on all this applies: nodes that only change their
        size are always there, and their curves are better forecasts.
    """

    horizon: float = HOUR_SECONDS
    step: float = 1800.0
    rate_half_life: float = 30 * DAY_SECONDS
    presence_half_life: float = 6 * HOUR_SECONDS
    most_half_life: float = 30 * DAY_SECONDS
    certainty: float = 100.0
    certainty_of_hours: float = 20.0
    trusted_from: float = 40.0
    steepness: float = 3.0
    usual: float = 0.75
    usual_hours: float = 4.0
    least_gone: float = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What is known beyond the survival curve at one moment.

    Attributes
    ----------
    learned : Learned
        Outcome of the pass over the past.
    rules : EvidenceRules
        How it was weighed.
    """

    learned: Learned
    rules: EvidenceRules

    def stays(self, node: int, age: float) -> float:
        """Probability that a node that is there for ``age`` seconds is not lost within the horizon."""
        learned = self.learned
        total = float(learned.known[node] @ learned.coefficients)
        total += age_term(age) * float(learned.coefficients[AGE])
        seen = learned.ends**self.rules.steepness
        trust = seen / (seen + self.rules.trusted_from**self.rules.steepness)
        plain = min(max(learned.rate, _MIN_RATE), 1.0 - _MIN_RATE)
        return float(chance_of(trust * total + (1.0 - trust) * math.log(plain / (1.0 - plain))))


def weigh(  # noqa: PLR0917 - the columns of the intervals
    node: Ints,
    start: Floats,
    end: Floats,
    completed: Bools,
    shrank: Bools,
    now: float,
    nodes: int,
    rules: EvidenceRules | None = None,
    prior: Floats = PRIOR,
) -> Evidence | None:
    """Learn from what is known now.

    Parameters
    ----------
    node, start, end, completed : ndarray, shape (n,)
        As in ``advisor.predict.survival.survival.Intervals``, with the intervals still open.
    shrank : ndarray of bool, shape (n,)
        Whether the end was a shrink.
    now : float
        Seconds.
    nodes : int
        Number of nodes.
    rules : EvidenceRules, optional
        How to weigh.
    prior : float64, shape (8,)
        Coefficients to begin with.

    Returns
    -------
    Evidence or None
        None where nodes do not go when they shrink, or no shrink has been seen.
    """
    rules = rules or EvidenceRules()
    chain = np.lexsort((start, node))
    chain = chain[end[chain] > start[chain]]
    shrink_at, known_until, stayed = next_shrinks(
        node[chain], start[chain], end[chain], completed[chain], shrank[chain]
    )
    shrinks = int(np.count_nonzero(completed[chain] & shrank[chain]))
    if not shrinks or 1.0 - stayed / shrinks < rules.least_gone:
        return None
    order = np.argsort(start[chain], kind="stable")
    rows = chain[order]
    past = Past(
        node=node[rows],
        start=start[rows],
        end=end[rows],
        completed=completed[rows],
        shrink_at=shrink_at[order],
        known_until=known_until[order],
        by_end=np.argsort(end[rows], kind="stable"),
    )
    moments = np.floor(past.end / rules.step) - np.floor(past.start / rules.step)
    certainty = np.full(WIDTH, rules.certainty)
    certainty[[SINE, COSINE]] = rules.certainty_of_hours
    weighing = Weighing(
        horizon=rules.horizon,
        step=rules.step,
        rate_half_life=rules.rate_half_life,
        presence_half_life=rules.presence_half_life,
        most_half_life=rules.most_half_life,
        usual=rules.usual,
        usual_count=rules.usual_hours * HOUR_SECONDS / rules.step,
    )
    return Evidence(
        learn(past, nodes, now, prior, certainty, weighing, int(moments.sum()) + len(rows)), rules
    )
