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
    """What is left of a period's ``core_seconds``; infinite without a budget."""

    def __init__(self, core_seconds: float) -> None:
        self.core_seconds = core_seconds
        self._reserved: dict[Hashable, float] = {}
        self._used: dict[Hashable, float] = {}
        self._spent = 0.0
        self._committed = 0.0

    @property
    def spent(self) -> float:
        """Core-seconds used in this period, by hedges that have ended and by those that have not."""
        return self._spent

    @property
    def left(self) -> float:
        """Core-seconds neither used nor reserved; below 0 only if some were used without a reservation."""
        return self.core_seconds - self._spent - self._committed

    @property
    def unspent(self) -> float:
        """Core-seconds not used yet, reserved or not."""
        return self.core_seconds - self._spent

    def __contains__(self, key: Hashable) -> bool:
        """Whether a hedge has a reservation."""
        return key in self._reserved

    def keys(self) -> list[Hashable]:
        """Hedges with a reservation."""
        return list(self._reserved)

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
        if not self._spent + self._committed + more <= self.core_seconds * _ROUNDING:
            return False
        self._set(key, core_seconds, self._used.get(key, 0.0))
        return True

    def use(self, key: Hashable, core_seconds: float) -> None:
        """Record what a hedge has used in all so far; a smaller number than before changes nothing."""
        before = self._used.get(key, 0.0)
        if core_seconds > before:
            self._spent += core_seconds - before
            self._set(key, self.reserved(key), core_seconds)

    def settle(self, key: Hashable, core_seconds: float | None = None) -> None:
        """End a hedge that has used ``core_seconds`` in all; None: what was recorded last."""
        if core_seconds is not None:
            self.use(key, core_seconds)
        self._set(key, 0.0, 0.0)
        self._reserved.pop(key)
        self._used.pop(key)
        if not self._reserved:
            self._committed = 0.0  # rounding ends here

    def begin(self, core_seconds: float) -> None:
        """Begin a period: nothing is used, and running hedges keep what they have reserved and not used."""
        self.core_seconds, self._spent = core_seconds, 0.0

    def _set(self, key: Hashable, reserved: float, used: float) -> None:
        before = max(0.0, self._reserved.get(key, 0.0) - self._used.get(key, 0.0))
        self._committed += max(0.0, reserved - used) - before
        self._reserved[key], self._used[key] = reserved, used
