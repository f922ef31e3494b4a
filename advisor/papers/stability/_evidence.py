"""The compiled pass over the past: each node's features at each moment, and whether it stayed an hour."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from advisor.arrays import Bools, Floats, Ints
from advisor.compiled import compiled

CONSTANT, POOL_RATE, OWN_RATE, AGE, PRESENCE, OTHERS, SINE, COSINE = range(8)
"""Places of what is known of a node; see ``advisor.papers.stability.evidence``."""

WIDTH = 8
DAY_SECONDS = 86400.0
HOUR_SECONDS = 3600.0

_YOUNGEST_SECONDS = 60.0
_WIDEST_AGE = 4.0
_MIN_CHANCE = 0.01  # forecasts are scored by their logarithm: none is certain


class Past(NamedTuple):
    """Intervals in the order of their starts, and the order of their ends; shape (n,) each, seconds.

    ``shrink_at`` is when the node next shrank after the interval began (infinite where that was not seen),
    and ``known_until`` until when a shrink would have been seen.
    """

    node: Ints
    start: Floats
    end: Floats
    completed: Bools
    shrink_at: Floats
    known_until: Floats
    by_end: Ints


class EvidenceRules(NamedTuple):
    """Constants of the regression; half-lives and times in seconds.

    Attributes:
        horizon: The forecast is: no loss within this time.
        step: Between the moments that are learned from.
        rate_half_life: Of losses, of the pool and of each node.
        presence_half_life: Of the times a node was present or absent.
        peak_half_life: Of the highest number of nodes there have been.
        certainty, certainty_of_hours: Inverse variances of the prior's coefficients, and of those of the time
            of day.
        trusted_from, steepness: Losses seen from which the evidence has half the weight, the plain rate of
            outcomes the other half; and the power by which its weight grows with losses.
        usual, usual_hours: Prior of the plain rate of outcomes, and the node-hours it counts as.
        min_gone_share: Share of shrinks that took the whole node from which the regression applies. Nodes
            that only change their size are always present, and their curves are better forecasts.
    """

    horizon: float = HOUR_SECONDS
    step: float = 1800.0
    rate_half_life: float = 30 * DAY_SECONDS
    presence_half_life: float = 6 * HOUR_SECONDS
    peak_half_life: float = 30 * DAY_SECONDS
    certainty: float = 100.0
    certainty_of_hours: float = 20.0
    trusted_from: float = 40.0
    steepness: float = 3.0
    usual: float = 0.75
    usual_hours: float = 4.0
    min_gone_share: float = 0.5


class _Tally(NamedTuple):
    """Exponentially decaying sums for each node, the pool's in the last row; shape (nodes + 1,) each."""

    alive: Floats
    seen: Bools
    ends: Floats
    hours: Floats
    present: Floats
    time: Floats
    until: Floats


@compiled
def _age(tally: _Tally, rules: EvidenceRules, row: int, now: float) -> None:
    """Decay a row's sums to the time ``now``."""
    passed = now - tally.until[row]
    tally.until[row] = now
    if passed <= 0.0:
        return
    decay = 2.0 ** (-passed / rules.rate_half_life)
    gained = rules.rate_half_life / math.log(2.0) / HOUR_SECONDS * (1.0 - decay)
    tally.ends[row] *= decay
    tally.hours[row] = tally.hours[row] * decay + tally.alive[row] * gained
    if tally.seen[row]:
        decay = 2.0 ** (-passed / rules.presence_half_life)
        there = 1.0 if tally.alive[row] > 0.0 else 0.0
        tally.present[row] = tally.present[row] * decay + there * (1.0 - decay)
        tally.time[row] = tally.time[row] * decay + 1.0 - decay


@compiled
def _note(tally: _Tally, rules: EvidenceRules, row: int, at: float, began: bool, ended: bool) -> None:  # noqa: FBT001 - compiled
    """Count the begin or the end of an interval; ``ended`` says whether the node shrank."""
    pool = len(tally.alive) - 1
    _age(tally, rules, row, at)
    _age(tally, rules, pool, at)
    for changed in (row, pool):
        tally.alive[changed] += 1.0 if began else -1.0
        tally.seen[changed] = True
        if ended:
            tally.ends[changed] += 1.0


@compiled
def describe(tally: _Tally, rules: EvidenceRules, row: int, peak: float, now: float, found: Floats) -> None:
    """Write a node's features at ``now`` into ``found``, shape (WIDTH,), with 0 for its age."""
    pool = len(tally.alive) - 1
    _age(tally, rules, row, now)
    _age(tally, rules, pool, now)
    usual = (tally.ends[pool] + 0.5) / (tally.hours[pool] + 5.0)
    found[CONSTANT] = 1.0
    found[POOL_RATE] = math.log(usual)
    found[OWN_RATE] = math.log((tally.ends[row] + 1.0) / (tally.hours[row] * usual + 1.0))
    found[AGE] = 0.0
    found[PRESENCE] = tally.present[row] / tally.time[row] - 1.0 if tally.time[row] > 0.0 else 0.0
    found[OTHERS] = tally.alive[pool] / max(peak, 1.0) - 1.0
    angle = 2.0 * math.pi * (now % DAY_SECONDS) / DAY_SECONDS
    found[SINE], found[COSINE] = math.sin(angle), math.cos(angle)


