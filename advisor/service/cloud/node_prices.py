"""What each node was launched for: its jobs are billed at that price, whatever prices do afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from advisor.history.state_file import StateFile

_LAUNCHES: Final = 8
"""Launches remembered of a node: accounting tells of a job's end seconds later, at worst hours."""


class NodePrices:
    """Prices at launch. Safe to be used by several threads.

    Parameters
    ----------
    state : StateFile
        Where they are kept; unreadable state counts as empty.
    """

    def __init__(self, state: StateFile) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._launches = _kept(state.read())

    def launched(self, launches: Iterable[tuple[str, str, float]], time: float) -> None:
        """Note launches: node, instance and dollars an hour; one that is known keeps its price."""
        with self._lock:
            news = False
            for node, instance_id, usd_per_hour in launches:
                known = self._launches.get(node, [])
                if known and known[-1][1] == instance_id:
                    continue
                self._launches[node] = [*known, (time, instance_id, usd_per_hour)][-_LAUNCHES:]
                news = True
            if not news:
                return
            self._state.keep(
                {node: list(rows) for node, rows in self._launches.items()}, "node_prices.not_saved"
            )

    def launched_at(self, node: str) -> float | None:
        """When the node was launched last, epoch seconds; None when that is not known."""
        with self._lock:
            known = self._launches.get(node)
        return known[-1][0] if known else None

    def usd_per_hour(self, node: str, time: float) -> float | None:
        """Price of what the node was at a moment (epoch seconds); None when that is not known."""
        with self._lock:
            known = self._launches.get(node, [])
        return next((usd for since, _, usd in reversed(known) if since <= time), None)


def _kept(content: Mapping[str, Any]) -> dict[str, list[tuple[float, str, float]]]:
    found: dict[str, list[tuple[float, str, float]]] = {}
    for node, rows in content.items():
        for row in rows if isinstance(rows, list) else []:
            match row:
                case [int() | float() as since, str() as instance_id, int() | float() as usd]:
                    found.setdefault(node, []).append((float(since), instance_id, float(usd)))
    return found
