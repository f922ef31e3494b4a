"""The check that a request of slurmctld to end machines still holds when the provision loop comes to it.

Slurm is asked anew: the shared poll may be older than what has changed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import structlog

from advisor.model.cluster import NodePower
from advisor.model.scheduler import CloudScheduler
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.running.clock import Clock

log = structlog.get_logger(__name__)

_MAX_AGE_SECONDS: Final = 1.0


class LateRequests:
    """Finds the nodes that slurmctld uses in spite of an earlier request to end their machines.

    In a round Slurm is asked once a second at most: a hundred suspends cost no hundred polls. Both methods
    raise RetryLater when it does not answer: the request waits.
    """

    def __init__(self, slurm: CloudScheduler, clock: Clock) -> None:
        self._slurm, self._clock = slurm, clock
        self._snapshot: ClusterSnapshot | None = None
        self._asked_at = 0.0

    def begin_round(self) -> None:
        """Forget the poll of the round before: it is older than a request that has come since."""
        self._snapshot = None

    def up_again(self, nodes: Collection[str]) -> frozenset[str]:
        """Nodes of a suspend that are up.

        A slurmctld that is killed forgets its last seconds, its order to power a node down among them. The
        node is up to it, and gets jobs. It orders the same again when the node is idle.
        """
        up = frozenset(node.name for node in self._poll().nodes if node.power is NodePower.UP)
        found = up.intersection(nodes)
        if found:
            log.warning("cloud.suspend_forgotten", nodes=sorted(found))
        return found

    def came(self, nodes: Collection[str]) -> frozenset[str]:
        """Nodes of a failed boot that run a job: a machine may come after ResumeTimeout."""
        snapshot = self._poll()
        up = {node.name for node in snapshot.nodes if node.power is NodePower.UP and not node.is_down}
        found = frozenset(up.intersection(nodes, snapshot.jobs_on))
        if found:
            log.warning("cloud.boot_late", nodes=sorted(found))
        return found

    def _poll(self) -> ClusterSnapshot:
        now = self._clock.monotonic()
        if self._snapshot is None or now - self._asked_at > _MAX_AGE_SECONDS:
            self._snapshot, self._asked_at = self._slurm.snapshot(self._clock.wall()), now
        return self._snapshot