@compiled
def age_term(age: float) -> float:
    """Logarithm of an age in hours, bounded."""
    hours = math.log((max(age, 0.0) + _YOUNGEST_SECONDS) / HOUR_SECONDS)
    return min(max(hours, -_WIDEST_AGE), _WIDEST_AGE)


@compiled
def chance_of(total: float) -> float:
    """Probability of log-odds, kept away from 0 and 1."""
    chance = 1.0 / (1.0 + math.exp(-min(max(total, -30.0), 30.0)))
    return min(max(chance, _MIN_CHANCE), 1.0 - _MIN_CHANCE)


class Learned(NamedTuple):
    """Result of the pass over the past.

    ``coefficients`` (WIDTH,); ``known`` (nodes, WIDTH): features of each node now, without its age; ``rate``:
    share of the intervals that stayed; ``ends``: shrinks seen. ``samples`` (n, WIDTH), ``outcomes`` (n,; NaN:
    unknown) and ``moments`` (n,) are what was learned from.
    """

    coefficients: Floats
    known: Floats
    rate: float
    ends: float
    samples: Floats
    outcomes: Floats
    moments: Floats


class _Pass(NamedTuple):
    """Progress of the pass over the past."""

    active: Ints  # the open intervals, shape (n,)
    place: Ints  # where each interval is in `active`, shape (n,)
    counters: Ints
    peak: Floats


_ALIVE, _BEGAN, _ENDED, _SHRUNK = range(4)  # of _Pass.counters: open, begun, ended intervals; shrinks
_PEAK, _PEAK_TIME = range(2)  # of _Pass.peak: decaying maximum of open intervals, and its last update


@compiled
def _begin(tally: _Tally, progress: _Pass, past: Past, rules: EvidenceRules) -> None:
    """Open the next interval."""
    interval = progress.counters[_BEGAN]
    _note(tally, rules, past.node[interval], past.start[interval], True, False)
    progress.active[progress.counters[_ALIVE]] = interval
    progress.place[interval] = progress.counters[_ALIVE]
    progress.counters[_ALIVE] += 1
    progress.counters[_BEGAN] += 1


@compiled
def _end(tally: _Tally, progress: _Pass, past: Past, rules: EvidenceRules, now: float) -> None:
    """Close the next interval to end, unless it is still open now."""
    interval = past.by_end[progress.counters[_ENDED]]
    progress.counters[_ENDED] += 1
    if past.end[interval] >= now and not past.completed[interval]:
        return
    shrank = past.shrink_at[interval] == past.end[interval]
    _note(tally, rules, past.node[interval], past.end[interval], False, shrank)
    progress.counters[_SHRUNK] += int(shrank)
    progress.counters[_ALIVE] -= 1
    last = progress.active[progress.counters[_ALIVE]]
    progress.active[progress.place[interval]] = last
    progress.place[last] = progress.place[interval]


@compiled
def _catch_up(
    tally: _Tally, progress: _Pass, past: Past, rules: EvidenceRules, time: float, now: float
) -> None:
    """Process all begins and ends up to ``time`` in order; at equal times ends come first."""
    while True:
        began, ended = progress.counters[_BEGAN], progress.counters[_ENDED]
        start = past.start[began] if began < len(past.start) else math.inf
        end = past.end[past.by_end[ended]] if ended < len(past.end) else math.inf
        if min(start, end) > time or min(start, end) == math.inf:
            break
        if end <= start:
            _end(tally, progress, past, rules, now)
        else:
            _begin(tally, progress, past, rules)
    decay = 2.0 ** (-(time - progress.peak[_PEAK_TIME]) / rules.peak_half_life)
    progress.peak[_PEAK] = max(progress.peak[_PEAK] * decay, float(progress.counters[_ALIVE]))
    progress.peak[_PEAK_TIME] = time


@compiled
def _improve(
    samples: Floats, outcomes: Floats, weight: float, coefficients: Floats, precision: Floats
) -> None:
    """One Newton step of a logistic regression, from its last coefficients and their precision."""
    slope = np.zeros(WIDTH)
    for row in range(len(outcomes)):
        if math.isnan(outcomes[row]):
            continue
        chance = chance_of(np.dot(samples[row], coefficients))
        for i in range(WIDTH):
            slope[i] += weight * (outcomes[row] - chance) * samples[row, i]
            for j in range(WIDTH):
                precision[i, j] += weight * chance * (1.0 - chance) * samples[row, i] * samples[row, j]
    coefficients += np.linalg.solve(precision, slope)


