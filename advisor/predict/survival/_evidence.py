"""One pass over the past, compiled: what was known of each node then, and what came of it an hour later."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CONSTANT, POOL_RATE, OWN_RATE, AGE, PRESENCE, OTHERS, SINE, COSINE = range(8)
"""Places of what is known of a node; see ``advisor.predict.survival.evidence``."""

WIDTH = 8
DAY_SECONDS = 86400.0
HOUR_SECONDS = 3600.0

_YOUNGEST_SECONDS = 60.0
_WIDEST_AGE = 4.0
_MIN_CHANCE = 0.01  # forecasts are scored by their logarithm: none is certain


class Past(NamedTuple):
    """Intervals by their start, and the order of their ends; shape (n,) each.

    ``shrink_at`` is when the node next shrank after the interval began (infinite: not seen), ``known_until``
    until when it would have been seen.
    """

    node: Ints
    start: Floats
    end: Floats
    completed: Bools
    shrink_at: Floats
    known_until: Floats
    by_end: Ints


class Weighing(NamedTuple):
    """Numbers of ``EvidenceRules``; half-lives and times in seconds."""

    horizon: float
    step: float
    rate_half_life: float
    presence_half_life: float
    most_half_life: float
    usual: float
    usual_count: float


class _Tally(NamedTuple):
    """Sums with fading weight, of each node; the pool's in the last row. Shape (nodes + 1,) each."""

    alive: Floats
    seen: Bools
    ends: Floats
    hours: Floats
    present: Floats
    time: Floats
    until: Floats


@compiled
def _age(tally: _Tally, weighing: Weighing, row: int, now: float) -> None:
    """Bring a row's sums to a moment."""
    passed = now - tally.until[row]
    tally.until[row] = now
    if passed <= 0.0:
        return
    fades = 2.0 ** (-passed / weighing.rate_half_life)
    gained = weighing.rate_half_life / math.log(2.0) / HOUR_SECONDS * (1.0 - fades)
    tally.ends[row] *= fades
    tally.hours[row] = tally.hours[row] * fades + tally.alive[row] * gained
    if tally.seen[row]:
        fades = 2.0 ** (-passed / weighing.presence_half_life)
        there = 1.0 if tally.alive[row] > 0.0 else 0.0
        tally.present[row] = tally.present[row] * fades + there * (1.0 - fades)
        tally.time[row] = tally.time[row] * fades + 1.0 - fades


@compiled
def _note(tally: _Tally, weighing: Weighing, row: int, at: float, began: bool, ended: bool) -> None:  # noqa: FBT001 - compiled
    """An interval of a node begins, or goes (with or without an end of the node as it was)."""
    pool = len(tally.alive) - 1
    _age(tally, weighing, row, at)
    _age(tally, weighing, pool, at)
    for each in (row, pool):
        tally.alive[each] += 1.0 if began else -1.0
        tally.seen[each] = True
        if ended:
            tally.ends[each] += 1.0


@compiled
def describe(tally: _Tally, weighing: Weighing, row: int, most: float, now: float, found: Floats) -> None:
    """What is known of a node now, all but its age; ``found`` has shape (WIDTH,)."""
    pool = len(tally.alive) - 1
    _age(tally, weighing, row, now)
    _age(tally, weighing, pool, now)
    usual = (tally.ends[pool] + 0.5) / (tally.hours[pool] + 5.0)
    found[CONSTANT] = 1.0
    found[POOL_RATE] = math.log(usual)
    found[OWN_RATE] = math.log((tally.ends[row] + 1.0) / (tally.hours[row] * usual + 1.0))
    found[AGE] = 0.0
    found[PRESENCE] = tally.present[row] / tally.time[row] - 1.0 if tally.time[row] > 0.0 else 0.0
    found[OTHERS] = tally.alive[pool] / max(most, 1.0) - 1.0
    turn = 2.0 * math.pi * (now % DAY_SECONDS) / DAY_SECONDS
    found[SINE], found[COSINE] = math.sin(turn), math.cos(turn)


@compiled
def age_term(age: float) -> float:
    """Logarithm of an age in hours, within bounds."""
    hours = math.log((max(age, 0.0) + _YOUNGEST_SECONDS) / HOUR_SECONDS)
    return min(max(hours, -_WIDEST_AGE), _WIDEST_AGE)


