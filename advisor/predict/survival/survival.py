"""How long nodes stay as they are: change-time distributions of a pool, and each node's own change rate.

Agarwal et al. (NSDI 2023), section 3.1.1, estimate the distribution of the time between two changes from the
intervals *completed* in the past day. That leaves out exactly the intervals that last: on spot traces it
predicts worse than the base rate. Here the intervals still open count too, for as long as they have lasted
(Kaplan and Meier 1958), and a node that changes more or less often than its pool is known by a gamma-
distributed multiple of the pool's rate (a frailty model, fitted by expectation-maximisation).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from advisor.predict.survival._hazard import (
    AGES,
    FINEST_SECONDS,
    MAX_SECONDS,
    Floats,
    cumulative_at,
    stays,
)
from advisor.predict.survival.evidence import Evidence, EvidenceRules, weigh

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

DAY = 86400.0
GROWTH, SHRINK = 0, 1
"""Direction of a change; a new node counts as grown (the paper's Table 1)."""

LARGEST_CHANGE = 256
"""Changes of more cores than this count as of so many."""

_STEADY = 1e-6  # survival below this is no evidence: the longest interval of a window ends at zero by force
_COARSE_PER_OCTAVE = 2
_COARSE = FINEST_SECONDS * (
    np.exp2(np.arange(1 + _COARSE_PER_OCTAVE * 18) / _COARSE_PER_OCTAVE) - 1.0
)  # edges of the bins in which the hazard is constant
_SHAPES = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
_ALL_ALIKE = 1e6  # shape from which a gamma of mean one is a point for our purposes
_EM_STEPS = 8
_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_MIN_AT_RISK = 1e-3
_MIN_UNCHANGED = 1e-4
_FASTEST = 50.0  # times as fast as the curve, or as slow: beyond, either is wrong


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Times between changes as seen up to now; arrays of length n, seconds.

    Attributes
    ----------
    node : int64
        Whose interval; 0 to the number of nodes - 1.
    start, end : float64
        From one change (or from when the node was first seen) to the next, or to now while open.
    completed : bool
        Whether a change ended it; False for open intervals and for nodes that were given back.
    began, ended : int64
        ``GROWTH`` or ``SHRINK``; ``ended`` means nothing unless completed.
    size : float64
        Cores by which the node changed at the end.
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
        """Nothing seen yet."""
        whole, real = np.zeros(0, np.int64), np.zeros(0)
        return cls(whole, real, real, np.zeros(0, np.bool_), whole, whole, real)

    def since(self, time: float) -> Intervals:
        """Those that reach beyond a moment."""
        kept = self.end > time
        return Intervals(*(getattr(self, name)[kept] for name in Intervals.__slots__))


class Stability(NamedTuple):
    """What is known of a pool's nodes at one moment; a tuple of arrays, so that compiled code reads it.

    Attributes
    ----------
    hazard : float64, shape (POINTS,)
        Cumulative hazard of a change on the grid ``AGES``.
    shrink_after : float64, shape (2,)
        Probability that the next change is a shrink after a growth, after a shrink.
    larger : float64, shape (LARGEST_CHANGE + 1,)
        Probability that a shrink takes more than so many cores.
    shape, rate : float64, shape (nodes,)
        Gamma posterior of each node's own change rate over the pool's; infinite shape: as the pool.
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


def kaplan_meier(lasted: Floats, completed: Bools, entered: Floats | None = None) -> tuple[Floats, Floats]:
    """Survival just after each time at which an interval was seen to end.

    Parameters
    ----------
    lasted : ndarray, shape (n,)
        Length of each interval so far.
    completed : ndarray of bool, shape (n,)
        Whether it ended; False where it still goes on.
    entered : ndarray, shape (n,), optional
        Age at which each came under observation (left truncation); 0 by default.

    Returns
    -------
    times, survival : ndarray
        Ascending, distinct; empty when nothing ended.

    Examples
    --------
    >>> times, survival = kaplan_meier(np.array([1.0, 2.0, 2.0, 4.0]), np.array([True, True, False, False]))
    >>> times.tolist(), survival.tolist()
    ([1.0, 2.0], [0.75, 0.5])
    """
    times, ends = np.unique(lasted[completed], return_counts=True)
    order = np.sort(lasted)
    at_risk = len(order) - np.searchsorted(order, times, side="left")
    if entered is not None:
        at_risk = at_risk - (len(entered) - np.searchsorted(np.sort(entered), times, side="left"))
    left: Floats = np.cumprod(1.0 - ends / np.maximum(at_risk, 1)).astype(np.float64)
    return times, left


def published(
    seen: Intervals, now: float, nodes: int, *, window: float = DAY, to_shrink: bool = False
) -> Stability:
    """The paper's estimate: completed intervals of the past day, all nodes alike.

    Beyond the longest interval of the window the conditional probability is 0/0; a node that old counts as
    staying.

    Parameters
    ----------
    seen : Intervals
        Everything known now.
    now : float
        Seconds.
    nodes : int
        Number of nodes.
    window : float
        D of section 3.1.1, seconds.
    to_shrink : bool
        Appendix B.2 (Eq. 3): the distribution of times from a change to a *shrink*, which then always is one.
    """
    recent = seen.since(now - window)
    chosen = recent.completed & (recent.ended == SHRINK) if to_shrink else recent.completed
    lasted = (recent.end - recent.start)[chosen]
    times, survival = kaplan_meier(lasted, np.ones(len(lasted), np.bool_))
    steps = np.concatenate([np.ones(1), survival])[np.searchsorted(times, AGES, side="right")]
    return Stability(
        hazard=-np.log(np.maximum(steps, _STEADY)),
        shrink_after=np.ones(2) if to_shrink else shrink_probabilities(recent),
        larger=shrink_sizes(recent),
        shape=np.full(nodes, np.inf),
        rate=np.ones(nodes),
    )


def shrink_probabilities(seen: Intervals, prior: float = 1.0) -> Floats:
    """How often a shrink follows a growth, and another shrink (bigrams, section 3.1.1); shape (2,).

    ``prior`` pairs of each kind are added, so that what was never seen is neither certain nor impossible.
    """
    found = np.empty(2)
    for began in (GROWTH, SHRINK):
        mine = seen.completed & (seen.began == began)
        shrinks = np.count_nonzero(seen.ended[mine] == SHRINK)
        found[began] = (shrinks + prior) / (np.count_nonzero(mine) + 2 * prior)
    return found


def shrink_sizes(seen: Intervals) -> Floats:
    """Probability that a shrink takes more than 0, 1, 2, ... cores; certain while no shrink was seen."""
    shrinks = seen.completed & (seen.ended == SHRINK)
    sizes = np.minimum(seen.size[shrinks], LARGEST_CHANGE)
    if not len(sizes):
        return np.ones(LARGEST_CHANGE + 1)
    counts = np.bincount(np.ceil(sizes).astype(np.int64), minlength=LARGEST_CHANGE + 1)
    # a shrink as large as any seen may come again: one more of the largest size stands for the unseen
    beyond = counts[::-1].cumsum()[::-1] - counts
    return np.asarray((beyond + 1.0) / (len(sizes) + 1.0), np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalRules:
    """How :func:`survival` weighs its evidence.

    Attributes
    ----------
    window : float
        Seconds of history; older ends say little of today, but spot pools change only a few times a day.
    memory : float
        Seconds in which a node's own past loses half its weight: nodes change their ways (Figure 3).
    prior_ends : float
        Strength of the smoothing, in ends a bin: how many it takes before a bin speaks for itself.
    own_rate : bool
        Whether nodes have rates of their own.
    evidence : EvidenceRules, optional
        Whether the next hour's forecast is corrected by what else is known of nodes, and how.
    """

    window: float = 30 * DAY
    memory: float = DAY
    prior_ends: float = 2.0
    own_rate: bool = True
    evidence: EvidenceRules | None = field(default_factory=EvidenceRules)


def survival(seen: Intervals, now: float, nodes: int, rules: SurvivalRules | None = None) -> Stability:
    """Our estimate: open intervals count, few ends are smoothed, and each node has its own rate.

    The hazard is constant within bins of half an octave: ends over time at risk, as Kaplan and Meier's
    estimate for binned data, drawn towards ``constant / age``, the shape on which all our traces agree
    (and with which the paper's Figure 13 agrees: the stability required is proportional to the duration).

    Parameters
    ----------
    seen : Intervals
        Everything known now, with the intervals still open.
    now : float
        Seconds.
    nodes : int
        Number of nodes.
    rules : SurvivalRules, optional
        How to weigh it.
    """
    rules = rules or SurvivalRules()
    begin = now - rules.window
    recent = seen.since(begin)
    at_risk, ends = _bins(recent, np.maximum(begin - recent.start, 0.0))
    weight = np.exp2((recent.end - now) / rules.memory)
    changes = _per_node(recent, recent.completed.astype(np.float64) * weight, nodes)
    shape, own, expected = _ALL_ALIKE, _first_guess(recent, at_risk, nodes, rules), np.zeros(nodes)
    rates = np.zeros(len(_COARSE) - 1)
    for _ in range(_EM_STEPS if rules.own_rate else 1):
        rates = _smoothed(ends, (own[recent.node, None] * at_risk).sum(0), rules.prior_ends)
        if rules.own_rate:
            expected = _per_node(recent, (at_risk @ rates) * weight, nodes)
            shape = _likeliest_shape(changes, expected)
            own = (shape + changes) / (shape + expected)
    hazard = np.interp(AGES, _COARSE, np.concatenate([[0.0], np.cumsum(rates * np.diff(_COARSE))]))
    alike = not rules.own_rate or shape >= _ALL_ALIKE
    known = Stability(
        hazard=hazard,
        shrink_after=shrink_probabilities(recent),
        larger=shrink_sizes(recent),
        shape=np.full(nodes, np.inf, np.float64) if alike else shape + changes,
        rate=np.ones(nodes) if alike else shape + expected,
    )
    if rules.evidence is None:
        return known
    shrank = recent.completed & (recent.ended == SHRINK)
    found = weigh(recent.node, recent.start, recent.end, recent.completed, shrank, now, nodes, rules.evidence)
    return known if found is None else corrected(known, recent, now, found)


def corrected(known: Stability, seen: Intervals, now: float, evidence: Evidence) -> Stability:
    """The same curves, run through faster or slower by each node: they meet the forecast at its horizon.

    Parameters
    ----------
    known : Stability
        By the survival curve and each node's own rate.
    seen : Intervals
        Everything known now; a node that is there has one interval that goes on.
    now : float
        Seconds.
    evidence : Evidence
        What else is known.
    """
    horizon = evidence.rules.horizon
    still = np.flatnonzero((seen.end == now) & ~seen.completed)
    shape, rate = known.shape.copy(), known.rate.copy()
    for at in still:
        node, age = int(seen.node[at]), now - float(seen.start[at])
        shrinks = float(known.shrink_after[seen.began[at]])
        unchanged = max(1.0 - (1.0 - evidence.stays(node, age)) / shrinks, _MIN_UNCHANGED)
        coming = cumulative_at(known.hazard, age + horizon) - cumulative_at(known.hazard, age)
        if math.isinf(shape[node]):
            shape[node] = rate[node] = _ALL_ALIKE
        wanted = rate[node] * math.expm1(-math.log(unchanged) / shape[node])
        rate[node] *= min(max(coming / wanted, 1.0 / _FASTEST), _FASTEST)
    return known._replace(shape=shape, rate=rate)


def _per_node(seen: Intervals, weight: Floats, nodes: int) -> Floats:
    """Sum of weights over each node's intervals; shape (nodes,)."""
    return np.bincount(seen.node, weight, nodes).astype(np.float64)


def _first_guess(seen: Intervals, at_risk: Floats, nodes: int, rules: SurvivalRules) -> Floats:
    """Own rates as if no age mattered: begun with all alike, the expectation-maximisation hardly moves."""
    if not rules.own_rate or not len(seen):
        return np.ones(nodes)
    ends = _per_node(seen, seen.completed.astype(np.float64), nodes)
    hours = _per_node(seen, at_risk.sum(1), nodes)
    usual = (ends.sum() + 1.0) / max(hours.sum(), 1.0)
    return np.asarray((1.0 + ends) / (1.0 + hours * usual), np.float64)


def _bins(seen: Intervals, entered: Floats) -> tuple[Floats, Floats]:
    """Seconds each interval was at risk in each bin, shape (n, bins); and ends in each bin."""
    lasted = np.minimum(seen.end - seen.start, MAX_SECONDS)
    low, high = _COARSE[:-1], _COARSE[1:]
    at_risk = np.clip(lasted[:, None], low, high) - np.clip(entered[:, None], low, high)
    bins = np.clip(np.searchsorted(_COARSE, lasted[seen.completed], side="left") - 1, 0, len(low) - 1)
    return np.maximum(at_risk, 0.0), np.bincount(bins, minlength=len(low)).astype(np.float64)


def _smoothed(ends: Floats, at_risk: Floats, prior_ends: float) -> Floats:
    """Rate of each bin, drawn towards the likeliest power of age; shape (bins,)."""
    usual = _usual_rate(ends, at_risk)
    found: Floats = (ends + prior_ends) / (at_risk + prior_ends / usual)
    return found


def _usual_rate(ends: Floats, at_risk: Floats) -> Floats:
    """Rates ``constant * age ** -power``, averaged over powers as likely as they are; shape (bins,)."""
    middle = np.sqrt(_COARSE[1:] * np.maximum(_COARSE[:-1], FINEST_SECONDS / 4))
    likelihood, rates = np.empty(len(_POWERS)), np.empty((len(_POWERS), len(ends)))
    for at, power in enumerate(_POWERS):
        course = middle**-power
        rates[at] = course * (ends.sum() + 0.5) / max(float((at_risk * course).sum()), _MIN_AT_RISK)
        likelihood[at] = float(np.sum(ends * np.log(rates[at]) - at_risk * rates[at]))
    weight = np.exp(likelihood - likelihood.max())
    return np.asarray(weight @ rates / weight.sum(), np.float64)


def _likeliest_shape(changes: Floats, expected: Floats) -> float:
    """Shape of the gamma distribution of rates (mean one) under which the nodes' changes are likeliest."""
    seen = expected > 0
    if np.count_nonzero(seen) < 2:  # one node is its pool
        return _ALL_ALIKE
    count, hope = changes[seen], expected[seen]
    best, best_likelihood = _ALL_ALIKE, float(np.sum(-hope))
    for shape in _SHAPES:
        terms = gammaln(shape + count) - gammaln(shape) + shape * np.log(shape)
        likelihood = float(np.sum(terms - (shape + count) * np.log(shape + hope)))
        if likelihood > best_likelihood:
            best, best_likelihood = float(shape), likelihood
    return best
