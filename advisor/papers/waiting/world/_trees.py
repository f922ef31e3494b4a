"""Walking a forest of distributions inside the kernels: chances and expected times from tails in leaves."""

from __future__ import annotations

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.papers.waiting.world._state import Forest


@compiled
def leaf_of(forest: Forest, root: int, row: Floats) -> int:
    """Leaf of one tree a row falls into; compared in single precision, as scikit-learn does."""
    node = root
    while forest.feature[node] >= 0:
        x = np.float64(np.float32(row[forest.feature[node]]))
        node = forest.children[node, 0] if x <= forest.threshold[node] else forest.children[node, 1]
    return int(forest.leaf[node])


@compiled
def between(edges: Floats, tail: Floats, seconds: float) -> float:
    """Chance of more than so many seconds, from the chances at the edges."""
    above = min(max(int(np.searchsorted(edges, seconds)), 1), len(edges) - 1)
    share = (seconds - edges[above - 1]) / (edges[above] - edges[above - 1])
    share = min(max(share, 0.0), 1.0)
    return float((1.0 - share) * tail[above - 1] + share * tail[above])


@compiled
def chance_of_more(forest: Forest, row: Floats, seconds: float) -> float:
    """Predicted chance that the wait still to come is longer than ``seconds``; 0 without trees."""
    if len(forest.roots) == 0:
        return 0.0
    total = 0.0
    for root in forest.roots:
        total += between(forest.edges, forest.tail[leaf_of(forest, root, row)], seconds)
    return total / len(forest.roots)


@compiled
def chances_of_more(forest: Forest, rows: Floats, seconds: float) -> Floats:
    """``chance_of_more`` of many rows."""
    chances = np.empty(len(rows))
    for i in range(len(rows)):
        chances[i] = chance_of_more(forest, rows[i], seconds)
    return chances


@compiled
def outlook(forest: Forest, row: Floats, left: float) -> tuple[float, float]:
    """Predicted chance to start within ``left`` seconds, and expected seconds until it starts or they end."""
    edges = forest.edges
    trees = len(forest.roots)
    tail = np.zeros(len(edges))
    for root in forest.roots:
        tail += forest.tail[leaf_of(forest, root, row)]
    to_come, at = 0.0, 1
    while at < len(edges) - 1 and edges[at] < left:
        to_come += 0.5 * (tail[at - 1] + tail[at]) * (edges[at] - edges[at - 1])
        at += 1
    beyond = between(edges, tail, left)
    to_come += 0.5 * (tail[at - 1] + beyond) * (left - edges[at - 1])
    return 1.0 - beyond / trees, to_come / trees
