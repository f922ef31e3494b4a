"""A budget of core-seconds that hedges never exceed: reserve the worst case, settle what was used. Pure.

Before a hedge starts, its worst case is reserved: all that it can use until its own stop-loss ends it. A
hedge whose worst case does not fit into the rest does not start, or gets an earlier stop-loss. One that is to
go on longer reserves more first, or ends. What an ended hedge did not use is free again. So the budget holds
whatever was forecast; forecasts and prices (:mod:`advisor.papers.placement.pacing`) only decide how well it
is spent.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

_ROUNDING: Final = 1.0 - 1e-9
"""Sums of many reservations are exact to far less than that."""


class Budget:
    """What is left of a period's ``core_seconds``; ``spent`` is what ended hedges have used of them."""

    def __init__(self, core_seconds: float) -> None:
        self.core_seconds = core_seconds
        self.spent = 0.0
        self._reserved: dict[Hashable, float] = {}
        self._committed = 0.0

    @property
    def left(self) -> float:
        """Core-seconds neither used nor reserved; below 0 only if some were used without a reservation."""
        return self.core_seconds - self.spent - self._committed

    @property
    def unspent(self) -> float:
        """Core-seconds not used yet, reserved or not."""
        return self.core_seconds - self.spent

    def reserved(self, key: Hashable) -> float:
        """Core-seconds that a hedge may use in all; 0 without a reservation."""
        return self._reserved.get(key, 0.0)

    def reserve(self, key: Hashable, core_seconds: float) -> bool:
        """Let a hedge use ``core_seconds`` in all; False, and no change, where they are not left.

        A number below the present reservation changes nothing.
        """
        more = core_seconds - self.reserved(key)
        if key in self._reserved and more <= 0.0:
            return True
        if not self.spent + self._committed + more <= self.core_seconds * _ROUNDING:
            return False
        self._committed += more
        self._reserved[key] = core_seconds
        return True

    def settle(self, key: Hashable, core_seconds: float) -> None:
        """End a hedge that has used ``core_seconds`` in all."""
        self.spent += core_seconds
        self._committed -= self._reserved.pop(key)
        if not self._reserved:
            self._committed = 0.0  # rounding ends here
