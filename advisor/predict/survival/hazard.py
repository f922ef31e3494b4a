"""Cumulative hazards on one logarithmic grid of ages, with compiled look-ups for the match maker.

The grid is fine near zero and coarse at a month, because change times span six orders of magnitude. With one
grid for all curves a look-up is a logarithm and an interpolation.
"""

from __future__ import annotations

import math

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled

FINEST_SECONDS = 30.0
"""The grid is linear below this age: traces are sampled no more often than every half minute."""

STEPS_PER_OCTAVE = 16
MAX_SECONDS = 60 * 86400.0
POINTS = 2 + int(STEPS_PER_OCTAVE * math.log2(1 + MAX_SECONDS / FINEST_SECONDS))

AGES: Floats = FINEST_SECONDS * (np.exp2(np.arange(POINTS) / STEPS_PER_OCTAVE) - 1.0)
"""Ages of the grid, seconds, shape (POINTS,)."""

_WASTE_POINTS = 4  # Gauss-Legendre on [0, 1]: four points integrate these curves to within 1 %
_NODES: Floats = (np.polynomial.legendre.leggauss(_WASTE_POINTS)[0] + 1.0) / 2.0
_WEIGHTS: Floats = np.polynomial.legendre.leggauss(_WASTE_POINTS)[1] / 2.0
_MIN_RISK = 1e-9


@compiled
def cumulative_at(hazard: Floats, age: float) -> float:
    """Cumulative hazard at an age in seconds: linear between grid points, constant rate beyond the last."""
    place = STEPS_PER_OCTAVE * math.log2(1.0 + max(age, 0.0) / FINEST_SECONDS)
    low = min(int(place), len(hazard) - 2)
    below = FINEST_SECONDS * (2.0 ** (low / STEPS_PER_OCTAVE) - 1.0)
    above = FINEST_SECONDS * (2.0 ** ((low + 1) / STEPS_PER_OCTAVE) - 1.0)
    rate = (hazard[low + 1] - hazard[low]) / (above - below)
    return float(hazard[low] + rate * (age - below))


@compiled
def stays(hazard: Floats, shape: float, rate: float, age: float, during: float) -> float:
    """P(X > e + d | X > e): a node unchanged for ``age`` seconds stays so for ``during`` more.

    ``shape`` and ``rate`` are the gamma posterior of the node's own change rate; with an infinite shape the
    node follows the pool's curve.
    """
    coming = cumulative_at(hazard, age + during) - cumulative_at(hazard, age)
    if math.isinf(shape):
        return math.exp(-coming)
    return math.exp(-shape * math.log1p(coming / rate))


@compiled
def wasted(hazard: Floats, shape: float, rate: float, age: float, during: float) -> float:
    """Expected seconds until the change, given that it comes within ``during`` seconds: w of Eq. 2."""
    end = stays(hazard, shape, rate, age, during)
    if 1.0 - end < _MIN_RISK:
        return 0.5 * during
    area = 0.0
    for i in range(_WASTE_POINTS):
        area += _WEIGHTS[i] * (stays(hazard, shape, rate, age, during * _NODES[i]) - end)
    return during * area / (1.0 - end)
