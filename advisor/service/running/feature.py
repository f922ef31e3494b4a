"""What every feature of `advisor control` offers, so that the process can run them as one list.

The class is here, and not in `advisor.service.control`, because the features' own packages implement it and
know nothing of `control`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from advisor.model.cluster import ClusterState
from advisor.model.site import CloudState, SiteState
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.running.loops import LoopRunner

Gauges: TypeAlias = Mapping[str, tuple[float, str]]
"""Metrics of the moment: name without the prefix ``advisor_`` to value and help text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """What one poll of Slurm saw, and the cloud as decisions reckon with it at that moment."""

    snapshot: ClusterSnapshot
    cluster: ClusterState
    cloud: CloudState


class Feature:
    """One thing that `advisor control` does. A feature that is off is not constructed.

    Attributes:
        runners: Its loops, each in a thread of its own, in the order in which they start.
        steering: Names of those loops that set in Slurm what `release` takes back. They end before it is
            called.
    """

    runners: Sequence[LoopRunner] = ()
    steering: Collection[str] = ()

    def prepare(self) -> None:
        """Do what comes before the first round of a loop. Slurm was polled once before."""

    def start(self) -> None:
        """Prepare, then start the loops."""
        self.prepare()
        for runner in self.runners:
            runner.start()

    def polled(self, poll: Poll) -> None:
        """Take in a poll; called in the thread of the poll loop, which waits for it."""

    def publish(self, site: SiteState) -> SiteState:
        """Return the state that `advisor serve` decides with, with this feature's fields set."""
        return site

    def status(self) -> Mapping[str, Any]:
        """Return this feature's fields of status.json."""
        return {}

    def gauges(self) -> Gauges:
        """Return this feature's gauges for `/metrics`."""
        return {}

    def stop(self) -> None:
        """Abandon what takes long; does not wait."""

    def release(self) -> None:
        """Give Slurm back what was set there, after the last round of the steering loops."""
