"""All that is known about promises on a site, and what it says about one job.

The learn loop teaches it; `advisor serve` asks it about a job that names a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.model.estimate import PromiseChances
from advisor.predict.promised.levels import Kind, PromiseLevels
from advisor.predict.promised.waits import PlannedWaits, Plans


class PromisesKnown:
    """Waits around their plan, and the levels that keep promises; its owner holds the lock.

    Args:
        confidence: Share of promises to be kept.
    """

    def __init__(self, confidence: float = 0.95) -> None:
        self.waits = PlannedWaits()
        self.levels = PromiseLevels(confidence, len(Kind))

    def chances(self, plans: Plans, requested: float, expected: float, alike: int = 0) -> PromiseChances:
        """The forecasts on which a job's promise is based.

        Args:
            plans: Its waits by the plans of the queue.
            requested: Processors times time limit of the job, core-seconds.
            expected: Processors times expected run time, core-seconds.
            alike: Promises to its user that are open.
        """
        waits, shares = self.waits.spread(plans)
        third, levels = self.levels.third_of(requested), self.levels
        return PromiseChances(
            confidence=levels.confidence,
            waits=tuple(waits.tolist()),
            shares=tuple(shares.tolist()),
            levels=tuple(levels.level(kind, third, alike, expected) for kind in Kind),
            strains=tuple(levels.strain(kind, third) for kind in Kind),
            thrift=levels.thrift(third, expected),
        )

    def of_confidence(self, confidence: float) -> PromisesKnown:
        """The same; with levels that begin anew where they were learned for another confidence."""
        if confidence != self.levels.confidence:
            self.levels = PromiseLevels(confidence, len(Kind))
        return self

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All that was learned."""
        return {"promise_waits": self.waits.to_array(), "promise_levels": self.levels.to_array()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> PromisesKnown:
        """Rebuild from :meth:`to_arrays`; what is missing or does not fit begins anew."""
        known = cls()
        known.waits.take(arrays.get("promise_waits", np.empty(0)))
        known.levels.take(arrays.get("promise_levels", np.empty(0)))
        return known
