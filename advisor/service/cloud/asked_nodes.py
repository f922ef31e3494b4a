"""Which nodes of a hand-over are the advisor's: only those of the burst partition are ever started.

ResumeProgram and SuspendProgram are one for all partitions of a cluster, and a group may write to the
hand-over folder. A node of another partition must not get an instance because somebody asks for it.
"""

from __future__ import annotations

from typing import Final

import structlog

from advisor.model.errors import RetryLater
from advisor.model.settings import Settings
from advisor.service.exchange.handover import HandOver
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import burst_nodes
from advisor.service.running.clock import Clock
from advisor.service.running.isolating import for_each
from advisor.slurm.node_sets import fold
from advisor.slurm.protocol import SlurmBackend

log = structlog.get_logger(__name__)

NOT_OURS: Final = "NotInBurstPartition"
"""Code under which refused nodes are counted."""


class AskedNodes:
    """Tells the nodes of the burst partition from others, by what was last seen of Slurm.

    Parameters
    ----------
    settings : Settings
        The burst partition's name.
    slurm : SlurmBackend
        Told why a node of another partition gets no instance.
    view : SharedView
        What was seen.
    clock : Clock
        Time.
    """

    def __init__(self, settings: Settings, slurm: SlurmBackend, view: SharedView, clock: Clock) -> None:
        self._settings = settings
        self._slurm = slurm
        self._view = view
        self._clock = clock
        self._members: frozenset[str] = frozenset()
        self._others: frozenset[str] = frozenset()
        self._first_asked: dict[str, float] = {}  # hand-over: monotonic seconds
        self._told: set[str] = set()  # hand-overs whose refused nodes have been said

    def foreign(self, hand_over: HandOver) -> tuple[str, ...] | None:
        """Nodes of a hand-over that are not of the burst partition.

        A node that was added a moment ago is on no look yet, so a node nobody knows is refused only by a look
        that began after the hand-over was first heard of.

        Returns
        -------
        tuple of str, or None
            None: that look is still to come. While Slurm is not to be seen nothing is refused but a resume:
            only an instance that EC2 calls ours can be ended.
        """
        is_seen = self.look()
        unknown = tuple(node for node in hand_over.nodes if node not in self._members)
        if not unknown:
            return ()
        if not is_seen and hand_over.operation != "resume":
            return ()
        heard = self._first_asked.setdefault(hand_over.identity, self._clock.monotonic())
        return unknown if is_seen and self._view.looked >= heard else None

    def refuse(self, hand_over: HandOver, nodes: tuple[str, ...]) -> str:
        """Say, once, why nothing is done for nodes of other partitions; returns the reason.

        When ResumeTimeout has passed, slurmctld sets such a node down, requeues its job and calls
        ResumeFailProgram: the Reason is set then. Of a node that powers up slurmctld (22.05) keeps none.
        Nothing else is changed: it is not ours to power up or down.
        """
        partition = self._settings.cluster.burst_partition
        why = f"not a node of partition {partition}"
        if hand_over.identity in self._told:
            return why
        self._told.add(hand_over.identity)
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
        """It has been acted upon, or set aside."""
        self._first_asked.pop(hand_over.identity, None)
        self._told.discard(hand_over.identity)

    def look(self) -> bool:
        """Note which nodes there are; False when Slurm has not been seen lately."""
        try:
            snapshot = self._view.fresh()
        except RetryLater:  # what was seen before still says which nodes there are
            return False
        self._members = frozenset(node.name for node in burst_nodes(snapshot, self._settings))
        self._others = frozenset(node.name for node in snapshot.nodes) - self._members
        return True
