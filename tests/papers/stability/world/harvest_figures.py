"""What Agarwal et al. (NSDI 2023), section 2.1, publish of harvest nodes, measured on any nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats
from advisor.papers.stability.world.nodes import NodeChanges

MINUTE, HOUR = 60.0, 3600.0
STEADY_FOR = 2.6
"""Figure 13: a task of duration d ends undisturbed with 70 % on a node steady for 2.6 d."""


class HarvestFigures(NamedTuple):
    """Figures of times between changes and of the hours of nodes.

    ``within_minute``, ``within_10_minutes``, ``within_hour``: shares of changes that follow another so soon;
    ``mean_minutes``, ``p95_hours``: of the time between; ``median_count``: changes in half of all node-hours,
    at most; ``worst_tenth_count``: mean of the tenth with most; ``p99_count``, ``most``: further up;
    ``steady_confidence``: share of intervals of 2.6 d that last d longer, mean over d of 10 to 75 minutes;
    ``mean_size``: cores.
    """

    within_minute: float
    within_10_minutes: float
    within_hour: float
    mean_minutes: float
    p95_hours: float
    median_count: float
    worst_tenth_count: float
    p99_count: float
    most: float
    steady_confidence: float
    mean_size: float


def harvest_figures(changes: NodeChanges) -> HarvestFigures:
    """Measure them; nodes should change now and then, or there is nothing to measure."""
    order = np.lexsort((changes.time, changes.node))
    node, time = changes.node[order], changes.time[order]
    gaps = np.asarray(np.diff(time)[node[1:] == node[:-1]], np.float64)
    hours = int(changes.until // HOUR)
    whole = changes.time < hours * HOUR
    cell = changes.node[whole] * hours + (changes.time[whole] // HOUR).astype(np.int64)
    counts = np.sort(np.bincount(cell, minlength=changes.nodes * hours))[::-1]
    return HarvestFigures(
        within_minute=float(np.mean(gaps < MINUTE)),
        within_10_minutes=float(np.mean(gaps < 10 * MINUTE)),
        within_hour=float(np.mean(gaps < HOUR)),
        mean_minutes=float(gaps.mean() / MINUTE),
        p95_hours=float(np.quantile(gaps, 0.95) / HOUR),
        median_count=float(np.quantile(counts, 0.5)),
        worst_tenth_count=float(counts[: max(1, len(counts) // 10)].mean()),
        p99_count=float(np.quantile(counts, 0.99)),
        most=float(counts[0]),
        steady_confidence=_steady_confidence(gaps),
        mean_size=float(np.abs(changes.after - changes.before()).mean()),
    )


def _steady_confidence(gaps: Floats) -> float:
    shares = []
    for minutes in (10.0, 20.0, 40.0, 75.0):
        steady = gaps > STEADY_FOR * minutes * MINUTE
        lasting = gaps > (STEADY_FOR + 1.0) * minutes * MINUTE
        shares.append(float(lasting.sum()) / max(float(steady.sum()), 1.0))
    return float(np.mean(shares))
