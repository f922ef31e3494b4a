"""Waits as distributions around their plans, learned as jobs start.

The queue's plan by time limits is nearly an upper bound: most jobs start sooner, for most end before their
limits. The plan by expected run times is nearer, but jobs wait longer than it says as well. How far from each
the waits lie differs from site to site and with the planned wait. It is learned as the hazard of
log((wait + 1 min) / (plan + 1 min)), by class of plan: a job that left the queue before its start (it moved,
or was cancelled) counts as long as it waited (Kaplan and Meier, 1958).

The two distributions are mixed by how likely each made the waits that jobs had of late, so that the plan by
limits counts little where limits say little (fixed share: Herbster and Warmuth, "Tracking the best expert",
Machine Learning 32, 1998).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

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
_SHARED: Final = 0.02
"""What a job takes of the trust in either plan to share it evenly: the last 50 decide between the plans."""
_ROUNDING: Final = 1e-6


class Plans(NamedTuple):
    """How long a job waits by the plan of the queue, seconds.

    Attributes:
        limits: If jobs ran to their time limits.
        expected: If they ran as long as expected.
    """

    limits: float
    expected: float


class PlannedWaits:
    """How long jobs wait beside what was planned for them."""

    def __init__(self) -> None:
        left = np.append(np.clip(1.0 - np.exp(_EDGES), 1e-6, 1.0), 1e-9)
        at = np.append(1.0, left[:-1])
        shape = (len(Plans._fields), len(WAIT_CLASSES) + 1, 1)
        self._at_risk = np.tile(_FIRST_WEIGHT * at, shape)
        self._started = np.tile(_FIRST_WEIGHT * (at - left), shape)
        self._trust = np.full(len(Plans._fields), 1.0 / len(Plans._fields))

    def to_array(self) -> Floats:
        """All that was learned."""
        return np.concatenate((self._trust, self._at_risk.ravel(), self._started.ravel()))

    def take(self, array: Floats) -> None:
        """Go on with what :meth:`to_array` gave; an array that does not fit is left."""
        plans, size = len(self._trust), self._at_risk.size
        if array.shape != (plans + 2 * size,) or not np.all(np.isfinite(array) & (array >= 0.0)):
            return
        trust, (at_risk, started) = array[:plans], array[plans:].reshape(2, *self._at_risk.shape)
        if np.all(at_risk > 0.0) and abs(trust.sum() - 1.0) <= _ROUNDING:
            self._trust, self._at_risk, self._started = trust.copy(), at_risk.copy(), started.copy()

    def spread(self, plans: Plans) -> tuple[Floats, Floats]:
        """Likely waits of a job with these plans (seconds, ascending), and how likely each is."""
        waits = np.empty((len(plans), len(_EDGES) + 1))
        shares = np.empty_like(waits)
        for i, planned in enumerate(plans):
            row = wait_class(planned)
            _spread(self._at_risk[i, row], self._started[i, row], _EDGES, planned, waits[i], shares[i])
        order = np.argsort(waits, axis=None, kind="stable")
        return waits.ravel()[order], (self._trust[:, None] * shares).ravel()[order]

    def learn(self, plans: Plans, waited: float, *, has_started: bool, since: float = 0.0) -> None:
        """Learn a job that has started after so many seconds, or has not by then.

        Args:
            since: Seconds of its wait that were learned before.
        """
        likely = np.zeros(len(plans))
        for i, planned in enumerate(plans):
            row = wait_class(planned)
            place, known = _place(planned, waited), _place(planned, since) if since else 0
            at_risk, started = self._at_risk[i, row], self._started[i, row]
            hazards = np.clip(
                started[known : place + 1] / at_risk[known : place + 1], _ROUNDING, 1.0 - _ROUNDING
            )
            likely[i] = np.log1p(-hazards[: place - known]).sum() + has_started * math.log(hazards[-1])
            at_risk *= _MEMORY
            started *= _MEMORY
            at_risk[known : place + has_started] += 1.0
            if has_started:
                started[place] += 1.0
        if max(plans) > WAIT_CLASSES[0]:  # what starts at once by both says nothing of either
            trust = self._trust * np.exp(likely - likely.max())
            self._trust = (1.0 - _SHARED) * trust / trust.sum() + _SHARED / len(plans)


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
