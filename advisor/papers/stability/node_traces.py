"""Where nodes that change come from: synthetic clusters, CSV files, and spot traces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.model.errors import BadInput
from advisor.papers.stability.world.harvest import CLUSTERS, DAY, harvest_nodes
from advisor.papers.stability.world.nodes import NodeChanges, node_changes
from advisor.replay.spot_traces import csv_rows, spot_counts, text_of

SYNTHETIC = "synthetic"
RENTED = 64
"""Nodes of a synthetic cluster, as in section 4.1."""

SERVERS = 640
"""Servers on which the acquirer may get a node; the paper's clusters have 700 to 2,000."""

SYNTHETIC_DAYS = 4.0
INSTANCE_CORES = 16
"""Cores of an instance of a spot trace, which counts instances only."""

_MAX_INSTANCES = 4_096
_MAX_CORES = 10_000  # of a node: the simulated cluster keeps a place for a task on each


@dataclass(frozen=True, slots=True)
class NodePool:
    """Nodes, and which of them are had at the start.

    Attributes:
        changes: All nodes that can be had.
        rented: The first so many are had at the start; the others can be asked for.
        synthetic: Whether they were drawn.
    """

    changes: NodeChanges
    rented: int
    synthetic: bool


def load_nodes(spec: str) -> NodePool:
    """Nodes of a replay.

    Args:
        spec: ``synthetic:CLUSTER:SEED`` (C1 to C8), a CSV file ``node,time,cores`` (seconds; a change to 0 is
            an eviction), or the JSON of a spot trace; either may be gzipped. Several files, separated by
            commas, are nodes of one cluster that start together.

    Raises:
        BadInput: An unreadable or malformed file, or an unknown cluster.
    """
    if spec.split(":", maxsplit=1)[0] == SYNTHETIC:
        return _synthetic(spec)
    parts = [_from_file(Path(name)) for name in spec.split(",") if name]
    if not parts:
        raise _bad("nothing given", "--nodes", "Give a file or synthetic:C2:1")
    changes = _together(parts)
    return NodePool(changes, changes.nodes, synthetic=False)


def _bad(what: str, where: str, mend: str) -> BadInput:
    return BadInput(what, where=where, mend=mend, code="nodes.malformed")


def _synthetic(spec: str) -> NodePool:
    words = spec.split(":")
    cluster = words[1] if len(words) > 1 else ""
    seed = words[2] if len(words) > 2 else "1"
    if cluster not in CLUSTERS or not seed.isdecimal() or len(seed) > 18 or len(words) > 3:
        raise _bad(f"{spec!r} is not synthetic:CLUSTER:SEED", "--nodes", "Write for instance synthetic:C2:1")
    generator = np.random.default_rng(int(seed))
    changes = harvest_nodes(generator, cluster, nodes=SERVERS, until=SYNTHETIC_DAYS * DAY)
    return NodePool(changes, RENTED, synthetic=True)


def _from_file(path: Path) -> NodeChanges:
    text = text_of(path)
    if text.lstrip().startswith("{"):
        return spot_changes(text, str(path))
    return csv_changes(text, str(path))


def spot_changes(text: str, where: str = "spot trace") -> NodeChanges:
    """Nodes of a spot trace: JSON with ``metadata.gap_seconds`` and ``data``, instances alive at each tick.

    The trace counts instances and does not name them: the n-th node is there when n or more are.

    Raises:
        BadInput: Malformed.
    """
    gap, alive = spot_counts(text, where)
    if len(alive) < 2 or np.any(alive > _MAX_INSTANCES) or np.any(alive != np.floor(alive)):
        raise _bad(
            "its data are not numbers of instances",
            where,
            f"Give two or more whole numbers from 0 to {_MAX_INSTANCES:,}",
        )
    up = alive[None, :] > np.arange(int(alive.max()))[:, None]
    node, tick = np.nonzero(up[:, 1:] != up[:, :-1])
    return node_changes(
        up[:, 0].astype(np.int64) * INSTANCE_CORES,
        ((tick + 1) * gap).astype(np.float64),
        node,
        up[node, tick + 1].astype(np.int64) * INSTANCE_CORES,
        len(alive) * gap,
    )


def csv_changes(text: str, where: str = "nodes") -> NodeChanges:
    """Nodes of a CSV file with the columns ``node,time,cores``; the first row of a node is its start.

    A node is not there before its first row. Time is counted from the earliest row.

    Raises:
        BadInput: Malformed.
    """
    names: dict[str, int] = {}
    node, time, cores = [], [], []
    for line, row in csv_rows(text, where, ("node", "time", "cores")):
        try:
            node.append(names.setdefault(row["node"].strip(), len(names)))
            time.append(float(row["time"]))
            cores.append(_whole_cores(row["cores"]))
        except (ValueError, AttributeError, TypeError):
            raise _bad(
                "not node,time,cores", f"{where}, line {line}", f"Cores are whole, 0 to {_MAX_CORES:,}"
            ) from None
    if not node or not np.all(np.isfinite(time)):
        raise _bad("it has no rows, or a time that is not a number", where, "Give a row for each change")
    at = np.array(time) - min(time)
    after, who = np.array(cores, np.int64), np.array(node, np.int64)
    initial = np.zeros(len(names), np.int64)
    begins = at == 0.0
    initial[who[begins]] = after[begins]
    return node_changes(initial, at[~begins], who[~begins], after[~begins], max(float(at.max()), 1.0))


def _whole_cores(text: str) -> int:
    cores = int(text)
    if not 0 <= cores <= _MAX_CORES:
        raise ValueError(text)
    return cores


def _together(parts: list[NodeChanges]) -> NodeChanges:
    """One cluster of several traces that start together and end with the shortest."""
    until = min(part.until for part in parts)
    offsets = np.cumsum([0, *(part.nodes for part in parts)])
    node = np.concatenate([part.node + offset for part, offset in zip(parts, offsets, strict=False)])
    time = np.concatenate([part.time for part in parts])
    after = np.concatenate([part.after for part in parts])
    kept = time < until
    return node_changes(
        np.concatenate([part.cores for part in parts]), time[kept], node[kept], after[kept], until
    )
