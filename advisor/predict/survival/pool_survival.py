"""Survival of each spot pool's instances, from the lives of earlier instances. `advisor control` fits it.

An EC2 instance changes once: EC2 takes it back, which ends its life. Rates therefore belong to pools: each
pool is one "node" of `advisor.predict.survival.node_survival`. Instances of one pool differ only by their
age, on the curve that all pools share. A site without history starts from a few prior lives, which a few days
of its own outweigh.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.model.spot_pools import LASTS_HOURS
from advisor.predict.survival.hazard import stays
from advisor.predict.survival.node_survival import GROWTH, SHRINK, Intervals, SurvivalModel, fit_survival

HOUR: Final = 3600.0
PRIOR_ENDED_HOURS: Final = (1.0, 4.0, 16.0, 64.0)
PRIOR_OPEN_HOURS: Final = (24.0, 24.0, 24.0, 24.0)
"""Prior lives: one end in about two days, as many in the first hour as in the three after it. EC2 publishes 5
to 20 % of instances interrupted per month; traces of busy pools show one end or more per day. The prior lies
in between: even if it is wrong by a factor of ten, four ends are soon outweighed.
"""

TOGETHER_SECONDS: Final = 120.0
"""Instances of one pool that EC2 takes within this time are lost together: it gives two minutes' notice."""
_PRIOR, _UNKNOWN = 0, 1  # rows of the fitted model: the prior lives; a pool without any history
_NEVER: Final = 1e12  # gamma rate of a node that EC2 never takes back


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One instance's life as far as it is known.

    Attributes:
        pool: The pool it was launched in.
        start, end: Seconds; ``end`` is now while the instance runs.
        was_taken: Whether EC2 ended it; False while it runs and where we terminated it.
    """

    pool: str
    start: float
    end: float
    was_taken: bool


@dataclass(frozen=True, slots=True, eq=False)
class PoolSurvival:
    """Survival of every pool's instances at one moment; see `pool_survival`."""

    model: SurvivalModel
    rows: dict[str, int]

    def of_nodes(self, pools: Sequence[str | None]) -> SurvivalModel:
        """The model with one row per node, for the match maker; None stands for a node that is not spot."""
        rows = [self._row(pool) for pool in pools]
        fixed = np.array([pool is None for pool in pools], np.bool_)
        shape, rate = self.model.shape[rows], self.model.rate[rows]
        return self.model._replace(
            shape=np.where(fixed, 1.0, shape).astype(np.float64),
            rate=np.where(fixed, _NEVER, rate).astype(np.float64),
        )

    def survives(self, pool: str | None, age: float, during: float) -> float:
        """Probability that an instance ``age`` seconds old is not taken for ``during`` more seconds."""
        if pool is None:
            return 1.0
        row = self._row(pool)
        model = self.model
        return float(stays(model.hazard, model.shape[row], model.rate[row], age, during))

    def lasts(self, pool: str) -> tuple[float, ...]:
        """Probability that an instance launched now lives for each of ``LASTS_HOURS``."""
        return tuple(self.survives(pool, 0.0, HOUR * hours) for hours in LASTS_HOURS)

    def _row(self, pool: str | None) -> int:
        return self.rows.get(pool or "", _UNKNOWN)


def losses_of(lives: Iterable[Life]) -> list[list[Life]]:
    """The losses of each pool in their order; lives that EC2 ended together are one loss.

    A life belongs to a loss that began at most ``TOGETHER_SECONDS`` before its end.
    """
    found: list[list[Life]] = []
    last: dict[str, list[Life]] = {}
    for life in sorted((life for life in lives if life.was_taken), key=lambda life: life.end):
        loss = last.get(life.pool)
        if loss is not None and life.end - loss[0].end <= TOGETHER_SECONDS:
            loss.append(life)
        else:
            last[life.pool] = [life]
            found.append(last[life.pool])
    return found


def pool_survival(
    lives: Iterable[Life],
    now: float,
    pools: Collection[str] = (),
) -> PoolSurvival:
    """Fit the model to what is known now.

    Args:
        lives: Ended and current ones, in any order.
        now: Seconds on the clock of the lives.
        pools: Further pools that get a row.

    Examples:
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
    model = fit_survival(
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
    )
    # every change of an instance is its end: the bigrams of growths and shrinks do not apply
    return PoolSurvival(model._replace(shrink_after=np.ones(2)), rows)


def _joined(prior: Floats, seen: Sequence[float]) -> Floats:
    return np.concatenate([prior, np.array(seen, np.float64)])
