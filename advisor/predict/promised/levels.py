"""The levels at which promises are made, so that they are kept as often as they say.

A level moves up when a promise is broken, and down by less when one is kept, in log-odds: adaptive conformal
inference (Gibbs and Candes, NeurIPS 2021). There is one for each kind of promise and each third of the jobs
by size, so that no third pays for another one.

A promise that is paid for is broken in two ways: its job ran too long, in the cloud, which costs a whole
run, or here, or it was not started there, which costs nothing. The level follows the first, which has a part
of the share that may be broken; the strain follows both, so that the second has what is left of that share.

What promises show comes late: of a burst of like jobs hundreds are made before the first is over. Steps are
the smaller the more promises are open (Joulani et al., "Online learning under delayed feedback", ICML 2013),
and a level may rise without limit: it comes back only when what was broken is made up for.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

THIRDS: Final = 3
_STEP: Final = 0.025
_FIRST_STEP: Final = 0.125
_FEW: Final = 20.0
"""The first steps are larger: ``_FIRST_STEP`` by the number of promises and ``_FEW``."""
_LEAST: Final = -2.0  # log-odds
_MOST: Final = 9.0
"""Log-odds at which promises are made at most; the level itself may lie above."""
_SIZE_STEP: Final = 0.03
_SPREAD: Final = 0.5
"""Of the levels of promises to one user that are open together: log-odds for e times as many, both ways."""
_GOLDEN: Final = 0.5 * (math.sqrt(5.0) - 1.0)
_LATE: Final = 0.2
"""Of the promises that may be broken, those whose job has started in the cloud: breaking these is dear."""
_LATE_STEP: Final = 0.0075
_FIRST_STRAIN: Final = math.log(0.3 / 0.7)  # log-odds
_LEAST_STRAIN, _MOST_STRAIN = -4.0, 5.0  # log-odds
_IN_VAIN: Final = (0.15, 0.5)
"""Of what a start in the cloud is expected to cost, at most these shares may be in vain: of any row, and of a
row between, which may be broken more often than the others if fewer of its jobs start."""
_IN_VAIN_WHOLE: Final = (0.3, 0.6)
"""The same for a job that keeps no place on-premise: its start is paid whole, so more of it is in vain."""
_MAY_BE_LOST: Final = 0.4
"""Of the promises that may be broken, those that are late because EC2 takes back a spot instance, at most."""
_MOST_DEAR: Final = 3.0
"""Levels of jobs that are dearer than others of their third rise by as many log-odds at most."""
_DEAR_STEP: Final = 0.01
_MARGIN: Final = 0.2
"""Held back of the share of promises that may be broken: a level follows a shift, and is late by that."""


class Kind(enum.IntEnum):
    """Rows of a price list. Their chances are judged apart, for what may go wrong differs."""

    FREE = 0
    """The job is done by then on-premise, at no cost."""
    SOONEST = 1
    """It starts in the cloud at once."""
    BETWEEN = 2
    """A time between these two: it waits on-premise until the last start in the cloud that is in time."""


def may_be_lost(confidence: float) -> float:
    """The chance that the loss of a spot instance makes a promised job late, at most.

    Args:
        confidence: Share of promises to be kept.
    """
    return _MAY_BE_LOST * (1.0 - confidence)


def most_in_vain(kind: Kind, *, keeps_place: bool) -> float:
    """Of what a start in the cloud is expected to cost, the share that may be in vain at most.

    Args:
        keeps_place: Whether the job keeps its place on-premise while it runs there, and may come back.
    """
    return (_IN_VAIN if keeps_place else _IN_VAIN_WHOLE)[kind == Kind.BETWEEN]


class PromiseLevels:
    """How likely rows of a price list have to be.

    Args:
        confidence: Share of promises to be kept, above 0 and below 1.
        kinds: Kinds of promises that are told apart.
    """

    def __init__(self, confidence: float, kinds: int) -> None:
        self.confidence = confidence
        self._tail = (1.0 - _MARGIN) * (1.0 - confidence)
        self._odds = np.full((kinds, THIRDS), _odds_of(self._tail))
        self._odds[Kind.SOONEST :] = _odds_of(_LATE * self._tail)
        self._strains = np.full((kinds, THIRDS), _FIRST_STRAIN)
        self._count = np.zeros((kinds, THIRDS))
        self._kept = np.zeros((kinds, THIRDS))
        self._sizes = np.array([math.nan, math.nan])
        self._costs = np.full(THIRDS, math.nan)
        self._open = np.zeros((kinds, THIRDS))

    @property
    def made(self) -> int:
        """Promises that are over."""
        return int(self._count.sum())

    @property
    def kept(self) -> int:
        """Those of them that were kept."""
        return int(self._kept.sum())

    def to_array(self) -> NDArray[np.float64]:
        """All that was learned."""
        tables = np.stack((self._odds, self._strains, self._count, self._kept))
        return np.concatenate(([self.confidence], tables.ravel(), self._sizes, self._costs))

    def take(self, array: NDArray[np.float64]) -> None:
        """Go on with what :meth:`to_array` gave; an array that does not fit is left."""
        tables = 1 + 4 * self._odds.size
        if array.shape != (tables + 2 + THIRDS,) or not np.all(np.isfinite(array[:tables])):
            return
        if not 0.0 < array[0] < 1.0:
            return
        self.confidence = float(array[0])
        self._tail = (1.0 - _MARGIN) * (1.0 - self.confidence)
        found = array[1:tables].reshape(4, *self._odds.shape).copy()
        self._odds, self._strains, self._count, self._kept = found
        self._sizes, self._costs = array[tables : tables + 2].copy(), array[tables + 2 :].copy()

    def third_of(self, core_seconds: float) -> int:
        """The third of a job that asks for so many core-seconds, by those of the jobs before it."""
        size = math.log(max(1.0, core_seconds))
        return int(size > self._sizes[0]) + int(size > self._sizes[1])

    def learn_size(self, core_seconds: float) -> None:
        """Learn what a job has asked for."""
        size = math.log(max(1.0, core_seconds))
        if math.isnan(self._sizes[0]):
            self._sizes[:] = size - 0.5, size + 0.5
        self._sizes += _SIZE_STEP * (np.array([1.0, 2.0]) / THIRDS - (size <= self._sizes))
        self._sizes.sort()

    def level(self, kind: int, third: int, alike: int = 0, core_seconds: float = 0.0) -> float:
        """The probability at which a promise of this kind is made to a job of this third.

        Args:
            alike: Promises to the same user that are not judged yet. They are kept or broken together, so
                their levels are spread around the one in force, by multiples of the golden ratio.
            core_seconds: Processors times expected run time of the job. An expensive job that starts in the
                cloud and ends too late costs more than a cheap one, so it gets a later deadline.
        """
        spread = _SPREAD * math.log1p(alike) * (2.0 * math.fmod(alike * _GOLDEN, 1.0) - 1.0)
        if kind != Kind.FREE:
            spread += min(_MOST_DEAR, self._dearer(third, core_seconds))
        return _probability(min(_MOST, self._odds[kind, third]) + spread)

    def strain(self, kind: int, third: int) -> float:
        """How often promises of this kind are broken of late, 0 to 1, so that more of them need a start."""
        return _probability(self._strains[kind, third])

    def thrift(self, third: int, core_seconds: float) -> float:
        """The factor, 0 to 1, by which less of a start of this job may be in vain than of others.

        It is the mean cost of jobs of its third over its own. Without that the few dearest starts that turn
        out to be in vain decide what all promises cost.

        Args:
            core_seconds: Processors times expected run time of the job.
        """
        return math.exp(-self._dearer(third, core_seconds))

    def _dearer(self, third: int, core_seconds: float) -> float:
        """How much dearer a job is than others of its third, as a logarithm; 0: no dearer, or not known."""
        if core_seconds <= 0.0 or math.isnan(self._costs[third]):
            return 0.0
        return max(0.0, math.log(core_seconds) - float(self._costs[third]))

    def made_one(self, kind: int, third: int) -> None:
        """Count a promise as open until :meth:`learn` is told what became of it."""
        self._open[kind, third] += 1.0

    def set_open(self, promises: Iterable[tuple[int, int]]) -> None:
        """Count these promises as open, each by its kind and third, and no others."""
        self._open[:] = 0.0
        for kind, third in promises:
            self.made_one(kind, third)

    def learn(
        self, kind: int, third: int, *, is_kept: bool, by_run: bool = False, core_seconds: float = 0.0
    ) -> None:
        """Learn whether a promise was kept: at the job's end, or at its deadline.

        Args:
            by_run: If it was broken: whether its job had started in the cloud, or started here and ran long,
                so that a later start in the cloud would not have kept it.
            core_seconds: Processors times expected run time of the job.
        """
        self._count[kind, third] += 1.0
        self._kept[kind, third] += is_kept
        first = max(1.0, _FIRST_STEP / _STEP / (1.0 + self._count[kind, third] / _FEW))
        self._open[kind, third] = max(0.0, self._open[kind, third] - 1.0)
        first /= 1.0 + _STEP * self._open[kind, third]
        if kind == Kind.FREE:
            rises, falls, step = not is_kept, self._tail, _STEP
        else:
            rises, falls, step = by_run and not is_kept, _LATE * self._tail, _LATE_STEP
            strained = self._strains[kind, third] + first * _STEP * ((not is_kept) / self._tail - 1.0)
            self._strains[kind, third] = min(_MOST_STRAIN, max(_LEAST_STRAIN, strained))
        moved = self._odds[kind, third] + first * step * (rises / falls - 1.0)
        self._odds[kind, third] = max(_LEAST, moved)
        if core_seconds > 0.0:
            cost = math.log(core_seconds)
            known = cost if math.isnan(self._costs[third]) else self._costs[third]
            self._costs[third] = known + _DEAR_STEP * (cost - known)


def _odds_of(tail: float) -> float:
    """Log-odds of the probability that this tail leaves."""
    return math.log((1.0 - tail) / tail)


def _probability(log_odds: float) -> float:
    return float(1.0 / (1.0 + math.exp(-log_odds)))
