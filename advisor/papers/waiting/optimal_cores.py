"""How many cores a site would own at least cost (Ambati et al., section 2.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from advisor.papers.waiting.waiting_policies import policies
from advisor.papers.waiting.waiting_rows import Replayed
from advisor.papers.waiting.waiting_worlds import rented_cost
from advisor.papers.waiting.world.costs import CostModel
from advisor.papers.waiting.world.world import Workload

Progress = Callable[[str, int, int], None]

_TENTHS: Final = 0.1
_MAX_LOAD: Final = 20  # tenths of the mean load: twice it


def coarse_optimum(
    workload: Workload,
    short_seconds: float,
    longest_wait_seconds: float,
    costs: CostModel,
    progress: Progress | None = None,
) -> int:
    """Cheapest number of fixed cores among tenths of the mean load.

    The whole log is simulated with the oracle's policy, in hindsight as in the paper: the number is the same
    for every policy that is compared. Fixed cores cost their price all the time, rented ones while they are
    used. The curve is so flat that finer steps follow chance: a tenth more or less costs about one per cent.
    """
    tell = progress or (lambda *_: None)
    held_seconds = max(float(workload.submit[-1]) - float(workload.submit[0]), 1.0)
    mean_load = float(workload.run @ workload.processors) / held_seconds
    numbers = sorted({max(1, round(part * _TENTHS * mean_load)) for part in range(1, _MAX_LOAD + 1)})
    policy = policies(short_seconds, longest_wait_seconds)["oracle"]
    found = dict[int, float]()
    for done, cores in enumerate(numbers):
        tell("fixed cores", done, len(numbers))
        # an oracle of waits changes when jobs leave, not which: its costs are those without it
        outcome = Replayed(workload=workload, cores=cores).outcome(policy)
        rented = float(rented_cost(outcome, workload, costs).sum())
        found[cores] = costs.reserved * cores * held_seconds + rented
    tell("fixed cores", len(numbers), len(numbers))
    return min(found, key=lambda cores: found[cores])
