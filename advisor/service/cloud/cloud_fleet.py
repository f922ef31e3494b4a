"""What the loops ask of EC2: tests have a fleet of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from advisor.ec2.fleet import Launched, LaunchReport, Refuse
from advisor.ec2.instances import Instance
from advisor.model.advice import Capacity


class CloudFleet(Protocol):
    """What the loops ask of :class:`advisor.ec2.fleet.Fleet`."""

    def resume(
        self,
        nodes: Sequence[str],
        *,
        capacity_of: Mapping[str, Capacity] | None = None,
        refuse: Refuse | None = None,
    ) -> LaunchReport:
        """Give every node an instance; repeating it is harmless."""
        ...

    def asked_for(self, nodes: Iterable[str]) -> None:
        """Slurm wants these nodes: what was seen of them before makes nothing an orphan."""
        ...

    def suspend(self, nodes: Sequence[str]) -> list[str]:
        """Terminate the nodes' instances."""
        ...

    def collect(self, orphans: Sequence[Instance], looked: float) -> list[str]:
        """Terminate instances nobody claimed when Slurm was looked at (monotonic seconds)."""
        ...

    def recover(self, wanted: Collection[str]) -> list[Launched]:
        """Settle launches whose outcome is not known; nodes not wanted any more get nothing new."""
        ...

    def name_unnamed(self) -> int:
        """Set missing name tags."""
        ...

    def instances(self) -> list[Instance]:
        """All instances of ours."""
        ...

    def unlisted_nodes(self, listed: Sequence[Instance], /) -> frozenset[str]:
        """Nodes launched so shortly ago that the list may not have their instances yet."""
        ...
