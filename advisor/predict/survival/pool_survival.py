"""How long the nodes of each pool live, from the lives of the instances seen there. Pure.

An EC2 instance changes once: EC2 takes it, and that is its end. So what repeats itself, and can be known from
its own past, is the pool (`advisor.predict.survival.survival` gives each of its "nodes" a rate of its own:
here a pool
is one); what tells the instances of a pool apart is their age, by the curve they share. A site without any
history begins with a few imaginary lives, which a few days of its own outweigh.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.predict.survival._hazard import Floats, stays
from advisor.predict.survival.survival import GROWTH, SHRINK, Intervals, Stability, SurvivalRules, survival

HOUR: Final = 3600.0
PRIOR_ENDED_HOURS: Final = (1.0, 4.0, 16.0, 64.0)
PRIOR_OPEN_HOURS: Final = (24.0, 24.0, 24.0, 24.0)
"""Imaginary lives of a site that has seen none: one end in about two days, as many in the first hour as in
the three after it. EC2 publishes 5 to 20 % of instances interrupted a month; traces of busy pools show an end
a day and more. In between: wrong by a factor of ten either way, four ends are soon outweighed."""

_PRIOR, _UNKNOWN = 0, 1  # rows of the fitted model: the imaginary lives; a pool of which nothing is known
_NEVER: Final = 1e12  # rate of the gamma law of a node that nobody takes back

# `advisor.predict.survival.evidence` asks how much of the time a node was there: not known of a pool from
# which nobody
# asked for an instance. And it was fitted on pools that lose nodes every few hours, not every few months.
_CURVES_ALONE: Final = SurvivalRules(evidence=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One instance's life as far as it is known.

    Attributes
    ----------
    pool : str
        Where it was had.
    start, end : float
        Seconds; ``end`` is now while it goes on.
    was_taken : bool
        Whether its provider ended it; False while it goes on, and where we gave it back.
    """

    pool: str
    start: float
    end: float
    was_taken: bool


@dataclass(frozen=True, slots=True, eq=False)
class PoolSurvival:
    """Survival of every pool's nodes at one moment; see `pool_survival`.

    Attributes
    ----------
    stability : Stability
        The fitted model, a row a pool.
    rows : dict
        Pool to row.
    """

    stability: Stability
    rows: dict[str, int]

    def of_nodes(self, pools: Sequence[str | None]) -> Stability:
        """The model with a row a node, as the match maker takes it.

        Parameters
        ----------
        pools : sequence of str or None
            Each node's pool; None: a node that nobody takes back (on-demand, reserved).
        """
        rows = [self._row(pool) for pool in pools]
        fixed = np.array([pool is None for pool in pools], np.bool_)
        shape, rate = self.stability.shape[rows], self.stability.rate[rows]
        return self.stability._replace(
            shape=np.where(fixed, 1.0, shape).astype(np.float64),
            rate=np.where(fixed, _NEVER, rate).astype(np.float64),
        )

    def survives(self, pool: str | None, age: float, during: float) -> float:
        """Probability that a node of a pool, so many seconds old, is not taken for so many more."""
        if pool is None:
            return 1.0
        row = self._row(pool)
        known = self.stability
        return float(stays(known.hazard, known.shape[row], known.rate[row], age, during))

    def _row(self, pool: str | None) -> int:
        return self.rows.get(pool or "", _UNKNOWN)


def pool_survival(
    lives: Iterable[Life],
    now: float,
    pools: Collection[str] = (),
    rules: SurvivalRules | None = None,
) -> PoolSurvival:
    """Fit the model to what is known now.

    Parameters
    ----------
    lives : iterable of Life
        Ended and going on, in any order.
    now : float
        Seconds, on the clock of the lives.
    pools : collection of str
        Pools to have a row although they may have had no life yet.
    rules : SurvivalRules, optional
        How to weigh the evidence.

    Examples
    --------
    >>> day = 86400.0
    >>> short = [Life(pool="a", start=day - h * 3600.0, end=day, was_taken=True) for h in range(1, 9)]
    >>> long = [Life(pool="b", start=0.0, end=day, was_taken=False) for _ in range(8)]
    >>> known = pool_survival(short + long, day)
    >>> known.survives("a", 3600.0, 3600.0) < known.survives("b", 3600.0, 3600.0)
    True
    """
    seen = [life for life in lives if life.end > life.start]
    names = sorted({life.pool for life in seen} | set(pools))
    rows = {name: number for number, name in enumerate(names, start=_UNKNOWN + 1)}
    hours = np.array(PRIOR_ENDED_HOURS + PRIOR_OPEN_HOURS)
    node = np.array([_PRIOR] * len(hours) + [rows[life.pool] for life in seen], np.int64)
    end = _joined(np.full(len(hours), now), [min(life.end, now) for life in seen])
    start = _joined(now - hours * HOUR, [min(life.start, now) for life in seen])
    ended = [True] * len(PRIOR_ENDED_HOURS) + [False] * len(PRIOR_OPEN_HOURS)
    completed = np.array(ended + [life.was_taken for life in seen], np.bool_)
    count = len(node)
    model = survival(
        Intervals(
            node=node,
            start=start,
            end=end,
            completed=completed,
            began=np.full(count, GROWTH, np.int64),
            ended=np.full(count, SHRINK, np.int64),
            size=np.ones(count),
        ),
        now,
        len(rows) + _UNKNOWN + 1,
        rules or _CURVES_ALONE,
    )
    # whatever happens to an instance is its end: the bigram of growths and shrinks says nothing here
    return PoolSurvival(model._replace(shrink_after=np.ones(2)), rows)


def _joined(prior: Floats, seen: Sequence[float]) -> Floats:
    return np.concatenate([prior, np.array(seen, np.float64)])
