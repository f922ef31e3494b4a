"""All that is known about promises on a site, and what it says about one job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.model.estimate import PromiseChances
from advisor.predict.promised.levels import PromiseLevels
from advisor.predict.promised.waits import PlannedWaits

KINDS: Final = 3
"""Rows of a price list (`advisor.decide.promise.price_list.Kind`)."""


class PromisesKnown:
    """Waits around their plan, and the levels that keep promises; its owner holds the lock.

    Args:
        confidence: Share of promises to be kept.
    """

    def __init__(self, confidence: float = 0.95) -> None:
        self.waits = PlannedWaits()
        self.levels = PromiseLevels(confidence, KINDS)

    def chances(self, planned: float, core_seconds: float) -> PromiseChances:
        """What a job's promise rests on.

        Args:
            planned: Its wait by the plan of the queue, seconds.
            core_seconds: What it asks for.
        """
        waits, shares = self.waits.spread(planned)
        third, levels = self.levels.third_of(core_seconds), self.levels
        return PromiseChances(
            confidence=levels.confidence,
            waits=tuple(waits.tolist()),
            shares=tuple(shares.tolist()),
            levels=tuple(levels.level(kind, third) for kind in range(KINDS)),
            strains=tuple(levels.strain(kind, third) for kind in range(KINDS)),
        )

    def of_confidence(self, confidence: float) -> PromisesKnown:
        """The same; with levels that begin anew where they were learned for another confidence."""
        if confidence != self.levels.confidence:
            self.levels = PromiseLevels(confidence, KINDS)
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
