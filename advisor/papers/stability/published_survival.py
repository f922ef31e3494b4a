"""The survival estimate as published (Agarwal et al., NSDI 2023, section 3.1.1)."""

from __future__ import annotations

import numpy as np

from advisor.arrays import Bools, Floats
from advisor.predict.survival.hazard import AGES
from advisor.predict.survival.node_survival import (
    DAY,
    SHRINK,
    Intervals,
    SurvivalModel,
    shrink_probabilities,
    shrink_sizes,
)

_MIN_SURVIVAL = 1e-6  # the longest interval of a day always ends at zero: less than this is no evidence


def kaplan_meier(lasted: Floats, completed: Bools) -> tuple[Floats, Floats]:
    """Survival just after each time at which an interval ended (Kaplan and Meier 1958).

    Args:
        lasted: ndarray, shape (n,): Length of each interval so far, seconds.
        completed: ndarray of bool, shape (n,): False where the interval is still open.

    Returns:
        Times in seconds, ascending and distinct; empty when nothing ended.

    Examples:
        >>> ended = np.array([True, True, False, False])
        >>> times, survival = kaplan_meier(np.array([1.0, 2.0, 2.0, 4.0]), ended)
        >>> times.tolist(), survival.tolist()
        ([1.0, 2.0], [0.75, 0.5])
    """
    times, ends = np.unique(lasted[completed], return_counts=True)
    order = np.sort(lasted)
    at_risk = len(order) - np.searchsorted(order, times, side="left")
    left: Floats = np.cumprod(1.0 - ends / np.maximum(at_risk, 1)).astype(np.float64)
    return times, left


def published(seen: Intervals, now: float, nodes: int, *, to_shrink: bool = False) -> SurvivalModel:
    """The paper's estimate: completed intervals of the past day (D = 1), one curve for all nodes.

    Beyond the longest interval of that day the conditional probability is 0/0; a node that old counts as
    staying. ``to_shrink`` selects appendix B.2 (Eq. 3): the distribution of times from a change to a
    *shrink*.
    """
    recent = seen.since(now - DAY)
    chosen = recent.completed & (recent.ended == SHRINK) if to_shrink else recent.completed
    lasted = (recent.end - recent.start)[chosen]
    times, survival = kaplan_meier(lasted, np.ones(len(lasted), np.bool_))
    steps = np.concatenate([np.ones(1), survival])[np.searchsorted(times, AGES, side="right")]
    return SurvivalModel(
        hazard=-np.log(np.maximum(steps, _MIN_SURVIVAL)),
        shrink_after=np.ones(2) if to_shrink else shrink_probabilities(recent),
        larger=shrink_sizes(recent),
        shape=np.full(nodes, np.inf),
        rate=np.ones(nodes),
    )
