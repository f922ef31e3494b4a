"""Waits as distributions around their plan, learned as jobs start.

The queue's plan by time limits is nearly an upper bound: most jobs start sooner, for most end before their
limits. How much sooner differs from site to site and with the planned wait. It is learned as the hazard of
log((wait + 1 min) / (plan + 1 min)), by class of plan: a job that left the queue before its start (it moved,
or was cancelled) counts as long as it waited (Kaplan and Meier, 1958).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.predict.intervals import WAIT_CLASSES, WAIT_SCALE, wait_class

_EDGES: Final[Floats] = np.arange(-8.0, 1.55, 0.1)
"""Upper edges of the hazard's bins; later starts are in one more."""
_MEMORY: Final = 0.999
"""What a job leaves of those before it in its class: the last 1,000 count."""
_FIRST_WEIGHT: Final = 20.0
"""Jobs that the first guess, any wait up to the plan, counts for."""


class PlannedWaits:
    """How long jobs wait beside what was planned for them."""

    def __init__(self) -> None:
        left = np.append(np.clip(1.0 - np.exp(_EDGES), 1e-6, 1.0), 1e-9)
        at = np.append(1.0, left[:-1])
        self._at_risk = np.tile(_FIRST_WEIGHT * at, (len(WAIT_CLASSES) + 1, 1))
        self._started = np.tile(_FIRST_WEIGHT * (at - left), (len(WAIT_CLASSES) + 1, 1))

    def to_array(self) -> Floats:
        """All that was learned, shape ``(2, classes, bins)``."""
        return np.stack((self._at_risk, self._started))

    def take(self, array: Floats) -> None:
        """Go on with what :meth:`to_array` gave; an array that does not fit is left."""
        fits = array.shape == (2, *self._at_risk.shape) and bool(np.all(np.isfinite(array) & (array >= 0.0)))
        if fits and bool(np.all(array[0] > 0.0)):
            self._at_risk, self._started = array[0].copy(), array[1].copy()

    def spread(self, planned: float) -> tuple[Floats, Floats]:
        """Likely waits of a job with this plan (seconds), and how likely each is; both of one shape."""
        row = wait_class(planned)
        waits, shares = np.empty(len(_EDGES) + 1), np.empty(len(_EDGES) + 1)
        _spread(self._at_risk[row], self._started[row], _EDGES, planned, waits, shares)
        return waits, shares

    def learn(self, planned: float, waited: float, *, has_started: bool, since: float = 0.0) -> None:
        """Learn a job that has started after so many seconds, or has not by then.

        Args:
            since: Seconds of its wait that were learned before.
        """
        row = wait_class(planned)
        place, known = _place(planned, waited), _place(planned, since) if since else 0
        self._at_risk[row] *= _MEMORY
        self._started[row] *= _MEMORY
        self._at_risk[row, known : place + has_started] += 1.0
        if has_started:
            self._started[row, place] += 1.0


def _place(planned: float, waited: float) -> int:
    """The bin of a wait."""
    return int(np.searchsorted(_EDGES, math.log((max(0.0, waited) + WAIT_SCALE) / (planned + WAIT_SCALE))))


@compiled
def _spread(
    at_risk: Floats, started: Floats, edges: Floats, planned: float, waits: Floats, shares: Floats
) -> None:
    left = 1.0
    last = edges.shape[0]
    for k in range(last + 1):
        hazard = min(1.0, max(0.0, started[k] / at_risk[k])) if k < last else 1.0
        shares[k] = left * hazard
        left -= shares[k]
        middle = edges[min(k, last - 1)] + (0.3 if k == last else 0.0) - 0.05
        waits[k] = max(0.0, math.exp(middle) * (planned + WAIT_SCALE) - WAIT_SCALE)