@compiled
def _outcome(past: Past, interval: int, time: float) -> float:
    """1 where the interval's node had not shrunk by ``time``, 0 where it had, NaN where that is unknown."""
    if past.shrink_at[interval] <= time:
        return 0.0
    return 1.0 if past.known_until[interval] >= time else math.nan


@compiled
def _take_samples(  # noqa: PLR0917 (compiled functions take positions only)
    tally: _Tally,
    progress: _Pass,
    past: Past,
    rules: EvidenceRules,
    time: float,
    count: int,
    samples: Floats,
    outcomes: Floats,
    moments: Floats,
) -> int:
    """Store the features of all open intervals, to learn from later; returns the number of samples."""
    for slot in range(progress.counters[_ALIVE]):
        interval = progress.active[slot]
        if past.start[interval] >= time:
            continue
        describe(tally, rules, past.node[interval], progress.peak[_PEAK], time, samples[count])
        samples[count, AGE] = age_term(time - past.start[interval])
        outcomes[count], moments[count] = _outcome(past, interval, time + rules.horizon), time
        count += 1
    return count


@compiled
def learn(
    past: Past,
    nodes: int,
    now: float,
    prior: Floats,
    certainty: Floats,
    rules: EvidenceRules,
    max_samples: int,
) -> Learned:
    """Go through the past once and learn from each moment as soon as its outcome was known.

    Args:
        past: At least one interval.
        now: Seconds.
        prior, certainty: float64, shape (WIDTH,): Initial coefficients and their inverse variances.
        max_samples: At least the number of pairs of a moment and an interval that is open then.
    """
    first = past.start[0] if len(past.start) else now
    tally = _Tally(
        np.zeros(nodes + 1),
        np.zeros(nodes + 1, np.bool_),
        np.zeros(nodes + 1),
        np.zeros(nodes + 1),
        np.zeros(nodes + 1),
        np.zeros(nodes + 1),
        np.full(nodes + 1, first),
    )
    progress = _Pass(
        np.empty(len(past.node), np.int64),
        np.empty(len(past.node), np.int64),
        np.zeros(4, np.int64),
        np.array([0.0, first]),
    )
    samples = np.empty((max_samples, WIDTH))
    outcomes, moments = np.empty(max_samples), np.empty(max_samples)
    coefficients, precision = prior.copy(), np.diag(certainty)
    taken, resolved = 0, 0
    count = rules.usual_hours * HOUR_SECONDS / rules.step
    stayed = rules.usual * count
    moment = (math.floor(first / rules.step) + 1.0) * rules.step
    while True:
        time = min(moment, now)
        _catch_up(tally, progress, past, rules, time, now)
        while resolved < taken and moments[resolved] + rules.horizon <= time:
            end = resolved
            while end < taken and moments[end] == moments[resolved]:
                if not math.isnan(outcomes[end]):
                    stayed, count = stayed + outcomes[end], count + 1.0
                end += 1
            # outcomes of one moment are correlated, and so are moments less than a horizon apart
            weight = rules.step / rules.horizon / math.sqrt(end - resolved)
            _improve(samples[resolved:end], outcomes[resolved:end], weight, coefficients, precision)
            resolved = end
        if moment > now:
            break
        taken = _take_samples(tally, progress, past, rules, time, taken, samples, outcomes, moments)
        moment += rules.step
    known = np.empty((nodes, WIDTH))
    for node in range(nodes):
        describe(tally, rules, node, progress.peak[_PEAK], now, known[node])
    return Learned(
        coefficients,
        known,
        stayed / count,
        float(progress.counters[_SHRUNK]),
        samples[:taken],
        outcomes[:taken],
        moments[:taken],
    )


@compiled
def next_shrinks(
    node: Ints, start: Floats, end: Floats, completed: Bools, shrank: Bools
) -> tuple[Floats, Floats, int]:
    """When each interval's node shrank next, until when that would have been seen; and the partial shrinks.

    Intervals are in the order of their nodes, then of their starts. One that ends with a growth is followed
    by the node's next interval if that begins at the same time; so is a shrink that left some of the node. A
    shrink that was not seen is at infinity.
    """
    shrink_at, known_until = np.full(len(node), math.inf), end.copy()
    stayed = 0
    for i in range(len(node) - 1, -1, -1):
        if not completed[i]:
            continue
        goes_on = i + 1 < len(node) and node[i + 1] == node[i] and start[i + 1] == end[i]
        if shrank[i]:
            shrink_at[i] = end[i]
            stayed += int(goes_on)
        elif goes_on:
            shrink_at[i], known_until[i] = shrink_at[i + 1], known_until[i + 1]
    return shrink_at, known_until, stayed
