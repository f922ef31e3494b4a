"""Who is better day by day: what totals do not tell, as one or two bursts decide them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

DAY_SECONDS: Final = 86_400.0
_DAY_JOBS: Final = 5.0
"""Days of fewer jobs tell nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Days:
    """What contenders made of each day by itself.

    Attributes
    ----------
    loss : ndarray, shape (n, d)
        ``alpha`` log(charged that day) + ``beta`` log(slowdown of that day): what their utilities differ by,
        for the work and the jobs are the same for all.
    tells : ndarray of bool, shape (n, d)
        Whether enough happened.
    """

    loss: Floats
    tells: Flags

    @classmethod
    def of(
        cls, charged: Floats, slowdown: Floats, jobs: Floats, *, each: int, alpha: float, beta: float
    ) -> Self:
        """From totals at checkpoints.

        Parameters
        ----------
        charged, slowdown, jobs : ndarray, shape (n, c)
            Charged seconds, sum of bounded slowdowns and jobs so far.
        each : int
            Checkpoints a day.
        alpha, beta : float
            Of the utility.
        """
        a_day = [np.diff(one[:, each - 1 :: each], axis=1, prepend=0.0) for one in (charged, slowdown, jobs)]
        with np.errstate(invalid="ignore", divide="ignore"):
            loss = alpha * np.log(a_day[0]) + beta * np.log(a_day[1])
        return cls(loss=loss, tells=np.isfinite(loss) & (a_day[2] >= _DAY_JOBS))

    def reigning(self, champions: NDArray[np.int64], each: int) -> Self:
        """The champions' days, shape (1, d): of each day what the one at its end made of it by itself.

        Parameters
        ----------
        champions : ndarray of int, shape (c,)
            Champion at each checkpoint.
        each : int
            Checkpoints a day.
        """
        who = champions[each - 1 :: each]
        day = np.arange(len(who))
        return type(self)(loss=self.loss[None, who, day], tells=self.tells[None, who, day])

    def beside(self, other: Self) -> Self:
        """These contenders' days, then the other's."""
        return type(self)(
            loss=np.concatenate([self.loss, other.loss]), tells=np.concatenate([self.tells, other.tells])
        )

    def better(self, one: int, other: int, days: int) -> float:
        """How many standard errors the first so many days of one contender are better than another's."""
        both = (self.tells[one] & self.tells[other])[:days]
        gain = self.loss[other, :days][both] - self.loss[one, :days][both]
        return float(_errors(np.sum(gain), np.sum(gain**2)))

    def evidence(self, against: Days) -> Floats:
        """How many standard errors these contenders' days are better than another's, shape (n, d + 1).

        After 0, 1, ... days. A day's gain is the logarithm of the two utilities' ratio on that day, so that a
        burst counts no more than any other day.

        Parameters
        ----------
        against : Days
            Of one contender.
        """
        both = self.tells & against.tells
        gain = np.where(both, np.where(both, against.loss, 0.0) - np.where(both, self.loss, 0.0), 0.0)
        found = _errors(np.cumsum(gain, axis=1), np.cumsum(gain**2, axis=1))
        return np.concatenate([np.zeros((len(found), 1)), found], axis=1)


def _errors(total: Floats | np.float64, squares: Floats | np.float64) -> Floats:
    """A sum of gains in standard errors, were their mean 0: n equal gains are the root of n."""
    spread = np.sqrt(squares)
    found: Floats = total / np.where(spread > 0.0, spread, 1.0)
    return found
