"""Zrigui et al., section 6: a log on the simulated cluster under each order, with and without job classes.

Everything is EASY backfilling and bounded slowdown with tau = 60 s (section 3.2). :class:`Rules` states what
the paper leaves open, and where the variant ``classification-idempotent`` is another than the paper's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.papers.classify.classify import ClassifiedJobs, classify_table
from advisor.papers.cluster.demand import DOUBTFUL, LARGE, PROBED, SMALL, Demand, demand_of
from advisor.papers.cluster.engine import Schedule, simulate
from advisor.papers.cluster.policies import EASY_PLUS_PLUS, Order, Policy
from advisor.parallel import Tick, side_by_side
from advisor.predict.size.size_history import SizeHistory, WeeklyDividers

Progress = Callable[[str, int, int], None]

TAU_SECONDS: Final = 60.0
ORDERS: Final = {"fcfs": Order.FCFS, "wfp": Order.WFP, "spf": Order.SPF, "saf": Order.SAF}
VARIANTS: Final = (
    "base",
    "easy++",
    "classification",
    "classification-idempotent",
    "class-clairvoyant",
    "runtimes-clairvoyant",
)
PROBE: Final = "probe"
_LEARNED: Final = frozenset({"classification", "classification-idempotent", PROBE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How classes are used; one set for every log.

    In the paper's ``classification-idempotent`` the forest's majority says which jobs are small, these are
    killed at the divider, and every job is planned by its request. The lower cut, the doubtful, the plan that
    ends at the kill and the threshold that follows the load are ours.

    Attributes:
        small_from, sure_from: A job is perhaps small from this probability on, and surely small from the
            second. A false small costs little where it is killed at the divider, a false large waits with the
            large: so the first is far below one half. The sure go before the doubtful.
        doubtful_share: A doubtful job is killed after this share of the divider: most small jobs end long
            before it.
        classification_from: The cut where nothing is killed (variant ``classification``), for there a false
            small is dear.
        probe_from, probe_seconds: With the probe, jobs are small from this probability on, and every other
            gets one attempt of so many seconds between the classes.
        starvation_seconds, starvation_load_factor, starvation_at_most_seconds: See ``Policy``. The load
            factor and its bound (ten times the threshold: under SPF a lone job would else wait for months)
            hold where classes are used; the plain rows keep the fixed threshold.
        flipped_share: Share of the predictions flipped in each run: schedules are chaotic, and one run says
            little.
        runs: Runs averaged where something was predicted.
    """

    small_from: float = 0.11
    sure_from: float = 0.5
    doubtful_share: float = 0.8
    classification_from: float = 0.5
    probe_from: float = 0.5
    probe_seconds: float = 180.0
    starvation_seconds: float = 200_000.0
    starvation_load_factor: float = 5.0
    starvation_at_most_seconds: float = 2_000_000.0
    flipped_share: float = 0.01
    runs: int = 5


RULES: Final = Rules()


def bounded_slowdown(submit: Floats, start: Floats, run: Floats, tau: float = TAU_SECONDS) -> Floats:
    """Bounded slowdown of each job (section 3.2); a restarted job's wait counts to its last start."""
    slowdown: Floats = np.maximum((start - submit + run) / np.maximum(run, tau), 1.0)
    return slowdown


def prepared(table: JobTable, cores: int | None) -> tuple[JobTable, int]:
    """Jobs that can be scheduled, and the machine's size.

    Jobs larger than the machine are left out: the log's partitioned machine ran them elsewhere.

    Raises:
        BadInput: The size is unknown, or no job is left.
    """
    processors = cores if cores is not None else table.total_processors
    if processors < 1:
        raise BadInput(
            "the log does not say how many processors the machine had",
            where=table.name,
            mend="Say it with --cores",
            code="trace.no_processors",
        )
    fitting = table.select((table.processors <= processors) & (table.run > 0))
    if not len(fitting):
        raise BadInput(
            f"no job fits on {processors} processors",
            where=table.name,
            mend="Give more --cores",
            code="trace.empty",
        )
    return fitting, processors


