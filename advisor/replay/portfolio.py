"""Deng et al., section 6: a log on rented nodes under each policy, and under a portfolio of them.

The portfolio knows what a scheduler would know at that moment: what waits and runs, what arrived, what
finished, and what each single policy would have made of the log so far. The last is simulated alongside (a
policy's own trajectory depends on nothing but the arrivals up to now), and so is a cluster that always takes
the selection's choice. Whoever has the best utility on the jobs finished so far is in charge: the champion
among the policies while selection does not pay, else selection (:class:`Leader`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.decide.portfolio import AdaptivePeriod, Budget, Leader, TimeConstrainedSelector, Worth
from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.simulate.portfolio._cluster import CHARGED, FINISHED, SLOWDOWN, WORK
from advisor.simulate.portfolio.cluster import Cloud, RentedCluster, Runtimes, Totals, replay_policy
from advisor.simulate.portfolio.online import OnlineSimulator
from advisor.simulate.portfolio.policies import PUBLISHED, RELEASE_WORDS, RentingPolicy

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], None]

WIDEST: Final = 64
"""Processors of the widest job that is kept (section 5.2)."""
LONG_QUEUE: Final = 100
"""From so many waiting jobs on the choice is made more rarely: simulating takes time by their square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the portfolio is replayed.

    Attributes
    ----------
    cloud : Cloud
        What is rented and how it is charged.
    runtimes : Runtimes
        Which run times are known.
    budget : Budget
        What may be simulated for one choice.
    alpha, beta : float
        Of the utility.
    lookahead_seconds : float
        Arrivals of so long ago are expected once more; 0 for none.
    scenarios : int
        Where run times are guessed, each policy is simulated on so many draws of how wrong guesses were.
    checkpoint_seconds : float
        The leader is looked for so often.
    seed : int
        Of the draws among poor policies.
    """

    cloud: Cloud = field(default_factory=Cloud)
    runtimes: Runtimes = Runtimes.ACTUAL
    budget: Budget = field(default_factory=lambda: Budget(policies=len(PUBLISHED)))
    alpha: float = 1.0
    beta: float = 1.0
    lookahead_seconds: float = 0.0
    scenarios: int = 3
    checkpoint_seconds: float = 3600.0
    seed: int = 1


@dataclass(slots=True)
class PolicyUse:
    """Which policy was chosen when, and what choosing took."""

    chosen: Counter[int] = field(default_factory=Counter)
    moments: list[float] = field(default_factory=list)
    policies: list[int] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)

    def add(self, moment: float, policy: int, waiting: int, milliseconds: float) -> None:
        """Write one choice down."""
        self.chosen[policy] += 1
        self.moments.append(moment)
        self.policies.append(policy)
        self.queue.append(waiting)
        self.milliseconds.append(milliseconds)


class Selection:
    """Chooses by simulating the policies on the queue as it is."""

    def __init__(self, policies: Sequence[RentingPolicy], options: Options, cluster: RentedCluster) -> None:
        self._options = options
        self._simulator = OnlineSimulator(policies, cluster.rules)
        self._selector = TimeConstrainedSelector(len(policies), np.random.default_rng(options.seed))
        self._count = len(policies)
        self._period = AdaptivePeriod()
        self.use = PolicyUse()

    def choose(self, cluster: RentedCluster) -> None:
        """Choose, and put the choice in charge."""
        options = self._options
        present = int(cluster.state.cluster["waiting"][0])
        totals = cluster.totals()
        worth = Worth(
            charged_seconds=totals.charged_seconds + 36_000.0,
            slowdown_sum=totals.slowdown_sum + 20.0,
            alpha=options.alpha,
            beta=options.beta,
        )
        began = time.perf_counter()
        draws = range(options.scenarios) if options.runtimes is not Runtimes.ACTUAL else range(-1, 0)

        def loss(chosen: NDArray[np.int64]) -> Floats:
            added = np.zeros(self._count)
            for draw in draws:
                situation = cluster.situation(options.lookahead_seconds, draw)
                added += worth.loss(self._simulator.simulate(situation, chosen))
            return added / len(draws)

        best, _, _ = self._selector.choose(loss, options.budget)
        self.use.add(cluster.now, best, present, 1000 * (time.perf_counter() - began))
        rest = cluster.cloud.tick_seconds * (present / LONG_QUEUE) ** 2
        cluster.apply(best, self._period.after(best), rest)


def prepared(table: JobTable, cloud: Cloud, jobs: int | None) -> JobTable:
    """The paper's jobs: those that ran on at most 64 processors; the first so many of them.

    Raises
    ------
    BadInput
        None is left.
    """
    fitting = table.select((table.processors <= min(WIDEST, cloud.max_nodes)) & (table.run > 0))
    if jobs is not None:
        fitting = fitting.select(slice(0, jobs))
    if not len(fitting):
        raise BadInput(
            f"no job ran on at most {WIDEST} processors",
            where=table.name,
            mend="Give a log of smaller jobs",
            code="trace.empty",
        )
    return fitting


def report(
    table: JobTable,
    *,
    jobs: int | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """``advisor replay portfolio`` (CONTRACT.md)."""
    began = time.perf_counter()
    options = options or Options()
    tell = progress or (lambda *_: None)
    known = prepared(table, options.cloud, jobs)
    policies = PUBLISHED
    shadows = []
    for done, policy in enumerate(policies):
        tell("policies", done, len(policies))
        shadows.append(
            replay_policy(known, options.cloud, options.runtimes, policy, options.checkpoint_seconds)
        )
    tell("policies", len(policies), len(policies))
    selected = _run(known, policies, options, None, lambda done: tell("selection", done, len(known)))
    leaders = leaders_of([*(checkpoints for _, checkpoints in shadows), selected.checkpoints], options)
    led = selected
    if np.any(leaders != len(policies)):
        led = _run(known, policies, options, leaders, lambda done: tell("portfolio", done, len(known)))
    rows: list[dict[str, Any]] = [
        {"policy": policy.name, **_figures(one, options)}
        for policy, (one, _) in zip(policies, shadows, strict=True)
    ]
    best = max(rows, key=lambda row: row["utility"])
    mine = _figures(led.totals, options)
    release = options.cloud.release
    return {
        "trace": table.name,
        "jobs": len(known),
        "billing": release.name.lower().replace("_", "-"),
        "release_rule": RELEASE_WORDS[release],
        "runtimes": options.runtimes.value,
        "portfolio": mine,
        "selection_alone": _figures(selected.totals, options),
        "led_by_selection_share": float(np.mean(leaders == len(policies))) if len(leaders) else 1.0,
        "constituents": rows,
        "best_constituent": best,
        "gain_over_best_constituent": mine["utility"] / best["utility"] - 1.0,
        "invocations": {policies[i].name: n for i, n in led.use.chosen.most_common()},
        "simulate_all_policies_ms": {
            "p50": float(np.nanpercentile(selected.use.milliseconds, 50)),
            "p99": float(np.nanpercentile(selected.use.milliseconds, 99)),
        },
        "use": _use_over_time(led.use, policies),
        "seconds": time.perf_counter() - began,
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One way through the log with choices."""

    totals: Totals
    checkpoints: Floats
    use: PolicyUse


