"""The interface of a feature of `advisor control`, so that the process can run all features as one list.

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
"""Gauges for `/metrics`: name without the prefix ``advisor_`` to the present value and the help text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """What one poll of Slurm saw.

    Attributes:
        cluster: The on-premise partitions, summed up for decisions.
        cloud: The burst partition as decisions at that moment assume it: free nodes, prices, spending.
    """

    snapshot: ClusterSnapshot
    cluster: ClusterState
    cloud: CloudState


class Feature:
    """One thing that `advisor control` does. A feature that is off is not constructed.

    Attributes:
        runners: The feature's loops, each in a thread of its own, in the order in which they start.
        steering: Names of the loops whose changes in Slurm (weights, features, priorities) `release` undoes.
            These loops have ended when `release` is called.
    """

    runners: Sequence[LoopRunner] = ()
    steering: Collection[str] = ()

    def prepare(self) -> None:
        """Do what must be done before the first round of a loop. Slurm was polled once before."""

    def start(self) -> None:
        """Prepare, then start the loops."""
        self.prepare()
        for runner in self.runners:
            runner.start()

    def polled(self, poll: Poll) -> None:
        """Use the result of a poll. The poll loop calls this in its own thread and waits for it."""

    def publish(self, site: SiteState) -> SiteState:
        """Return a copy of the state that `advisor serve` decides with, with this feature's fields set."""
        return site

    def status(self) -> Mapping[str, Any]:
        """Return this feature's fields of status.json."""
        return {}

    def gauges(self) -> Gauges:
        """Return this feature's gauges for `/metrics`."""
        return {}

    def stop(self) -> None:
        """Ask long computations and calls to end early; return at once."""

    def release(self) -> None:
        """Undo in Slurm what the steering loops have set, after the last round of each."""
