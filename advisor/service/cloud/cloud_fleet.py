"""The interface to EC2 that the control loops use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from advisor.ec2.fleet import Launched, LaunchReport, Refuse
from advisor.ec2.instances import Instance
from advisor.model.advice import Capacity


class CloudFleet(Protocol):
    """The methods of :class:`advisor.ec2.fleet.Fleet` that the loops use."""

    def resume(
        self,
        nodes: Sequence[str],
        *,
        capacity_of: Mapping[str, Capacity] | None = None,
        refuse: Refuse | None = None,
        jobs: Iterable[Sequence[str]] = (),
    ) -> LaunchReport:
        """Give each node one instance, also when it is called twice; nodes of one job all or none."""
        ...

    def mark_requested(self, nodes: Iterable[str]) -> None:
        """Note that Slurm needs these nodes now: `terminate_orphans` spares their instances."""
        ...

    def suspend(self, nodes: Sequence[str]) -> list[str]:
        """Terminate the nodes' instances."""
        ...

    def terminate_orphans(self, orphans: Sequence[Instance], polled: float) -> list[str]:
        """Terminate instances that no node needed when Slurm was polled (monotonic seconds)."""
        ...

    def recover(self, wanted: Collection[str]) -> list[Launched]:
        """Settle launches whose outcome is unknown; only wanted nodes may get new instances."""
        ...

    def tag_unnamed(self) -> int:
        """Set missing node tags; return how many were missing."""
        ...

    def instances(self) -> list[Instance]:
        """All instances of the cluster."""
        ...

    def unlisted_nodes(self, listed: Sequence[Instance], /) -> frozenset[str]:
        """Nodes whose instances are so new that the list may not have them yet."""
        ...
