"""How many cores to reserve (Ambati et al., section 2.3): the cost-optimal number for a site's history.

For a number of reserved cores the whole history is simulated with long jobs waiting and short waits waiting;
reserved cores cost their price all the time, rented ones while they are used. The curve is flat around its
optimum, so the optimum is given with what a history of other weeks would have made of it.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.papers.waiting.waiting_policies import WaitingPolicy, policies
from advisor.papers.waiting.waiting_rows import Replayed
from advisor.papers.waiting.waiting_worlds import rented_cost
from advisor.papers.waiting.world.costs import CostModel
from advisor.papers.waiting.world.world import Dispatch, Workload

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], None]

WEEK: Final = 604_800.0
_TENTHS: Final = 0.1
_MAX_LOAD: Final = 20  # tenths of the mean load: twice it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Point:
    """One number of reserved nodes.

    Attributes:
        nodes, cores: Reserved.
        reserved_cost, rented_cost: Core-seconds of on-demand, over the whole history.
        weekly_rented: float64, shape (weeks,): The second by the week of the jobs' submission.
        mean_wait: Seconds.
    """

    nodes: int
    cores: int
    reserved_cost: float
    rented_cost: float
    weekly_rented: Floats
    mean_wait: float

    @property
    def total_cost(self) -> float:
        """Both."""
        return self.reserved_cost + self.rented_cost


class Planner:
    """Costs of numbers of reserved nodes for one history; each number is simulated once.

    Args:
        workload: The history.
        policy: Who waits; ``oracle`` and plain ``speculation`` need no learning.
        costs: Prices.
        node_cores: Cores of a node.
        dispatch: Which waiting job is next.
    """

    def __init__(
        self,
        workload: Workload,
        policy: WaitingPolicy,
        costs: CostModel,
        *,
        node_cores: int = 1,
        dispatch: Dispatch = Dispatch.FCFS,
    ) -> None:
        self._workload, self._policy, self._costs = workload, policy, costs
        self._node_cores, self._dispatch = node_cores, dispatch
        self._known: dict[int, Point] = {}
        first = float(workload.submit[0])
        self.held_seconds = max(float(workload.submit[-1]) - first, 1.0)
        self._week = ((workload.submit - first) // WEEK).astype(np.int64)

    @property
    def mean_load_cores(self) -> float:
        """Cores that would be busy all the time if nothing were ever idle."""
        return float(self._workload.run @ self._workload.processors) / self.held_seconds

    @property
    def points(self) -> list[Point]:
        """What was simulated so far, by number of nodes."""
        return [self._known[nodes] for nodes in sorted(self._known)]

    def at(self, nodes: int) -> Point:
        """Simulate a number of nodes; none: everything is rented."""
        if nodes not in self._known:
            self._known[nodes] = self._simulate(nodes)
        return self._known[nodes]

    def _simulate(self, nodes: int) -> Point:
        cores = nodes * self._node_cores
        if cores == 0:
            cost = self._costs.on_demand * self._workload.run * self._workload.processors
            wait = 0.0
        else:
            # an oracle of waits changes when jobs leave, not which: its costs are those without it
            replayed = Replayed(workload=self._workload, cores=cores, dispatch=self._dispatch)
            outcome = replayed.outcome(self._policy)
            cost = rented_cost(outcome, self._workload, self._costs)
            wait = float((outcome.start - self._workload.submit).mean())
        weekly = np.bincount(self._week, weights=cost).astype(np.float64)
        return Point(
            nodes=nodes,
            cores=cores,
            reserved_cost=self._costs.reserved * cores * self.held_seconds,
            rented_cost=float(cost.sum()),
            weekly_rented=weekly,
            mean_wait=wait,
        )

    def optimum(self, progress: Progress | None = None) -> Point:
        """Find the cheapest number of nodes by branch and bound.

        Rented cost does not rise with reserved cores. So no number between two that were simulated can cost
        less than the reserved cost of the lower and the rented cost of the higher, and where that is above
        the best total found, nothing in between needs a simulation. (Packing anomalies can break the premise
        by a little; the tests compare with all numbers.)
        """
        tell = progress or (lambda *_: None)
        most = max(1, int(np.ceil(_MAX_LOAD * _TENTHS * self.mean_load_cores / self._node_cores)))
        steps = sorted({round(most * part / _MAX_LOAD) for part in range(_MAX_LOAD + 1)})
        for done, nodes in enumerate(steps):
            tell("coarse", done, len(steps))
            self.at(nodes)
        best = min(self.points, key=lambda point: point.total_cost)
        open_: list[tuple[float, int, int]] = []
        for low, high in itertools.pairwise(steps):
            self._open(open_, low, high)
        while open_ and open_[0][0] < best.total_cost:
            _, low, high = heapq.heappop(open_)
            middle = (low + high) // 2
            best = min(best, self.at(middle), key=lambda point: point.total_cost)
            self._open(open_, low, middle)
            self._open(open_, middle, high)
            tell("fine", len(self._known) - len(steps), len(self._known) - len(steps) + len(open_))
        return best

    def _open(self, open_: list[tuple[float, int, int]], low: int, high: int) -> None:
        """Note what the numbers between two cost at least."""
        if high - low > 1:
            bound = self.at(low).reserved_cost + self.at(high).rented_cost
            heapq.heappush(open_, (bound, low, high))


def coarse_optimum(
    workload: Workload,
    short_seconds: float,
    longest_wait_seconds: float,
    costs: CostModel,
    progress: Progress | None = None,
) -> int:
    """Cheapest number of fixed cores among tenths of the mean load.

    The curve is so flat that finer steps follow chance: a tenth more or less costs about one per cent.
    """
    policy = policies(short_seconds, longest_wait_seconds)["oracle"]
    planner = Planner(workload, policy, costs)
    tell = progress or (lambda *_: None)
    numbers = sorted(
        {max(1, round(part * _TENTHS * planner.mean_load_cores)) for part in range(1, _MAX_LOAD + 1)}
    )
    for done, cores in enumerate(numbers):
        tell("fixed cores", done, len(numbers))
        planner.at(cores)
    tell("fixed cores", len(numbers), len(numbers))
    return min(planner.points, key=lambda point: point.total_cost).cores


def resampled_optima(points: list[Point], *, draws: int, block_weeks: int, seed: int) -> NDArray[np.int64]:
    """Optimal nodes in histories put together from blocks of this one's weeks (circular block bootstrap).

    Blocks, because busy weeks follow each other. Reserved cost is the same in every week.
    """
    generator = np.random.default_rng(seed)
    weekly = np.stack([point.weekly_rented for point in points])
    weeks = weekly.shape[1]
    reserved = np.array([point.reserved_cost for point in points])
    blocks = -(-weeks // block_weeks)
    begins = generator.integers(0, weeks, (draws, blocks))
    chosen = (begins[:, :, None] + np.arange(block_weeks)).reshape(draws, -1)[:, :weeks] % weeks
    nodes = np.array([point.nodes for point in points])
    totals = reserved[:, None] + weekly[:, chosen].sum(axis=2)
    return np.asarray(nodes[np.argmin(totals, axis=0)])


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What is planned.

    Attributes:
        short_seconds, longest_wait_seconds: t and b.
        policy: {"oracle", "speculation"}: Who waits.
        costs: Prices.
        node_cores: Cores of a node.
        on_demand_usd_per_core_hour: For money; AWS m5, section 5.3.
        draws, block_weeks, seed: Of the bootstrap.
        coverage: Of the optimum's interval.
    """

    short_seconds: float = 900.0
    longest_wait_seconds: float = 86_400.0
    policy: str = "oracle"
    costs: CostModel = field(default_factory=CostModel)
    node_cores: int = 1
    on_demand_usd_per_core_hour: float = 0.048
    draws: int = 1_000
    block_weeks: int = 4
    seed: int = 1
    coverage: float = 0.9


