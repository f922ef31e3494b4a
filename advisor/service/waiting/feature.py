"""Advising new jobs and asking waiting jobs again, as features of `advisor control`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature
from advisor.service.running.loops import LoopRunner
from advisor.service.waiting.advising import AdvisingLoop
from advisor.service.waiting.asking_again import AskingAgainLoop


class WaitingFeature(Feature):
    """A loop that has jobs advised while they wait, and its field of status.json."""

    def __init__(self, loop: AskingAgainLoop | AdvisingLoop, clock: Clock, *, field: str) -> None:
        self.loop = loop
        self._field = field
        self.runners = (LoopRunner(loop, clock),)
        self.steering = (loop.name,)

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {self._field: self.loop.report()}
