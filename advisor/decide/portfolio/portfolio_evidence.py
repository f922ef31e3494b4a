"""Comparison of policies day by day, because one or two bursts of jobs decide their totals.

A contender is a policy, or a rule that selects among policies. Its totals are known at checkpoints, which are
equally spaced in time. The champion is the contender that would have done best on the jobs so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Bools, Floats

DAY_SECONDS: Final = 86_400.0
_DAY_JOBS: Final = 5.0
"""Days with fewer jobs are not compared."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Days:
    """The loss of n contenders on each of d days, each day taken separately.

    Attributes:
        loss: ndarray, shape (n, d): ``alpha`` log(node seconds charged on the day) + ``beta`` log(sum of the
            bounded slowdowns of the day). It is the part of the negative log utility in which contenders
            differ, since work and jobs are the same for all.
        tells: ndarray of bool, shape (n, d): whether the day had enough jobs to be compared.
    """

    loss: Floats
    tells: Bools

    @classmethod
    def of(
        cls, charged: Floats, slowdown: Floats, jobs: Floats, *, each: int, alpha: float, beta: float
    ) -> Self:
        """Make days from totals at checkpoints.

        Args:
            charged, slowdown, jobs: ndarray, shape (n, c): the seconds of nodes charged, the sum of bounded
                slowdowns and the number of jobs from the beginning to each of c checkpoints.
            each: Number of checkpoints in a day.
            alpha, beta: Exponents of charged time and of slowdown in the utility (Deng et al. 2013).
        """
        a_day = [np.diff(one[:, each - 1 :: each], axis=1, prepend=0.0) for one in (charged, slowdown, jobs)]
        with np.errstate(invalid="ignore", divide="ignore"):
            loss = alpha * np.log(a_day[0]) + beta * np.log(a_day[1])
        return cls(loss=loss, tells=np.isfinite(loss) & (a_day[2] >= _DAY_JOBS))

    def of_champions(self, champions: NDArray[np.int64], each: int) -> Self:
        """The loss, on each day, of the contender that is the champion at the end of that day; shape (1, d).

        Args:
            champions: ndarray of int, shape (c,): row of the champion at each checkpoint.
            each: Number of checkpoints in a day.
        """
        champion = champions[each - 1 :: each]
        day = np.arange(len(champion))
        return type(self)(loss=self.loss[None, champion, day], tells=self.tells[None, champion, day])

    def joined(self, other: Self) -> Self:
        """Join two sets of contenders."""
        return type(self)(
            loss=np.concatenate([self.loss, other.loss]), tells=np.concatenate([self.tells, other.tells])
        )

    def better(self, one: int, other: int, days: int) -> float:
        """Number of standard errors by which row ``one`` beats row ``other`` over the first ``days`` days."""
        both = (self.tells[one] & self.tells[other])[:days]
        gain = self.loss[other, :days][both] - self.loss[one, :days][both]
        return float(_errors(np.sum(gain), np.sum(gain**2)))

    def evidence(self, against: Days) -> Floats:
        """Number of standard errors by which each contender beats ``against`` after 0 to d days.

        A day's gain is the logarithm of the ratio of the utilities on that day, so that a burst counts as one
        day.

        Args:
            against: One contender, shape (1, d).

        Returns:
            Shape (n, d + 1).
        """
        both = self.tells & against.tells
        gain = np.where(both, np.where(both, against.loss, 0.0) - np.where(both, self.loss, 0.0), 0.0)
        found = _errors(np.cumsum(gain, axis=1), np.cumsum(gain**2, axis=1))
        return np.concatenate([np.zeros((len(found), 1)), found], axis=1)


def _errors(total: Floats | np.float64, squares: Floats | np.float64) -> Floats:
    """A sum of gains over its standard error if the mean gain were 0; n equal gains give sqrt(n)."""
    spread = np.sqrt(squares)
    found: Floats = total / np.where(spread > 0.0, spread, 1.0)
    return found
