"""The acquirer: keep nodes that stay, give back those that do not (Agarwal et al., section 3.2). Pure.

Every hour the least stable tenth is retired gracefully: new nodes are asked for first, the retired ones get
no new tasks and are given back when those on them are done. Nothing running is ever touched. "Least stable"
is, as published, changed most recently; ours is the node's own change rate, and no node is retired that is
expected to be better than what the provider would hand out instead: with nodes that are all alike nothing is
explored, with very different ones the full share is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquirerRules:
    """How nodes are chosen.

    Attributes
    ----------
    share : float
        Of the nodes, retired in a period at most.
    own_rate : bool
        Rank by each node's own change rate; False: by the time since its last change, as published.
    lowest, highest : float
        Utilisation is kept between these by asking for nodes and giving nodes back.
    least_age : float
        Seconds before a node may be judged.
    """

    share: float = 0.2
    own_rate: bool = True
    lowest: float = 0.6
    highest: float = 0.8
    least_age: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class AcquirerPlan:
    """What to do now.

    Attributes
    ----------
    retire : int64 array
        Rows of the nodes that get no new tasks from now on, worst first.
    cores : float
        Cores to ask for before that, to replace them and to follow the load.
    """

    retire: Ints
    cores: float


def acquire(
    cores: Ints,
    since_change: Floats,
    own_rate: Floats,
    *,
    busy_cores: float,
    target_cores: float | None,
    fresh_rate: float = 0.5,
    bounds: tuple[float, float] = (0.0, math.inf),
    rules: AcquirerRules | None = None,
    needed_now: float = 0.0,
    may_go: NDArray[np.bool_] | None = None,
) -> AcquirerPlan:
    """Decide which nodes to retire and how many cores to ask for.

    Parameters
    ----------
    cores : int64 array, shape (nodes,)
        Of the nodes that are had and not retiring.
    since_change : float64 array, shape (nodes,)
        Seconds since each changed, or was got.
    own_rate : float64 array, shape (nodes,)
        Each node's expected change rate as a multiple of the pool's.
    busy_cores : float
        Cores in use.
    target_cores : float, optional
        A fixed size to keep (section 4.3); by default the size follows the utilisation (section 4.4).
    fresh_rate : float
        Expected own rate of a node that would be got instead.
    bounds : (float, float)
        Fewest and most cores where the size follows the utilisation.
    rules : AcquirerRules, optional
        How to choose.
    needed_now : float
        Cores in use and asked for at this moment, where `busy_cores` is an average over the past: the size
        does not shrink below what these need.
    may_go : bool array, shape (nodes,), optional
        Nodes that may be given back because there are too many; by default all may. The share that is
        exchanged is not asked: others come in its stead.
    """
    rules = rules or AcquirerRules()
    total = float(cores.sum())
    wanted = target_cores
    if wanted is None:
        wanted = min(bounds[1], max(bounds[0], _wanted_cores(total, busy_cores, needed_now, rules)))
    order = np.argsort(-own_rate if rules.own_rate else since_change, kind="stable")
    quota = round(rules.share * len(cores))
    if rules.own_rate:
        quota = min(quota, int(np.count_nonzero(own_rate > fresh_rate)))
    retired = list(order[:quota])
    left = total - float(cores[retired].sum())
    if target_cores is None:  # too large: go on giving back, worst first
        for row in order[quota:]:
            if may_go is not None and not may_go[row]:
                continue
            if left - cores[row] < wanted:
                break
            retired.append(row)
            left -= float(cores[row])
    return AcquirerPlan(np.array(retired, np.int64), max(0.0, wanted - left))


def _wanted_cores(total: float, busy: float, needed_now: float, rules: AcquirerRules) -> float:
    """Size at which the utilisation is within its bounds again; as it is when it is."""
    if busy > rules.highest * total:
        return busy / rules.highest
    used = max(busy, needed_now)
    if used < rules.lowest * total and not math.isclose(used, 0.0):
        return used / rules.lowest
    return total
