"""How long nodes stay unchanged: a survival curve for the pool and a change rate for each node.

Live, spot pools stand for nodes (`advisor.predict.survival.pool_survival`); replays have a trace's nodes.

Agarwal et al. (NSDI 2023), section 3.1.1, estimate the distribution of the time between two changes from the
intervals *completed* in the past day. That leaves out exactly the intervals that last, and on spot traces it
predicts worse than the base rate. Here the open intervals count too, for as long as they have lasted (Kaplan
and Meier 1958), and each node's rate is a gamma-distributed multiple of the pool's (a frailty model, fitted
by expectation-maximisation).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from advisor.arrays import Bools, Floats, Ints
from advisor.predict.survival.hazard import AGES, FINEST_SECONDS, MAX_SECONDS, stays

DAY = 86400.0
GROWTH, SHRINK = 0, 1
"""Direction of a change; a new node counts as grown (the paper's Table 1)."""

MAX_CHANGE_CORES = 256
"""Larger changes count as changes of this many cores."""

_BINS_PER_OCTAVE = 2
_BIN_EDGES = FINEST_SECONDS * (
    np.exp2(np.arange(1 + _BINS_PER_OCTAVE * 18) / _BINS_PER_OCTAVE) - 1.0
)  # edges of the bins in which the hazard is constant
_SHAPES = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
SAME_RATE_SHAPE = 1e6
"""A gamma distribution of mean one and at least this shape counts as a point: all nodes have one rate."""
WINDOW_SECONDS = 30 * DAY
"""Intervals that ended earlier are ignored. Spot pools change a few times a day, so less would be too few."""
_OWN_RATE_HALF_LIFE_SECONDS = DAY  # of a node's own past: rates of nodes change (Figure 3)
_PRIOR_ENDS = 2.0  # strength of the smoothing, in ends per bin
_EM_STEPS = 8
_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_MIN_AT_RISK = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Times between changes as seen up to now; arrays of length n.

    Attributes:
        node: Number of the node, from 0.
        start, end: Seconds: from one change (or from when the node was first seen) to the next, or to now
            while open.
        completed: Whether a change ended it; False for open intervals and for nodes that were given back.
        began, ended: ``GROWTH`` or ``SHRINK``; ``ended`` is undefined unless completed.
        size: Cores by which the node changed at the end.
    """

    node: Ints
    start: Floats
    end: Floats
    completed: Bools
    began: Ints
    ended: Ints
    size: Floats

    def __len__(self) -> int:
        return len(self.node)

    @classmethod
    def empty(cls) -> Intervals:
        """No interval."""
        whole, real = np.zeros(0, np.int64), np.zeros(0)
        return cls(whole, real, real, np.zeros(0, np.bool_), whole, whole, real)

    def since(self, time: float) -> Intervals:
        """The intervals that end after ``time``."""
        kept = self.end > time
        return Intervals(*(getattr(self, name)[kept] for name in Intervals.__slots__))


class SurvivalModel(NamedTuple):
    """Survival of a pool's nodes at one moment; a tuple of arrays, so that compiled code can read it.

    Attributes:
        hazard: float64, shape (POINTS,): Cumulative hazard of a change on the grid ``AGES``.
        shrink_after: float64, shape (2,): Probability that the next change is a shrink, after a growth and
            after a shrink.
        larger: float64, shape (MAX_CHANGE_CORES + 1,): Probability that a shrink takes more than so many
            cores.
        shape, rate: float64, shape (nodes,): Gamma posterior of each node's change rate over the pool's;
            infinite shape: the pool's own rate.
    """

    hazard: Floats
    shrink_after: Floats
    larger: Floats
    shape: Floats
    rate: Floats

    def completion_probability(self, node: int, last: int, age: float, during: float) -> float:
        """P_c(x, e, d) of Eq. 1: no shrink within ``during`` seconds of a node unchanged for ``age``."""
        unchanged = stays(self.hazard, self.shape[node], self.rate[node], age, during)
        return float(1.0 - self.shrink_after[last] * (1.0 - unchanged))


def shrink_probabilities(seen: Intervals) -> Floats:
    """Probability of a shrink after a growth and after a shrink (bigrams, section 3.1.1); shape (2,).

    One pair of each kind is added, so that no probability is 0 or 1.
    """
    probabilities = np.empty(2)
    for began in (GROWTH, SHRINK):
        chosen = seen.completed & (seen.began == began)
        shrinks = np.count_nonzero(seen.ended[chosen] == SHRINK)
        probabilities[began] = (shrinks + 1.0) / (np.count_nonzero(chosen) + 2.0)
    return probabilities


def shrink_sizes(seen: Intervals) -> Floats:
    """Probability that a shrink takes more than 0, 1, 2, ... cores; 1 while no shrink was seen."""
    shrinks = seen.completed & (seen.ended == SHRINK)
    sizes = np.minimum(seen.size[shrinks], MAX_CHANGE_CORES)
    if not len(sizes):
        return np.ones(MAX_CHANGE_CORES + 1)
    counts = np.bincount(np.ceil(sizes).astype(np.int64), minlength=MAX_CHANGE_CORES + 1)
    larger = counts[::-1].cumsum()[::-1] - counts  # one more, of the largest size, stands for the unseen
    return np.asarray((larger + 1.0) / (len(sizes) + 1.0), np.float64)


def fit_survival(seen: Intervals, now: float, nodes: int) -> SurvivalModel:
    """Fit the model to everything known at ``now`` (seconds), open intervals included.

    The hazard is constant within bins of half an octave of age: ends over time at risk, which is Kaplan and
    Meier's estimate for binned data. It is smoothed towards the likeliest power of age; all our traces have a
    rate near ``constant / age``, as the paper's Figure 13 has (the required stability is proportional to the
    duration).
    """
    begin = now - WINDOW_SECONDS
    recent = seen.since(begin)
    at_risk, ends = _bins(recent, np.maximum(begin - recent.start, 0.0))
    weight = np.exp2((recent.end - now) / _OWN_RATE_HALF_LIFE_SECONDS)
    changes = _per_node(recent, recent.completed.astype(np.float64) * weight, nodes)
    shape, own, expected = SAME_RATE_SHAPE, _first_guess(recent, at_risk, nodes), np.zeros(nodes)
    rates = np.zeros(len(_BIN_EDGES) - 1)
    for _ in range(_EM_STEPS):
        rates = _smoothed(ends, (own[recent.node, None] * at_risk).sum(0))
        expected = _per_node(recent, (at_risk @ rates) * weight, nodes)
        shape = _likeliest_shape(changes, expected)
        own = (shape + changes) / (shape + expected)
    cumulative = np.concatenate([[0.0], np.cumsum(rates * np.diff(_BIN_EDGES))])
    same_rate = shape >= SAME_RATE_SHAPE
    return SurvivalModel(
        hazard=np.interp(AGES, _BIN_EDGES, cumulative),
        shrink_after=shrink_probabilities(recent),
        larger=shrink_sizes(recent),
        shape=np.full(nodes, np.inf, np.float64) if same_rate else shape + changes,
        rate=np.ones(nodes) if same_rate else shape + expected,
    )


def _per_node(seen: Intervals, weight: Floats, nodes: int) -> Floats:
    """Sum of weights over each node's intervals; shape (nodes,)."""
    return np.bincount(seen.node, weight, nodes).astype(np.float64)


