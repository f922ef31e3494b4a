"""Weights of nodes: ours are added to what slurm.conf says, and whose they are is never forgotten.

``scontrol update nodename= weight=`` holds at once, and until the next ``scontrol reconfigure`` or restart of
slurmctld, which bring slurm.conf's weights back. What we add is small (0 to `MAX_ADDED`): a weight seen
within that much of a node's own is ours or its own, whichever of two looks came first and whether or not
slurmctld took the last one; any other is what the site has set meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from advisor.files.state_file import StateFile
from advisor.model.cluster import Node
from advisor.service.running.isolating import for_each
from advisor.slurm.protocol import SlurmBackend

log = structlog.get_logger(__name__)

MAX_ADDED: Final = 10


class NodeWeights:
    """Gives nodes weights relative to their own. Used by one thread.

    Parameters
    ----------
    slurm : SlurmBackend
        Told.
    state : StateFile
        Where the nodes' own weights are kept while ours are in force; one that is lost costs the site an
        order of nodes that is off by at most `MAX_ADDED` until the next ``scontrol reconfigure``.
    """

    def __init__(self, slurm: SlurmBackend, state: StateFile) -> None:
        self._slurm = slurm
        self._state = state
        self._own = {
            name: own
            for name, own in state.read().items()
            if isinstance(own, int) and not isinstance(own, bool) and own >= 0
        }

    @property
    def count(self) -> int:
        """Nodes whose weight is ours now."""
        return len(self._own)

    def apply(self, nodes: Iterable[Node], added: Mapping[str, int]) -> None:
        """Let each node weigh its own weight and what is added; those without an entry get their own back.

        Raises
        ------
        RetryLater
            slurmctld did not take one; it is tried again with the next call.
        """
        before = dict(self._own)
        wanted: dict[int, list[str]] = {}
        for node in nodes:
            seen = node.weight
            if seen is None or (node.name not in self._own and node.name not in added):
                continue
            own = self._own.get(node.name, seen)
            if not own <= seen <= own + MAX_ADDED:
                own = seen
            self._own[node.name] = own
            weight = own + min(MAX_ADDED, max(0, added.get(node.name, 0)))
            if weight != seen:
                wanted.setdefault(weight, []).append(node.name)
            elif node.name not in added:
                del self._own[node.name]  # it has its own again: nothing to remember
        if self._own != before:
            self._save()  # before Slurm is told: a weight of ours must never be taken for the site's
        for_each(sorted(wanted.items()), self._tell)

    def _tell(self, group: tuple[int, list[str]]) -> None:
        weight, names = group
        self._slurm.update_node(names, weight=weight)
        log.info("node.weight", nodes=names, weight=weight)

    def _save(self) -> None:
        self._state.keep(dict(self._own), "weights.not_saved")