@compiled
def chance_of(total: float) -> float:
    """Probability of log-odds, never certain."""
    chance = 1.0 / (1.0 + math.exp(-min(max(total, -30.0), 30.0)))
    return min(max(chance, _MIN_CHANCE), 1.0 - _MIN_CHANCE)


class Learned(NamedTuple):
    """Outcome of the pass over the past.

    ``coefficients`` (WIDTH,); ``known`` (nodes, WIDTH): what is known of each node now, without its age;
    ``rate``: share of the outcomes that were good; ``ends``: shrinks seen. ``samples`` (n, WIDTH),
    ``outcomes`` (n,; NaN: not known), ``moments`` (n,): what was learned from, for tests and other priors.
    """

    coefficients: Floats
    known: Floats
    rate: float
    ends: float
    samples: Floats
    outcomes: Floats
    moments: Floats


class _Course(NamedTuple):
    """Where the pass is: intervals going on and their places, shape (n,); and counters, see below."""

    active: Ints
    place: Ints
    at: Ints
    most: Floats


_ALIVE, _BEGAN, _ENDED, _SHRUNK = range(4)  # of _Course.at: going on; begun, ended so far; shrinks seen
_MOST, _MAX_AT = range(2)  # of _Course.most: most going on at once, fading, and when that was said


@compiled
def _begin(tally: _Tally, course: _Course, past: Past, weighing: Weighing) -> None:
    """The next interval begins."""
    each = course.at[_BEGAN]
    _note(tally, weighing, past.node[each], past.start[each], True, False)
    course.active[course.at[_ALIVE]], course.place[each] = each, course.at[_ALIVE]
    course.at[_ALIVE] += 1
    course.at[_BEGAN] += 1


@compiled
def _end(tally: _Tally, course: _Course, past: Past, weighing: Weighing, now: float) -> None:
    """The next interval to end does, if it is not one that goes on now."""
    each = past.by_end[course.at[_ENDED]]
    course.at[_ENDED] += 1
    if past.end[each] >= now and not past.completed[each]:
        return
    shrank = past.shrink_at[each] == past.end[each]
    _note(tally, weighing, past.node[each], past.end[each], False, shrank)
    course.at[_SHRUNK] += int(shrank)
    course.at[_ALIVE] -= 1
    last = course.active[course.at[_ALIVE]]
    course.active[course.place[each]], course.place[last] = last, course.place[each]


@compiled
def _catch_up(tally: _Tally, course: _Course, past: Past, weighing: Weighing, at: float, now: float) -> None:
    """Everything that began or ended up to a moment, in order; of one moment ends first."""
    while True:
        began, ended = course.at[_BEGAN], course.at[_ENDED]
        start = past.start[began] if began < len(past.start) else math.inf
        end = past.end[past.by_end[ended]] if ended < len(past.end) else math.inf
        if min(start, end) > at or min(start, end) == math.inf:
            break
        if end <= start:
            _end(tally, course, past, weighing, now)
        else:
            _begin(tally, course, past, weighing)
    fades = 2.0 ** (-(at - course.most[_MAX_AT]) / weighing.most_half_life)
    course.most[_MOST] = max(course.most[_MOST] * fades, float(course.at[_ALIVE]))
    course.most[_MAX_AT] = at


@compiled
def _improve(
    samples: Floats, outcomes: Floats, weight: float, coefficients: Floats, precision: Floats
) -> None:
    """One Newton step of a logistic regression that goes on from its last estimate and what it is sure of."""
    slope = np.zeros(WIDTH)
    for at in range(len(outcomes)):
        if math.isnan(outcomes[at]):
            continue
        chance = chance_of(np.dot(samples[at], coefficients))
        for i in range(WIDTH):
            slope[i] += weight * (outcomes[at] - chance) * samples[at, i]
            for j in range(WIDTH):
                precision[i, j] += weight * chance * (1.0 - chance) * samples[at, i] * samples[at, j]
    coefficients += np.linalg.solve(precision, slope)


