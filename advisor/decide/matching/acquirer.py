"""The acquirer: keep nodes that are likely to survive, release the others (Agarwal et al., section 3.2).

Every hour a share of the least stable nodes is retired: new nodes are requested first, retired nodes get no
new tasks and are released when their tasks have ended. In the paper the least stable node is the one that
changed most recently; here it is the one with the highest change rate of its own. Either way no node is
exchanged that is expected to be as good as a new one. The paper exchanges it; there a node changes many times
in its life, and one that has just changed is worse than a new one of the provider's (section 4.3). On EC2 the
last change is the launch, and the youngest node would be exchanged for a fresh one of the same kind.

The paper retires a tenth of the nodes; `AcquirerRules`, with which `advisor replay stability` runs, a fifth
at most. The acquire loop (`advisor.service.stability.acquirer`) exchanges a tenth of the kept nodes, at least
one, and lets their number follow their use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquirerRules:
    """Parameters of the acquirer.

    Attributes:
        share: Largest share of nodes retired in a period.
        by_own_rate: Rank by each node's own change rate; False: by the time since its last change.
        lowest, highest: Bounds of the utilisation; nodes are requested and released to stay within them.
    """

    share: float = 0.2
    by_own_rate: bool = True
    lowest: float = 0.6
    highest: float = 0.8


@dataclass(frozen=True, slots=True, eq=False)
class AcquirerPlan:
    """Nodes to retire and cores to request.

    Attributes:
        retire: Rows of the nodes to retire, least stable first.
        cores: Cores to request before the nodes are retired.
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
    """Decide which nodes to retire and how many cores to request.

    Args:
        cores: int64 array, shape (nodes,): Cores of the nodes that are not retiring.
        since_change: float64 array, shape (nodes,): Seconds since each node gained or lost cores, or was
            launched.
        own_rate: float64 array, shape (nodes,): Each node's expected change rate as a multiple of the pool's.
        busy_cores: Cores in use.
        target_cores: Fixed size (section 4.3); by default the size follows the utilisation (section 4.4).
        fresh_rate: Expected change rate of a new node, in the unit of `own_rate`; only nodes above it are
            exchanged.
        bounds: Minimum and maximum cores where the size follows the utilisation.
        needed_now: Cores in use and requested now (`busy_cores` is an average); the size does not shrink
            below them.
        may_go: bool array, shape (nodes,): Nodes that may be released to shrink; by default all. It does not
            apply to exchanged nodes.
    """
    rules = rules or AcquirerRules()
    total = float(cores.sum())
    wanted = target_cores
    if wanted is None:
        wanted = min(bounds[1], max(bounds[0], _wanted_cores(total, busy_cores, needed_now, rules)))
    order = np.argsort(-own_rate if rules.by_own_rate else since_change, kind="stable")
    quota = round(rules.share * len(cores))
    retired = list(order[own_rate[order] > fresh_rate][:quota])
    left = total - float(cores[retired].sum())
    if target_cores is None:
        released = _released(order[~np.isin(order, retired)], cores, left, wanted, may_go)
        retired += released
        left -= float(cores[released].sum())
    return AcquirerPlan(np.array(retired, np.int64), max(0.0, wanted - left))


def _released(
    order: Ints, cores: Ints, left: float, wanted: float, may_go: NDArray[np.bool_] | None
) -> list[int]:
    """Rows of the nodes to release without a replacement, in this order, until `wanted` cores are left."""
    released: list[int] = []
    for row in order:
        if may_go is not None and not may_go[row]:
            continue
        if left - cores[row] < wanted:
            break
        released.append(int(row))
        left -= float(cores[row])
    return released


def _wanted_cores(total: float, busy: float, needed_now: float, rules: AcquirerRules) -> float:
    """Cores at which the utilisation is within its bounds."""
    if busy > rules.highest * total:
        return busy / rules.highest
    used = max(busy, needed_now)
    if used < rules.lowest * total and not math.isclose(used, 0.0):  # without any use the size stays
        return used / rules.lowest
    return total