def plan(
    name: str, workload: Workload, options: PlanOptions, progress: Progress | None = None
) -> dict[str, Any]:
    """``advisor plan``: the curve, its optimum and how sure it is.

    Raises:
        BadInput: A history of less than two weeks: nothing can be said of other weeks.
    """
    begun = time.perf_counter()
    policy = policies(options.short_seconds, options.longest_wait_seconds)[options.policy]
    planner = Planner(workload, policy, options.costs, node_cores=options.node_cores)
    if planner.held_seconds < 2 * WEEK:
        raise BadInput(
            f"a history of {planner.held_seconds / 86_400:.1f} days",
            where=name,
            mend="Give at least two weeks; a year is better",
            code="plan.short_history",
        )
    best = planner.optimum(progress)
    points = planner.points
    optima = resampled_optima(points, draws=options.draws, block_weeks=options.block_weeks, seed=options.seed)
    tails = (0.5 - options.coverage / 2, 0.5 + options.coverage / 2)
    low, high = (int(edge) for edge in np.quantile(optima, tails, method="nearest"))
    usd = options.on_demand_usd_per_core_hour / 3600.0 / planner.held_seconds * 365.25 * 86_400.0
    return {
        "trace": name,
        "jobs": len(workload),
        "weeks": planner.held_seconds / WEEK,
        "mean_load_cores": planner.mean_load_cores,
        "policy": options.policy,
        "node_cores": options.node_cores,
        "optimum": {
            "nodes": best.nodes,
            "cores": best.cores,
            "low": low,
            "high": high,
            "coverage": options.coverage,
            "cost_usd_a_year": best.total_cost * usd,
            "saved_against_all_rented": 1.0 - best.total_cost / planner.at(0).total_cost,
        },
        "curve": [
            {
                "nodes": point.nodes,
                "cores": point.cores,
                "reserved_cost_usd_a_year": point.reserved_cost * usd,
                "rented_cost_usd_a_year": point.rented_cost * usd,
                "cost_usd_a_year": point.total_cost * usd,
                "cost_vs_optimum": point.total_cost / best.total_cost,
                "mean_wait": point.mean_wait,
            }
            for point in points
        ],
        "simulated": len(points),
        "seconds": time.perf_counter() - begun,
    }
