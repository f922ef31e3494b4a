"""When the queue has changed so much that the price loop, or the `ask again` loop, asks about all jobs."""

from __future__ import annotations

import math
from typing import Final

_MUCH: Final = 1.25
"""Ratio of waiting processors, up or down, from which the queue has changed much."""
MIN_SECONDS: Final = 30.0
"""Between two such changes."""


class QueueChange:
    """Follows the processors that wait."""

    def __init__(self) -> None:
        self._processors, self._since = 0, -math.inf

    def differs(self, processors: int) -> bool:
        """Whether so many waiting processors are much more or fewer than when this was last said."""
        return not self._processors / _MUCH <= processors <= self._processors * _MUCH

    def is_much(self, processors: int, now: float) -> bool:
        """Whether the queue has changed much since this was last said.

        Args:
            now: Monotonic seconds.
        """
        if now - self._since < MIN_SECONDS or not self.differs(processors):
            return False
        self._processors, self._since = processors, now
        return True
