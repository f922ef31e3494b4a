"""Lets no job start on a node of a capacity block that would run past the block's end."""

from __future__ import annotations

import math
from typing import Final

from advisor.ec2.fleet import Fleet
from advisor.service.cloud.paid_now import AskAccount
from advisor.service.running.clock import Clock
from advisor.slurm.block_ends import BlockEnds

_LOOK_SECONDS: Final = 60.0
"""Until Slurm is looked at again although nothing has changed: somebody may have deleted what it was told."""


class BlockKeeper:
    """Tells Slurm when the nodes of capacity blocks end.

    Args:
        ends: Tells it; None: this Slurm cannot be told.
    """

    def __init__(self, fleet: Fleet, account: AskAccount, ends: BlockEnds | None, clock: Clock) -> None:
        self._fleet = fleet
        self._account = account
        self._ends = ends
        self._clock = clock
        self._told: object = None  # an earlier process may have told Slurm of a block
        self._look_at = -math.inf

    def keep(self) -> None:
        """Tell Slurm what has changed; asks it nothing where there is no block.

        Raises:
            RetryLater: slurmctld refused; the next call tries again.
        """
        if self._ends is None:
            return
        nodes = self._fleet.in_blocks()
        wanted = {
            each.reservation_id: (nodes.get(each.reservation_id, ()), each.ends_at)
            for each in self._account().reservations
            if each.is_block and nodes.get(each.reservation_id)
        }
        now = self._clock.monotonic()
        if wanted == self._told and (not wanted or now < self._look_at):
            return
        self._ends.keep(wanted, self._clock.wall())
        self._told, self._look_at = wanted, now + _LOOK_SECONDS
