"""Deng et al., section 6: the table of a log on rented nodes, by policy and by portfolio."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.decide.portfolio.portfolio_options import CHAMPION, Options
from advisor.decide.portfolio.portfolio_standing import Run, Standing, run_led, standing
from advisor.decide.portfolio.replay_knowledge import Leadership, prepared, prior_of
from advisor.model.table import JobTable
from advisor.papers.portfolio.replay_progress import PolicyUse, Progress, steps_of
from advisor.parallel import side_by_side
from advisor.simulate.portfolio.cluster import Totals
from advisor.simulate.portfolio.policies import PUBLISHED, RELEASE_WORDS, RentingPolicy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """Every way a log was gone through: each contender by itself, and under the leading policy.

    Attributes:
        uses: What each selection has chosen, then the portfolio.
    """

    standing: Standing
    portfolio: Run
    uses: Sequence[PolicyUse]


def replay(known: JobTable, options: Options, tell: Progress) -> Replayed:
    """Each policy, each selection, then the portfolio that is led by the best of them so far."""
    steps = steps_of(options, tell)
    found = standing(known, options, steps, prior_of(options.policies, options, steps.prior))
    led = Leadership(found.champions, found.leaders)
    portfolio = run_led(known, options, led, found.earliest, steps, len(options.margins))
    return Replayed(standing=found, portfolio=portfolio, uses=steps.uses)


def report(
    table: JobTable,
    *,
    jobs: int | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What ``advisor replay portfolio --format json`` prints."""
    began = time.perf_counter()
    options = options or Options()
    known = prepared(table, options.cloud, jobs)
    policies = options.policies
    replayed = replay(known, options, progress or (lambda *_: None))
    found, led, used = replayed.standing, replayed.portfolio, replayed.uses[-1]
    rows: list[dict[str, Any]] = [
        {"policy": policy.name, **_figures(one, options)}
        for policy, one in zip(policies, found.alone, strict=True)
    ]
    best = max(rows[: len(PUBLISHED)], key=lambda row: row["utility"])
    best_of_all = max(rows, key=lambda row: row["utility"])
    mine = _figures(led.totals, options)
    release = options.cloud.release
    return {
        "trace": table.name,
        "jobs": len(known),
        "billing": release.billing,
        "release_rule": RELEASE_WORDS[release],
        "runtimes": options.runtimes.value,
        "portfolio": mine,
        "selection_alone": [
            {"margin": margin, "led_share": float(np.mean(found.leaders == at))}
            | _figures(run.totals, options)
            for at, (margin, run) in enumerate(zip(options.margins, found.selections, strict=True))
        ],
        "led_by_champion_share": float(np.mean(found.leaders == CHAMPION)),
        "constituents": rows[: len(PUBLISHED)],
        "best_constituent": best,
        "gain_over_best_constituent": mine["utility"] / best["utility"] - 1.0,
        "beyond_the_paper": rows[len(PUBLISHED) :],
        "best_of_all": best_of_all,
        "gain_over_best_of_all": mine["utility"] / best_of_all["utility"] - 1.0,
        "invocations": {policies[i].name: n for i, n in used.chosen.most_common()},
        "choices": {"simulated": used.simulations, "cut_short": used.cut},
        "simulate_all_policies_ms": {  # a choice of the first selection: as many as the budget allows
            "p50": float(np.nanpercentile(replayed.uses[0].milliseconds, 50)),
            "p99": float(np.nanpercentile(replayed.uses[0].milliseconds, 99)),
        },
        "use": _use_over_time(used, policies),
        "seconds": time.perf_counter() - began,
    }


def reports(
    table: JobTable,
    every: Sequence[Options],
    *,
    jobs: int | None = None,
    processes: int = 1,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """One :func:`report` for each of the options, so many at the same time as there are processes."""
    tasks = [(table, options, jobs) for options in every]
    size = len(table) if jobs is None else jobs
    return side_by_side(_report, tasks, [size] * len(tasks), processes=processes, tick=progress)


def _report(task: tuple[JobTable, Options, int | None], tick: Progress | None) -> dict[str, Any]:
    table, options, jobs = task
    return report(table, jobs=jobs, options=options, progress=tick)


def by_billing(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What ``--billing all --format json`` prints: each billing's :func:`report` under its name."""
    shared = ("trace", "jobs", "runtimes")
    return {name: results[0][name] for name in shared} | {
        "billings": {result["billing"]: result for result in results},
        "seconds": sum(result["seconds"] for result in results),
    }


def _use_over_time(use: PolicyUse, policies: Sequence[RentingPolicy], spans: int = 60) -> dict[str, Any]:
    """Share of each kind of policy, whatever node it chooses, among the choices in equal spans of the log."""
    if not use.moments:
        return {"day": [], "share": {}}
    moments = np.array(use.moments)
    edges = np.linspace(moments[0], moments[-1] + 1.0, spans + 1)
    span = np.searchsorted(edges, moments, side="right") - 1
    kinds = [policy.kind for policy in policies]
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