@compiled
def _outcome(past: Past, each: int, at: float) -> float:
    """Whether the node of an interval had not shrunk by a moment: 1 or 0, NaN where nobody knows."""
    if past.shrink_at[each] <= at:
        return 0.0
    return 1.0 if past.known_until[each] >= at else math.nan


@compiled
def _remember(  # noqa: PLR0917 (compiled functions take positions only)
    tally: _Tally,
    course: _Course,
    past: Past,
    weighing: Weighing,
    at: float,
    made: int,
    samples: Floats,
    outcomes: Floats,
    moments: Floats,
) -> int:
    """Write down what is known now of all that goes on, to learn from it later; returns the lines written."""
    for slot in range(course.at[_ALIVE]):
        each = course.active[slot]
        if past.start[each] >= at:
            continue
        describe(tally, weighing, past.node[each], course.most[_MOST], at, samples[made])
        samples[made, AGE] = age_term(at - past.start[each])
        outcomes[made], moments[made] = _outcome(past, each, at + weighing.horizon), at
        made += 1
    return made


@compiled
def learn(
    past: Past,
    nodes: int,
    now: float,
    prior: Floats,
    certainty: Floats,
    weighing: Weighing,
    most_samples: int,
) -> Learned:
    """Go through the past once, learning from each moment when its outcome was known.

    Parameters
    ----------
    past : Past
        None of length 0.
    nodes : int
        Number of nodes.
    now : float
        Seconds.
    prior, certainty : float64, shape (WIDTH,)
        Coefficients to begin with and how sure they are.
    weighing : Weighing
        How.
    most_samples : int
        No fewer than there are pairs of a moment and an interval that goes on then.
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
    course = _Course(
        np.empty(len(past.node), np.int64),
        np.empty(len(past.node), np.int64),
        np.zeros(4, np.int64),
        np.array([0.0, first]),
    )
    samples = np.empty((most_samples, WIDTH))
    outcomes, moments = np.empty(most_samples), np.empty(most_samples)
    coefficients, precision = prior.copy(), np.diag(certainty)
    made, resolved = 0, 0
    yes, count = weighing.usual * weighing.usual_count, weighing.usual_count
    moment = (math.floor(first / weighing.step) + 1.0) * weighing.step
    while True:
        at = min(moment, now)
        _catch_up(tally, course, past, weighing, at, now)
        while resolved < made and moments[resolved] + weighing.horizon <= at:
            upto = resolved
            while upto < made and moments[upto] == moments[resolved]:
                if not math.isnan(outcomes[upto]):
                    yes, count = yes + outcomes[upto], count + 1.0
                upto += 1
            # nodes of one moment go together, and so do moments less than a horizon apart
            weight = weighing.step / weighing.horizon / math.sqrt(upto - resolved)
            _improve(samples[resolved:upto], outcomes[resolved:upto], weight, coefficients, precision)
            resolved = upto
        if moment > now:
            break
        made = _remember(tally, course, past, weighing, at, made, samples, outcomes, moments)
        moment += weighing.step
    known = np.empty((nodes, WIDTH))
    for node in range(nodes):
        describe(tally, weighing, node, course.most[_MOST], now, known[node])
    return Learned(
        coefficients,
        known,
        yes / count,
        float(course.at[_SHRUNK]),
        samples[:made],
        outcomes[:made],
        moments[:made],
    )


@compiled
def next_shrinks(
    node: Ints, start: Floats, end: Floats, completed: Bools, shrank: Bools
) -> tuple[Floats, Floats, int]:
    """When each interval's node shrank next, until when that would have been seen, and how many stayed then.

    Intervals are in the order of their nodes, then of their starts. One that ends with a growth is followed
    by the next of its node if that begins there and then; so is a shrink that left some of the node. A shrink
    not seen is at infinity.
    """
    shrink_at, known_until = np.full(len(node), math.inf), end.copy()
    stayed = 0
    for at in range(len(node) - 1, -1, -1):
        if not completed[at]:
            continue
        goes_on = at + 1 < len(node) and node[at + 1] == node[at] and start[at + 1] == end[at]
        if shrank[at]:
            shrink_at[at] = end[at]
            stayed += int(goes_on)
        elif goes_on:
            shrink_at[at], known_until[at] = shrink_at[at + 1], known_until[at + 1]
    return shrink_at, known_until, stayed