def leaders_of(checkpoints: Sequence[Floats], options: Options) -> NDArray[np.int64]:
    """Who leads from each checkpoint on: index of a policy, or of selection, which is the last.

    Each checkpoint knows nothing but what finished before it.
    """
    at = np.stack(checkpoints)
    with np.errstate(divide="ignore", invalid="ignore"):
        utilisation = at[:, :, WORK] / at[:, :, CHARGED]
        slowdown = at[:, :, SLOWDOWN] / at[:, :, FINISHED]
        utility = utilisation**options.alpha * slowdown**-options.beta
    utility = np.where(np.isfinite(utility), utility, 0.0)
    leader = Leader(first=len(checkpoints) - 1)
    return np.array([leader.after(utility[:, k], at[:, k, FINISHED]) for k in range(at.shape[1])], np.int64)


def _run(
    jobs: JobTable,
    policies: Sequence[RentingPolicy],
    options: Options,
    leaders: NDArray[np.int64] | None,
    tell: Callable[[int], None],
) -> Run:
    """Go through the log by selection, or by whoever leads where leaders are given."""
    cluster = RentedCluster(jobs, options.cloud, options.runtimes, policies, options.checkpoint_seconds)
    selection = Selection(policies, options, cluster)
    told = 0
    first = float(jobs.submit[0])
    while not cluster.advance(chooses=True):
        if leaders is not None:
            passed = int((cluster.now - first) // options.checkpoint_seconds)
            leader = int(leaders[min(passed, len(leaders)) - 1]) if passed and len(leaders) else len(policies)
            if leader < len(policies):
                selection.use.add(cluster.now, leader, int(cluster.state.cluster["waiting"][0]), float("nan"))
                cluster.apply(leader, options.checkpoint_seconds)
                continue
        selection.choose(cluster)
        told += 1
        if told % 200 == 0:
            tell(cluster.arrived)
    tell(len(jobs))
    return Run(totals=cluster.totals(), checkpoints=cluster.state.checkpoints, use=selection.use)


def _use_over_time(use: PolicyUse, policies: Sequence[RentingPolicy], spans: int = 60) -> dict[str, Any]:
    """Share of each provisioning and job order among the choices, in equal spans of the log."""
    if not use.moments:
        return {"day": [], "share": {}}
    moments = np.array(use.moments)
    edges = np.linspace(moments[0], moments[-1] + 1.0, spans + 1)
    span = np.searchsorted(edges, moments, side="right") - 1
    kinds = [f"{policy.provisioning.name}-{policy.order.name}" for policy in policies]
    counts = {kind: np.zeros(spans) for kind in dict.fromkeys(kinds)}
    for at, policy in zip(span, use.policies, strict=True):
        counts[kinds[policy]][at] += 1
    total = np.maximum(np.bincount(span, minlength=spans), 1)
    used = {kind: (count / total).tolist() for kind, count in counts.items() if count.any()}
    return {"day": (edges[:-1] / 86_400.0).tolist(), "share": used}


def _figures(totals: Totals, options: Options) -> dict[str, float]:
    return {
        "utility": totals.utility(options.alpha, options.beta),
        "mean_bounded_slowdown": totals.mean_bounded_slowdown,
        "charged_vm_hours": totals.charged_seconds / 3600.0,
        "utilisation": totals.utilisation,
    }
