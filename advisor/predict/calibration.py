"""Intervals that keep what they promise while the load changes: adaptive conformal inference.

Gibbs and Candes, "Adaptive conformal inference under distribution shift", NeurIPS 2021, equation 2: after
each truth the error level of the next interval moves by ``rate * (promised - missed)``, so that the share
of misses over a long time is the promised one whatever the waits do.
"""

from __future__ import annotations


class AdaptiveLevel:
    """The error level at which the next interval is cut from a predictive distribution.

    Parameters
    ----------
    coverage : float
        Promised share of truths within the interval, above 0 and below 1.
    rate : float
        How far one truth moves the level: 0.01 forgets in a few hundred jobs.
    level : float, optional
        Where an earlier one stood (:attr:`level`).
    """

    def __init__(self, coverage: float, rate: float = 0.01, *, level: float | None = None) -> None:
        self._promised = 1.0 - coverage
        self._rate = rate
        self._level = self._promised if level is None else level

    @property
    def level(self) -> float:
        """The error level now; beyond [0, 1] while the intervals hold too rarely or too often."""
        return self._level

    @property
    def bounds(self) -> tuple[float, float]:
        """Probabilities to cut a predictive distribution at, within [0, 1]."""
        level = min(max(self._level, 0.0), 1.0)
        return level / 2.0, 1.0 - level / 2.0

    def learn(self, *, inside: bool) -> None:
        """Take in whether a truth lay within the interval it had been given."""
        self._level += self._rate * (self._promised - (0.0 if inside else 1.0))
