"""Weights of nodes: ours are added to those of slurm.conf, and can always be recognised.

The match loop and the portfolio loop set them.

``scontrol update nodename= weight=`` takes effect at once and lasts until the next ``scontrol reconfigure``
or restart of slurmctld, which restore slurm.conf's weights. We add little (0 to `MAX_ADDED`): a weight
within that much of a node's own is ours or its own, whether or not slurmctld took our last change; any other
weight was set by the site meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from advisor.files.state_file import StateFile
from advisor.model.cluster import Node
from advisor.model.scheduler import CloudScheduler
from advisor.service.running.isolating import for_each
from advisor.service.state.records import OwnWeights

log = structlog.get_logger(__name__)

MAX_ADDED: Final = 10


class NodeWeights:
    """Gives nodes weights relative to their own. Used by one thread.

    ``state`` keeps the nodes' own weights while ours are in force. Losing it costs the site an order of nodes
    that is wrong by at most `MAX_ADDED` until the next ``scontrol reconfigure``.
    """

    def __init__(self, slurm: CloudScheduler, state: StateFile[OwnWeights]) -> None:
        self._slurm = slurm
        self._state = state
        self._own = state.read()

    @property
    def count(self) -> int:
        """Number of nodes whose weight is ours now."""
        return len(self._own)

    def apply(self, nodes: Iterable[Node], added: Mapping[str, int]) -> None:
        """Set each node's weight to its own plus ``added``; nodes without an entry get their own back.

        Raises:
            RetryLater: slurmctld refused one; the next call tries it again.
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
                del self._own[node.name]  # it has its own weight again: nothing to remember
        if self._own != before:
            self._save()  # before Slurm changes: a weight of ours must never be taken for the site's
        for_each(sorted(wanted.items()), self._set)

    def _set(self, group: tuple[int, list[str]]) -> None:
        weight, names = group
        self._slurm.update_node(names, weight=weight)
        log.info("node.weight", nodes=names, weight=weight)

    def _save(self) -> None:
        self._state.keep(self._own, "weights.not_saved")