def report(
    table: JobTable,
    *,
    cores: int | None = None,
    policies: Sequence[str] = tuple(ORDERS),
    variants: Sequence[str] = VARIANTS,
    classified: ClassifiedJobs | None = None,
    seed: int = 1,
    processes: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What ``advisor replay schedule --format json`` prints.

    Args:
        table: A log in submission order.
        cores: Size of the machine; the log's own by default.
        policies, variants: Keys of ``ORDERS``; of ``VARIANTS`` or ``"probe"``. EASY++ has its own order: one
            row.
        classified: Classes of the table's jobs; learned here when a variant needs them.
        seed: Of the flipped predictions.
        processes: Schedules that are made at the same time.
        progress: Called with (what, done, all).
    """
    jobs, processors = prepared(table, cores)
    tell = progress or (lambda *_: None)
    if classified is None:
        if _LEARNED.isdisjoint(variants):
            classified = _true_classes(jobs)
        else:
            classified = classify_table(jobs, progress=lambda done, all_: tell("classes: weeks", done, all_))
    case = _Case(jobs, processors, classified, seed)
    began = time.perf_counter()
    todo = [(case, policy, variant) for variant in variants for policy in _policies_of(variant, policies)]
    done = side_by_side(
        _row, todo, [1] * len(todo), processes=processes, tick=lambda _, at, all_: tell("schedules", at, all_)
    )
    tell("schedules", len(todo), len(todo))
    rows = [row for row, _, _ in done]
    _compare(rows)
    return {
        "trace": table.name,
        "jobs": len(jobs),
        "jobs_left_out": len(table) - len(jobs),
        "jobs_without_request": int(np.isnan(jobs.requested_time).sum()),
        "cores": processors,
        "rows": rows,
        "jobs_per_second": sum(scheduled for _, scheduled, _ in done)
        / sum(seconds for _, _, seconds in done),
        "seconds": time.perf_counter() - began,
    }


def _row(task: tuple[_Case, str, str], tick: Tick | None) -> tuple[dict[str, Any], int, float]:
    """One row, the jobs scheduled for it, and the seconds that took."""
    case, policy, variant = task
    began = time.perf_counter()
    schedules = list(case.schedules(policy, variant))
    seconds = time.perf_counter() - began
    row = {"policy": policy, "variant": variant}
    row |= _measured(case.jobs, schedules, case.classified.truly_small)
    if tick is not None:
        tick("schedules", 1, 1)
    return row, len(schedules) * len(case.jobs), seconds


def _true_classes(jobs: JobTable) -> ClassifiedJobs:
    """Dividers and true classes, where nothing has to be learned."""
    history = SizeHistory.from_table(jobs)
    dividers = WeeklyDividers.of(history)
    divider = dividers.at(jobs.submit)
    with np.errstate(invalid="ignore"):
        truly_small = jobs.run < divider
    return ClassifiedJobs(
        probability=np.zeros(len(jobs)),
        divider=divider,
        is_small=np.zeros(len(jobs), np.bool_),
        week=dividers.week_of(jobs.submit),
        truly_small=truly_small,
        judged=~np.isnan(divider),
        train_seconds=np.empty(0),
    )


def _policies_of(variant: str, policies: Sequence[str]) -> Sequence[str]:
    return ("fcfs",) if variant == "easy++" else policies


@dataclass(frozen=True, slots=True)
class _Case:
    """One log to be scheduled in many ways."""

    jobs: JobTable
    processors: int
    classified: ClassifiedJobs
    seed: int

    def schedules(self, policy: str, variant: str) -> list[Schedule]:
        """The schedule, or one for each run where predictions are flipped."""
        setting = Policy(order=ORDERS[policy], starvation_seconds=RULES.starvation_seconds)
        if variant == "easy++":
            return [simulate(demand_of(self.jobs), self.processors, EASY_PLUS_PLUS)]
        if variant == "base":
            return [simulate(demand_of(self.jobs), self.processors, setting)]
        if variant == "runtimes-clairvoyant":
            known = demand_of(self.jobs, requested=self.jobs.run)
            return [simulate(known, self.processors, setting)]
        setting = replace(
            setting,
            starvation_load_factor=RULES.starvation_load_factor,
            starvation_at_most_seconds=RULES.starvation_at_most_seconds,
        )
        runs = RULES.runs if variant in _LEARNED else 1
        return [simulate(self.demand(variant, run), self.processors, setting) for run in range(runs)]

    def demand(self, variant: str, run: int) -> Demand:
        """Jobs with the classes, limits and plans of a variant."""
        known = self.classified
        if variant == "class-clairvoyant":
            return self._classed(np.where(known.truly_small, SMALL, LARGE), np.full(len(self.jobs), np.inf))
        flipped = np.random.default_rng((self.seed, run)).random(len(self.jobs)) < RULES.flipped_share
        probability = np.where(flipped, 1.0 - known.probability, known.probability)
        job_class, limit = classes_of(probability, known.divider, variant)
        has_divider = ~np.isnan(known.divider)
        return self._classed(np.where(has_divider, job_class, LARGE), np.where(has_divider, limit, np.inf))

    def _classed(self, job_class: NDArray[np.int64], limit: Floats) -> Demand:
        """Plan an attempt that will be killed at its limit to end there."""
        requested = np.where(np.isnan(self.jobs.requested_time), self.jobs.run, self.jobs.requested_time)
        planned = np.minimum(requested, limit)
        return demand_of(self.jobs, planned=planned, limit=limit, job_class=job_class)


def classes_of(probability: Floats, divider: Floats, variant: str) -> tuple[NDArray[np.int64], Floats]:
    """Class and limit of each job's first attempt, from its probability of being small.

    Args:
        probability, divider: ndarray, shape (n,): Probability of being small, and seconds.
        variant: ``"classification"``, ``"classification-idempotent"`` or ``"probe"``.
    """
    never = np.full(len(probability), np.inf)
    if variant == "classification":
        return np.where(probability >= RULES.classification_from, SMALL, LARGE), never
    if variant == PROBE:
        is_small = probability >= RULES.probe_from
        probe = np.minimum(RULES.probe_seconds, divider)
        return np.where(is_small, SMALL, PROBED), np.where(is_small, divider, probe)
    is_sure, is_small = probability >= RULES.sure_from, probability >= RULES.small_from
    limit = np.where(is_sure, divider, np.where(is_small, RULES.doubtful_share * divider, never))
    return np.where(is_sure, SMALL, np.where(is_small, DOUBTFUL, LARGE)), limit


def _measured(jobs: JobTable, schedules: list[Schedule], truly_small: NDArray[np.bool_]) -> dict[str, Any]:
    """Means over the runs of one row's figures."""
    figures = [_figures(jobs, schedule, truly_small) for schedule in schedules]
    mean = {name: float(np.mean([one[name] for one in figures])) for name in figures[0]}
    mean["max_wait"] = max(one["max_wait"] for one in figures)
    spread = float(np.std([one["mean_bounded_slowdown"] for one in figures]))
    return {**mean, "runs": len(figures), "mean_bounded_slowdown_deviation": spread}


def _figures(jobs: JobTable, schedule: Schedule, truly_small: NDArray[np.bool_]) -> dict[str, float]:
    slowdown = bounded_slowdown(jobs.submit, schedule.start, jobs.run)
    wait = schedule.start - jobs.submit
    restarts = np.count_nonzero(schedule.attempts > 1)
    return {
        "mean_bounded_slowdown": float(slowdown.mean()),
        "mean_wait": float(wait.mean()),
        "max_wait": float(wait.max()),
        "small_mean_bounded_slowdown": _mean(slowdown[truly_small]),
        "large_mean_bounded_slowdown": _mean(slowdown[~truly_small]),
        "restarts": float(restarts),
        "restarted_share": restarts / len(jobs),
        "extra_load": float(schedule.lost @ jobs.processors) / float(jobs.run @ jobs.processors),
    }


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _compare(rows: list[dict[str, Any]]) -> None:
    """Add each row's improvement over EASY-FCFS, and how much worse large jobs fare than in its own base."""
    bases = {row["policy"]: row for row in rows if row["variant"] == "base"}
    for row in rows:
        easy, own = bases.get("fcfs"), bases.get(row["policy"])
        row["improvement_over_easy_fcfs"] = (
            None if easy is None else 1.0 - row["mean_bounded_slowdown"] / easy["mean_bounded_slowdown"]
        )
        row["large_jobs_worse"] = (
            None
            if own is None
            else row["large_mean_bounded_slowdown"] / own["large_mean_bounded_slowdown"] - 1.0
        )
