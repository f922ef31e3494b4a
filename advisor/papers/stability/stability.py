"""``advisor replay stability``: Agarwal et al. (NSDI 2023) on synthetic or real nodes that change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from advisor.arrays import Floats
from advisor.model.errors import BadInput
from advisor.papers.stability.node_traces import NodePool, load_nodes
from advisor.papers.stability.stability_run import (
    ACQUIRER_ONLY,
    CAPACITY,
    CAPACITY_LEAST_LOST,
    CHECKPOINT_1,
    CHECKPOINT_2,
    EQUATION_2,
    MATCHED,
    MATCHED_ACQUIRER,
    MATCHED_OLDEST,
    NO_DELAY,
    ORACLE,
    REPLICATION,
    TO_SHRINK,
    Scheduler,
    run,
)
from advisor.papers.stability.survival_scores import survival_scores
from advisor.papers.stability.task_files import load_tasks
from advisor.papers.stability.world.cluster import Outcome
from advisor.papers.stability.world.nodes import NodeChanges, node_changes
from advisor.papers.stability.world.tasks import RUNTIMES, TaskMix, Tasks, draw_tasks
from advisor.parallel import side_by_side

Progress: TypeAlias = Callable[[str, int, int], None]

SCHEDULERS = {
    row.name: row
    for row in (
        CAPACITY,
        NO_DELAY,
        MATCHED,
        MATCHED_ACQUIRER,
        ORACLE,
        MATCHED_OLDEST,
        CAPACITY_LEAST_LOST,
        EQUATION_2,
        TO_SHRINK,
        ACQUIRER_ONLY,
        CHECKPOINT_1,
        CHECKPOINT_2,
        REPLICATION,
    )
}
"""The rows, in the order of the table."""

LOAD = 0.6
"""Core-seconds asked for over those there are; the lower end of what the paper's scaling policy keeps."""

MAX_TASKS = 5_000
_DRAWS = 3
_MAX_CHANGES = 30_000_000
"""Of a repeated trace, some 3 GB: a log with a gap of years must not fill the memory."""
_DAY = 86400.0
_CORES_PER_TASK_OF_A_JOB = 22.0  # 64 harvest nodes have some 1,100 cores and jobs of 50 tasks
_TASKS, _CHANCE = 7, 11  # streams of chance drawn from one seed


