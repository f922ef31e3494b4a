"""A correction of the survival forecast for the next hour, by a logistic regression on further evidence.

``advisor.predict.survival.node_survival`` knows ages and each node's own rate. Where nodes come and go there
is more evidence: the share of the last hours a node was there, the share of all nodes that are there, and the
time of day. A logistic regression of "not lost within the horizon" on these goes through the past once: every
half hour the features are stored, and learned from a horizon later, when the outcome was known. It starts
from coefficients fitted on other pools (``PRIOR``). While few losses have been seen, the forecast is shrunk
to the plain rate of outcomes, the forecast that needs no model; with two dozen losses it is hard to beat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from advisor.arrays import Bools, Floats, Ints
from advisor.papers.stability._evidence import (
    AGE,
    COSINE,
    SINE,
    WIDTH,
    EvidenceRules,
    Learned,
    Past,
    age_term,
    chance_of,
    learn,
    next_shrinks,
)
from advisor.predict.survival.hazard import cumulative_at
from advisor.predict.survival.node_survival import (
    SAME_RATE_SHAPE,
    SHRINK,
    WINDOW_SECONDS,
    Intervals,
    SurvivalModel,
    fit_survival,
)

PRIOR: Floats = np.array([0.9, -0.25, -0.7, 0.45, 1.2, 1.1, 0.0, 0.0])
"""Initial coefficients: constant, log of the pool's losses per hour, log of the node's own rate over the
pool's, log of its age in hours, share of time present - 1, share of all nodes present - 1, time of day (sine,
cosine). Fitted on the spot traces of 2023 that the replay is run on: their scores know a little of the
future, .002 of the mean skill (docs/measurements.md).
"""

_RULES = EvidenceRules()
_MIN_RATE = 1e-3
_MIN_UNCHANGED = 1e-4
_FASTEST = 50.0  # a rate further from the curve's than this factor is wrong


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The fitted regression at one moment."""

    learned: Learned
    rules: EvidenceRules

    def stays(self, node: int, age: float) -> float:
        """Probability that a node of this age in seconds is not lost within the horizon."""
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
    rules: EvidenceRules = _RULES,
    prior: Floats = PRIOR,
) -> Evidence | None:
    """Fit the regression to what is known now.

    Args:
        node, start, end, completed: ndarray, shape (n,): As in
            ``advisor.predict.survival.node_survival.Intervals``, with the intervals still open.
        shrank: ndarray of bool, shape (n,): Whether the end was a shrink.
        now: Seconds.
        nodes: Number of nodes.
        prior: float64, shape (8,): Initial coefficients.

    Returns:
        None where nodes do not go when they shrink, or where no shrink has been seen.
    """
    chain = np.lexsort((start, node))
    chain = chain[end[chain] > start[chain]]
    shrink_at, known_until, stayed = next_shrinks(
        node[chain], start[chain], end[chain], completed[chain], shrank[chain]
    )
    shrinks = int(np.count_nonzero(completed[chain] & shrank[chain]))
    if not shrinks or 1.0 - stayed / shrinks < rules.min_gone_share:
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
    return Evidence(learn(past, nodes, now, prior, certainty, rules, int(moments.sum()) + len(rows)), rules)


def corrected(known: SurvivalModel, seen: Intervals, now: float, evidence: Evidence) -> SurvivalModel:
    """Scale each node's change rate so that its curve meets the regression's forecast at the horizon."""
    horizon = evidence.rules.horizon
    still_open = np.flatnonzero((seen.end == now) & ~seen.completed)
    shape, rate = known.shape.copy(), known.rate.copy()
    for i in still_open:
        node, age = int(seen.node[i]), now - float(seen.start[i])
        shrinks = float(known.shrink_after[seen.began[i]])
        unchanged = max(1.0 - (1.0 - evidence.stays(node, age)) / shrinks, _MIN_UNCHANGED)
        coming = cumulative_at(known.hazard, age + horizon) - cumulative_at(known.hazard, age)
        if math.isinf(shape[node]):
            shape[node] = rate[node] = SAME_RATE_SHAPE
        wanted = rate[node] * math.expm1(-math.log(unchanged) / shape[node])
        rate[node] *= min(max(coming / wanted, 1.0 / _FASTEST), _FASTEST)
    return known._replace(shape=shape, rate=rate)


def survival_with_evidence(seen: Intervals, now: float, nodes: int) -> SurvivalModel:
    """Survival curves (:func:`fit_survival`) whose forecast for the next hour is corrected by evidence."""
    known = fit_survival(seen, now, nodes)
    recent = seen.since(now - WINDOW_SECONDS)
    shrank = recent.completed & (recent.ended == SHRINK)
    found = weigh(recent.node, recent.start, recent.end, recent.completed, shrank, now, nodes)
    return known if found is None else corrected(known, recent, now, found)
