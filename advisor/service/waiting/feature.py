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
    """The loop that asks waiting jobs again and moves those that should go."""

    def __init__(self, loop: AskingAgainLoop, clock: Clock) -> None:
        self.loop = loop
        self.runners = (LoopRunner(loop, clock),)
        self.steering = (loop.name,)

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"asking_again": self.loop.report()}


class AdvisingFeature(Feature):
    """The loop that advises new jobs where slurmctld has no hook."""

    def __init__(self, loop: AdvisingLoop, clock: Clock) -> None:
        self.loop = loop
        self.runners = (LoopRunner(loop, clock),)
        self.steering = (loop.name,)

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"advising": self.loop.report()}
