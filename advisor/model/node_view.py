"""What a match maker sees of nodes at one moment; down here, as the simulated cluster fills it too."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

NodeRecords: TypeAlias = Any
"""Records of type ``NODE_SIGHT``; compiled code reads their fields as attributes."""

NODE_SIGHT = np.dtype(
    [("age", np.float64)]
    + [(name, np.int64) for name in ("cores", "free", "last", "open", "first", "running")],
    align=True,
)
"""One node. ``age``: seconds since it was last seen to change, or since it was got; ``cores``, ``free``: now;
``last``: direction of the last change, 0 growth or 1 shrink (0 for a new node); ``open``: whether tasks may
be put on it; ``first``, ``running``: its tasks in ``NodeView.remaining`` and ``.held``."""


class NodeView(NamedTuple):
    """Nodes and what runs on them.

    Attributes
    ----------
    nodes : records, shape (nodes,)
        Of type ``NODE_SIGHT``.
    remaining : float64, shape (running tasks,)
        Seconds until each running task is expected to end, ascending within a node.
    held : int64, shape (running tasks,)
        Cores each will give back.
    """

    nodes: NodeRecords
    remaining: NDArray[np.float64]
    held: NDArray[np.int64]
