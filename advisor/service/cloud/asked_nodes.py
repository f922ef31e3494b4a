"""The provision loop's check that a hand-over's nodes are of the burst partition; no others are started.

A cluster has one ResumeProgram and one SuspendProgram for all partitions, and every member of a group may
write to the hand-over folder: a request alone must not give a node of another partition an instance.
"""

from __future__ import annotations

from typing import Final

import structlog

from advisor.ec2.errors import Failure, FailureClass
from advisor.model.node_sets import fold
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.exchange.handover import HandOver
from advisor.service.observation.site_view import burst_nodes
from advisor.service.running.isolating import for_each

log = structlog.get_logger(__name__)

NOT_OURS: Final = "NotInBurstPartition"
"""The code under which refused nodes are counted."""


class AskedNodes:
    """Distinguishes the nodes of the burst partition from others, by the last snapshot of Slurm."""

    def __init__(self, context: CloudContext) -> None:
        self._settings, self._slurm = context.settings, context.slurm
        self._view, self._clock = context.view, context.clock
        self._members: frozenset[str] = frozenset()
        self._others: frozenset[str] = frozenset()
        self._first_asked: dict[str, float] = {}  # hand-over: monotonic seconds
        self._reported: set[str] = set()  # hand-overs whose refusal has been logged

    def foreign(self, hand_over: HandOver) -> tuple[str, ...] | None:
        """The nodes of a hand-over that are not in the burst partition; None: a newer poll must be awaited.

        A node that was added a moment ago is in no snapshot yet. A resume of an unknown node is therefore
        refused only by a snapshot whose poll began after the hand-over was first seen. While Slurm does not
        answer, other operations are not refused: they can only end instances with the cluster's tag.
        """
        is_seen = self.refresh()
        unknown = tuple(node for node in hand_over.nodes if node not in self._members)
        if not unknown:
            return ()
        if not is_seen and hand_over.operation != "resume":
            return ()
        heard = self._first_asked.setdefault(hand_over.identity, self._clock.monotonic())
        return unknown if is_seen and self._view.poll_began >= heard else None

    def refuse(self, hand_over: HandOver, nodes: tuple[str, ...]) -> str:
        """Log, once, why nothing is done for nodes of other partitions; return the reason.

        When ResumeTimeout has passed, slurmctld sets such a node down, requeues its job and calls
        ResumeFailProgram: only then is the node's Reason set, because slurmctld (22.05) keeps no Reason of a
        node that powers up. Nothing else is changed: the advisor does not power such nodes up or down.
        """
        partition = self._settings.cluster.burst_partition
        why = f"not a node of partition {partition}"
        if hand_over.identity in self._reported:
            return why
        self._reported.add(hand_over.identity)
        mend = "Let a ResumeProgram of the site call this one for nodes of the burst partition only"
        log.warning(
            "cloud.not_ours", operation=hand_over.operation, nodes=fold(nodes), partition=partition, mend=mend
        )
        if hand_over.operation == "resume_fail":
            known = [name for name in nodes if name in self._others]

            def tell(name: str) -> None:
                self._slurm.update_node([name], reason=f"burst advisor: {why}: nothing was started")

            for_each(known, tell)
        return why

    def done(self, hand_over: HandOver) -> None:
        """Forget a hand-over that has been acted upon or set aside."""
        self._first_asked.pop(hand_over.identity, None)
        self._reported.discard(hand_over.identity)

    def refresh(self) -> bool:
        """Update the known nodes; False without a recent snapshot of Slurm."""
        snapshot = self._view.if_fresh()
        if snapshot is None:  # the nodes of the previous one stay valid
            return False
        self._members = frozenset(node.name for node in burst_nodes(snapshot, self._settings))
        self._others = frozenset(node.name for node in snapshot.nodes) - self._members
        return True


def reason_of(failure: Failure) -> str:
    """The Reason of a node without an instance, which slurmctld shows to all users."""
    if failure.kind is FailureClass.BUDGET:
        return f"burst advisor: budget: {failure.message}"
    return f"burst advisor: EC2 gave no instance ({failure.code})"
