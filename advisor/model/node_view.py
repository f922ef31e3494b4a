"""Nodes and their tasks as the matching algorithm sees them; live and simulated clusters fill it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

NodeRecords: TypeAlias = Any
"""Records of type ``NODE_RECORD``; compiled code reads their fields as attributes."""

NODE_RECORD = np.dtype(
    [("age", np.float64)]
    + [(name, np.int64) for name in ("cores", "free", "last", "open", "first", "running")],
    align=True,
)
"""One node. ``age``: seconds since its last change of cores, or since its launch; ``cores``, ``free``: now;
``last``: direction of the last change, 0 growth or 1 shrink (0 for a new node); ``open``: whether it accepts
tasks; ``first``, ``running``: its tasks in ``NodeView.remaining`` and ``.held``."""


class NodeView(NamedTuple):
    """Nodes and what runs on them.

    Attributes:
        nodes: records, shape (nodes,): Of type ``NODE_RECORD``.
        remaining: float64, shape (running tasks,): Seconds until each running task is expected to end,
            ascending within a node.
        held: int64, shape (running tasks,): Cores each holds.
    """

    nodes: NodeRecords
    remaining: NDArray[np.float64]
    held: NDArray[np.int64]
