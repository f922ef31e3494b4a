"""Limits of jobs in the queue that leave no room for placeholders, for `advisor serve`.

It tells no user that a job keeps its place here that would have no placeholder.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model.submit_limits import SubmitKey
from advisor.service.hedge.placing import PLACED_ABOVE
from advisor.service.running.loops import Step
from advisor.slurm.placeholders import Placeholders


class FullLimits:
    """Reads them once a minute: all users are many, and what is full is seldom less so a minute later.

    Attributes:
        keys: Whose limits have no room.
    """

    name = "full limits"
    period_seconds = 60.0

    def __init__(self, places: Placeholders) -> None:
        self._places = places
        self.keys: frozenset[SubmitKey] = frozenset()

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("read limits of jobs in the queue", self.read),)

    def read(self) -> None:
        """Ask what is left of each limit."""
        left = self._places.submits_left()
        self.keys = frozenset(key for key, share in left.items() if share < PLACED_ABOVE)
