"""The provision loop's step that keeps jobs from running past the end of a capacity block on its nodes."""

from __future__ import annotations

import math
from typing import Final

from advisor.service.cloud.cloud_context import CloudContext

_LOOK_SECONDS: Final = 60.0
"""Until Slurm is looked at again although nothing has changed: somebody may have deleted what it was told."""


class BlockKeeper:
    """Tells Slurm when the nodes of capacity blocks end."""

    def __init__(self, context: CloudContext) -> None:
        self._context = context
        self._told: object = None  # an earlier process may have told Slurm of a block
        self._look_at = -math.inf

    def keep(self) -> None:
        """Tell Slurm what has changed; asks it nothing where there is no block.

        Raises:
            RetryLater: slurmctld refused; the next call tries again.
        """
        ends = self._context.block_ends
        if ends is None:
            return
        blocks = (each for each in self._context.account().reservations if each.is_block)
        ends_at = {each.reservation_id: each.ends_at for each in blocks}
        # of a block whose end is not known, as while EC2 cannot be read after a start, nothing is changed
        wanted = {
            block: (nodes, ends_at.get(block, -math.inf))
            for block, nodes in self._context.fleet.in_blocks().items()
        }
        now = self._context.clock.monotonic()
        if wanted == self._told and (not wanted or now < self._look_at):
            return
        ends.keep(wanted, self._context.clock.wall())
        self._told, self._look_at = wanted, now + _LOOK_SECONDS