def report(
    nodes: str,
    *,
    tasks: str = "uniform",
    schedulers: Sequence[str] | None = None,
    load: float = LOAD,
    estimate_error: float = 0.0,
    longest: float = TaskMix().longest,
    most_tasks: int = MAX_TASKS,
    seed: int | None = None,
    draws: int | None = None,
    processes: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run the same tasks on the same nodes under each scheduler.

    Args:
        nodes: As for ``load_nodes``.
        tasks: "uniform", "gaussian", "pareto", or a file.
        schedulers: Rows wanted, all by default; ``capacity`` always runs, as the others are measured by it.
        load: Share of the cluster that drawn tasks keep busy.
        estimate_error: Estimates are off by up to this fraction (section 4.2.1).
        longest: Longest drawn task, seconds.
        most_tasks: No more tasks than about so many are drawn.
        seed: Of the tasks; that of a synthetic cluster by default, else 1.
        draws: The tasks are drawn so many times, with this seed and the next ones, and rows are means over
            the draws: on a small trace one draw says little. 3 by default on a real trace; tasks of a file
            are not drawn.
        processes: Schedulers that run at the same time.
        progress: Called with (row, tasks done, tasks).

    Raises:
        BadInput: Unreadable input or numbers out of range.
    """
    began = time.perf_counter()
    pool = load_nodes(nodes)
    rented = _rented(pool)
    if seed is None:
        seed = int(nodes.split(":")[2]) if pool.synthetic and nodes.count(":") == 2 else 1
    if tasks not in RUNTIMES:
        draws = 1
    elif draws is None:
        draws = 1 if pool.synthetic else _DRAWS
    wanted = [CAPACITY, *(SCHEDULERS[name] for name in schedulers or SCHEDULERS if name != CAPACITY.name)]
    drawn: list[list[dict[str, Any]]] = []
    for chance in range(seed, seed + draws):
        work = _tasks(rented, tasks, load, longest, most_tasks, np.random.default_rng([chance, _TASKS]))
        if estimate_error > 0:
            work = work.misjudged(np.random.default_rng([chance, _TASKS, 1]), estimate_error)
        drawn.append(_rows(pool, work, wanted, chance, processes, progress))
    rows = [_mean_row(same) for same in zip(*drawn, strict=True)]
    return {
        "nodes": nodes,
        "tasks": tasks,
        "rows": rows,
        "survival": survival_scores(rented),
        "cluster": {
            "nodes": rented.nodes,
            "mean_cores": rented.mean_cores(),
            "changes": len(rented),
            "days": rented.until / _DAY,
        },
        "jobs": int(work.job.max()) + 1,  # of the last draw, as the tasks
        "task_count": len(work),
        "load": load,
        "estimate_error": estimate_error,
        "seed": seed,
        "draws": draws,
        "seconds": time.perf_counter() - began,
    }


def _rented(pool: NodePool) -> NodeChanges:
    """Only the nodes had at the start."""
    changes = pool.changes
    mine = changes.node < pool.rented
    return node_changes(
        changes.cores[: pool.rented],
        changes.time[mine],
        changes.node[mine],
        changes.after[mine],
        changes.until,
    )


def _tasks(
    nodes: NodeChanges, spec: str, load: float, longest: float, most: int, generator: np.random.Generator
) -> Tasks:
    """Tasks of a file, or drawn: after a day of watching, until an eighth of the trace is left."""
    if spec not in RUNTIMES:
        return load_tasks(spec, most_cores=nodes.largest)
    begin = min(_DAY, nodes.until / 5)
    cores = nodes.mean_cores(begin)
    mix = TaskMix(
        runtimes=spec,
        longest=longest,
        tasks_per_job=float(np.clip(cores / _CORES_PER_TASK_OF_A_JOB, 1.0, 50.0)),
        most_cores=nodes.largest,
    )
    return draw_tasks(
        generator, mix, cores=cores, load=load, begin=begin, until=nodes.until * 0.875, most=most
    )


def _rows(
    pool: NodePool,
    work: Tasks,
    wanted: Sequence[Scheduler],
    seed: int,
    processes: int,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """One draw of tasks under each scheduler; the first one is what the others are measured by."""
    changes = pool.changes.repeated(_turns(pool.changes, work))
    runs = [_Run(changes, work, scheduler, pool.rented, seed) for scheduler in wanted]
    outcomes = side_by_side(_outcome, runs, [len(work)] * len(runs), processes=processes, tick=progress)
    completions = [completion_times(work, outcome) for outcome in outcomes]
    return [
        _row(scheduler, outcome, completion, completions[0])
        for scheduler, outcome, completion in zip(wanted, outcomes, completions, strict=True)
    ]


def _turns(changes: NodeChanges, work: Tasks) -> int:
    """How often the nodes' trace is repeated until the last task is submitted, and once more."""
    turns = 2 + int(work.submit[-1] / changes.until)
    if turns * (len(changes.time) + changes.nodes) > _MAX_CHANGES:
        raise BadInput(
            f"the last task is submitted after {work.submit[-1] / _DAY:,.0f} days: the nodes' trace of "
            f"{changes.until / _DAY:,.1f} days is too short, it would have to be repeated {turns:,} times",
            where="--tasks",
            mend="Give fewer days of tasks (a part of the log), or a longer trace of fewer nodes",
            code="stability.too_long",
        )
    return turns


def _mean_row(same: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean over draws of one scheduler's rows; of ratios of completion times the geometric one."""
    if len(same) == 1:
        return same[0]
    row = {
        name: float(np.mean([one[name] for one in same])) if isinstance(value, float) else value
        for name, value in same[0].items()
    }
    for name in ("geomean_njct", "p90_vs_capacity"):
        row[name] = float(np.exp(np.mean(np.log([one[name] for one in same]))))
    row["preemptions"] = round(np.mean([one["preemptions"] for one in same]))
    row["geomean_njct_of_draws"] = [one["geomean_njct"] for one in same]
    return row


@dataclass(frozen=True, slots=True)
class _Run:
    """The tasks under one scheduler; ``seed`` is that of its chance."""

    changes: NodeChanges
    work: Tasks
    scheduler: Scheduler
    rented: int
    seed: int


def _outcome(asked: _Run, progress: Progress | None) -> Outcome:
    def tick(done: int, total: int) -> None:
        if progress is not None:
            progress(asked.scheduler.name, done, total)

    chance = np.random.default_rng([asked.seed, _CHANCE])
    return run(asked.changes, asked.work, asked.scheduler, chance, rented=asked.rented, progress=tick)


def completion_times(work: Tasks, outcome: Outcome) -> Floats:
    """Seconds from a job's submission to the end of its last task; shape (jobs,)."""
    jobs = int(work.job.max()) + 1
    end, begin = np.full(jobs, -np.inf), np.full(jobs, np.inf)
    np.maximum.at(end, work.job, outcome.end)
    np.minimum.at(begin, work.job, work.submit)
    return np.asarray(end - begin, np.float64)


def _row(scheduler: Scheduler, outcome: Outcome, completion: Floats, base: Floats) -> dict[str, Any]:
    ran = outcome.useful + outcome.wasted
    return {
        "scheduler": scheduler.name,
        "gives_way": scheduler.gives_way,
        "mean_jct": float(completion.mean()),
        "p90_jct": float(np.quantile(completion, 0.9)),
        "geomean_njct": float(np.exp(np.mean(np.log(completion / base)))),
        "p90_vs_capacity": float(np.quantile(completion, 0.9) / np.quantile(base, 0.9)),
        "jobs_slower": float(np.mean(completion > base * (1 + 1e-9))),
        "wasted_work_share": outcome.wasted / ran if ran > 0 else 0.0,
        "preemptions": outcome.preemptions,
        "preempted_share_of_attempts": outcome.preemptions / max(outcome.attempts, 1),
    }