def _first_guess(seen: Intervals, at_risk: Floats, nodes: int) -> Floats:
    """Own rates as if age did not matter: started from equal rates, the EM steps hardly move."""
    if not len(seen):
        return np.ones(nodes)
    ends = _per_node(seen, seen.completed.astype(np.float64), nodes)
    hours = _per_node(seen, at_risk.sum(1), nodes)
    usual = (ends.sum() + 1.0) / max(hours.sum(), 1.0)
    return np.asarray((1.0 + ends) / (1.0 + hours * usual), np.float64)


def _bins(seen: Intervals, entered: Floats) -> tuple[Floats, Floats]:
    """Seconds that each interval was at risk in each bin, shape (n, bins); and ends in each bin."""
    lasted = np.minimum(seen.end - seen.start, MAX_SECONDS)
    low, high = _BIN_EDGES[:-1], _BIN_EDGES[1:]
    at_risk = np.clip(lasted[:, None], low, high) - np.clip(entered[:, None], low, high)
    bins = np.clip(np.searchsorted(_BIN_EDGES, lasted[seen.completed], side="left") - 1, 0, len(low) - 1)
    return np.maximum(at_risk, 0.0), np.bincount(bins, minlength=len(low)).astype(np.float64)


def _smoothed(ends: Floats, at_risk: Floats) -> Floats:
    """Rate of each bin, smoothed towards the likeliest power of age; shape (bins,)."""
    usual = _usual_rate(ends, at_risk)
    found: Floats = (ends + _PRIOR_ENDS) / (at_risk + _PRIOR_ENDS / usual)
    return found


def _usual_rate(ends: Floats, at_risk: Floats) -> Floats:
    """Rates ``constant * age ** -power``, averaged over the powers by their likelihood; shape (bins,)."""
    middle = np.sqrt(_BIN_EDGES[1:] * np.maximum(_BIN_EDGES[:-1], FINEST_SECONDS / 4))
    likelihood, rates = np.empty(len(_POWERS)), np.empty((len(_POWERS), len(ends)))
    for i, power in enumerate(_POWERS):
        by_age = middle**-power
        rates[i] = by_age * (ends.sum() + 0.5) / max(float((at_risk * by_age).sum()), _MIN_AT_RISK)
        likelihood[i] = float(np.sum(ends * np.log(rates[i]) - at_risk * rates[i]))
    weight = np.exp(likelihood - likelihood.max())
    return np.asarray(weight @ rates / weight.sum(), np.float64)


def _likeliest_shape(changes: Floats, expected: Floats) -> float:
    """Maximum-likelihood shape of the gamma distribution (mean one) of the nodes' rates."""
    seen = expected > 0
    if np.count_nonzero(seen) < 2:  # a single node has the pool's rate
        return SAME_RATE_SHAPE
    count, mean = changes[seen], expected[seen]
    nodes = Counter(count.tolist())
    best, best_likelihood = SAME_RATE_SHAPE, float(np.sum(-mean))
    for shape in _SHAPES:
        of_nodes = sum(times * math.lgamma(shape + each) for each, times in nodes.items())
        terms = shape * np.log(shape) - math.lgamma(shape) - (shape + count) * np.log(shape + mean)
        likelihood = of_nodes + float(np.sum(terms))
        if likelihood > best_likelihood:
            best, best_likelihood = float(shape), likelihood
    return best
