"""Tell Slurm until when the nodes of a capacity block last. The provision loop does.

EC2 ends the instances of a block, whatever runs on them. Slurm starts no job on a node that would run into a
reservation, so each block's nodes have a short one that begins when EC2 ends them. Slurm removes it by itself
when it is over.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Final

from advisor.model.errors import RetryLater
from advisor.model.node_sets import fold
from advisor.model.snapshot import Reservation
from advisor.slurm.commands import Commands, delete_reservation, reservations_of, reserve_nodes

PREFIX: Final = "advisor_end_"
_MINUTES: Final = 30
"""As long as EC2 takes to clear a block."""
_SAME_SECONDS: Final = 60.0
"""A reservation that begins so close to a block's end is left alone; slurmctld counts whole seconds."""


class BlockEnds:
    """The reservations at the end of capacity blocks, by Slurm's own commands."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def known(self) -> dict[str, Reservation]:
        """The reservation of each block that Slurm knows; RetryLater when slurmctld does not say."""
        every = reservations_of(self._commands)
        return {one.name.removeprefix(PREFIX): one for one in every if one.name.startswith(PREFIX)}

    def keep(self, wanted: Mapping[str, tuple[Collection[str], float]], now: float) -> None:
        """Tell Slurm the nodes of each block, and when EC2 ends them (epoch seconds); clear all others.

        Raises:
            RetryLater: slurmctld refused one, as where another reservation has its nodes then. The others are
                told; the next call tries again.
        """
        known, refusal = self.known(), None
        for block, (nodes, ends_at) in wanted.items():
            if not nodes or ends_at <= now:
                continue
            try:
                self._keep_one(block, nodes, ends_at, known.get(block), now)
            except RetryLater as error:
                refusal = error
        for block in known.keys() - {block for block, (nodes, _) in wanted.items() if nodes}:
            delete_reservation(self._commands, f"{PREFIX}{block}")
        if refusal is not None:
            raise refusal

    def _keep_one(
        self, block: str, nodes: Collection[str], ends_at: float, known: Reservation | None, now: float
    ) -> None:
        which = f"nodes={fold(sorted(nodes))}"
        if known is not None and abs(known.begin - ends_at) > _SAME_SECONDS:
            # a block was extended; slurmctld does not move a reservation that has begun
            delete_reservation(self._commands, known.name)
            known = None
        if known is None:
            begin = f"starttime=now+{max(1, math.floor(ends_at - now)):d}"
            reserve_nodes(self._commands, f"{PREFIX}{block}", which, begin, f"duration={_MINUTES:d}")
        elif known.nodes != frozenset(nodes):
            self._commands.text("scontrol", "update", f"reservationname={known.name}", which)
