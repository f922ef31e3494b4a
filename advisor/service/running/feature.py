"""The interface of a feature of `advisor control`, so that the process can run all features as one list.

The class is here, and not in `advisor.service.control`, because the features' own packages implement it and
know nothing of `control`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from advisor.model.cluster import ClusterState
from advisor.model.site import CloudState, SiteState
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.running.clock import Clock
from advisor.service.running.loops import LoopRunner, Step

_UNREAD_SECONDS: Final = 5.0

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


class ReadFirst(Feature):
    """A feature without whose knowledge no job is sent to the cloud: slurmctld would refuse some of them.

    It reads in a thread of its own, for slurmdbd may take long, and every five seconds until it succeeds.

    Args:
        step: Name of the loop's step.
        unread: Why no job is sent there before.
        period_seconds: How often it reads again.
    """

    name: str

    def __init__(self, clock: Clock, *, step: str, unread: str, period_seconds: float) -> None:
        self.runners = (LoopRunner(self, clock),)
        self._step, self._unread, self._period_seconds = step, unread, period_seconds
        self._is_read = False

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return self._period_seconds if self._is_read else _UNREAD_SECONDS

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step(self._step, self.read),)

    def read(self) -> None:
        """Read once."""
        self.ask()
        self._is_read = True

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`Feature`."""
        return self.publish_read(site) if self._is_read else site.sending_none(self._unread)

    def ask(self) -> None:
        """Ask Slurm, and keep the answer."""
        raise NotImplementedError

    def publish_read(self, site: SiteState) -> SiteState:
        """Publish the last answer, as `publish`."""
        raise NotImplementedError
