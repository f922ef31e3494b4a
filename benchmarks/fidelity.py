"""The same synthetic days through a real slurmctld and through the simulation: how near do they come?

Half of the jobs are moved to the cloud partition, by a plan. The simulation knows what a site's accounting
and slurm.conf say: submissions, limits, how long jobs occupy their nodes beyond their run time, how long a
cloud node takes, SchedulerParameters. The figures of these are taken from the *other* days. Two runs of one
day in one slurmctld differ as well: each simulated figure is the mean of several runs in which the time to
launch a job is drawn anew, and stands beside its standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from advisor.arrays import Floats
from advisor.model.table import UNKNOWN_CODE, JobTable
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.world import Policy, World, WorldOptions
from advisor.simulate.pool.rules import Rules
from benchmarks.fidelity_day import (
    NODES,
    SECONDS_A_MINUTE,
    DayJob,
    Held,
    Ran,
    completing_seconds,
    draw_day,
    lab_options,
    run_day,
)

FAST_SCHEDULER: Final = "sched_interval=2,bf_interval=1,bf_resolution=1,bf_max_time=30,batch_sched_delay=0"
_ENOUGH: Final = 1000.0  # times what all jobs use: the plan decides, not the budget


class _Planned(Policy):
    """Moves the jobs that the plan moves, at their submission."""

    name = "planned"

    def __init__(self, moves: NDArray[np.bool_]) -> None:
        self._moves = moves

    def submitted(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        if self._moves[row]:
            world.start_in_cloud(row, float(np.nextafter(world.jobs.run[row], np.inf)), keeps_place=False)


def run(
    *,
    jobs: int = 300,
    seconds: float = 240.0,
    seeds: Sequence[int] = (1, 2, 3),
    scheduler_parameters: str = FAST_SCHEDULER,
    simulations: int = 20,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Run each day for real and simulated.

    Args:
        jobs: Of a day.
        seconds: In which they arrive.
        seeds: One a day.
        scheduler_parameters: Of slurm.conf.
        simulations: Of each day.
        tell: Told what is being done.
    """
    days = {seed: draw_day(seed, jobs=jobs, seconds=seconds) for seed in seeds}
    real = {}
    for seed, day in days.items():
        tell(f"day {seed}: {jobs} jobs on a real slurmctld")
        real[seed] = run_day(day, lab_options(scheduler_parameters), tell)
    return report(days, real, Rules.of_slurm(scheduler_parameters), simulations)


def report(
    days: dict[int, list[DayJob]], real: dict[int, list[Ran]], rules: Rules, simulations: int
) -> dict[str, Any]:
    """Compare what was run with what is simulated."""
    rows = []
    for seed, day in days.items():
        known = [number for number in days if number != seed] or [seed]
        launches, boots = _latencies([(days[number], real[number]) for number in known])
        for name, which in (("slurm.conf", rules), ("easy", None)):
            each = [
                _simulate(day, real[seed], which, _drawn(launches, len(day), at), float(np.mean(boots)))
                for at in range(simulations)
            ]
            rows.append({"seed": seed, "rules": name, **_compared(day, real[seed], each)})
    ours = [row for row in rows if row["rules"] == "slurm.conf"]
    return {
        "jobs": len(next(iter(days.values()))),
        "processors": NODES,
        "days": rows,
        "mean_wait_ratio": sum(row["simulated_mean_wait_seconds"] for row in ours)
        / sum(row["real_mean_wait_seconds"] for row in ours),
        "smallest_start_rank_correlation": min(row["start_rank_correlation"] for row in ours),
    }


def _latencies(days: Sequence[tuple[list[DayJob], list[Ran]]]) -> tuple[Floats, Floats]:
    """Seconds that jobs hold on-premise nodes beyond their run time; that cloud jobs need until they run."""
    pairs = [pair for day, ran in days for pair in zip(day, ran, strict=True)]
    here = [
        [
            Held(one.submit, one.start, one.end, one.by_backfill)
            for job, one in zip(day, ran, strict=True)
            if not job.moves
        ]
        for day, ran in days
    ]
    completing = float(np.median([gap for ran in here for gap in completing_seconds(ran)] or [0.0]))
    launches = [ran.end - ran.start - job.run + completing for job, ran in pairs if not job.moves]
    boots = [ran.ended - job.run - ran.submit for job, ran in pairs if job.moves]
    return np.array(launches), np.array(boots or [0.0])


def _drawn(launches: Floats, count: int, seed: int) -> Floats:
    found: Floats = np.random.default_rng(seed).choice(launches, count)
    return found


def _simulate(
    day: Sequence[DayJob], real: Sequence[Ran], rules: Rules | None, launches: Floats, boot_seconds: float
) -> Floats:
    """When each job begins to run, seconds."""
    runs = np.array([job.run for job in day])
    moves = np.array([job.moves for job in day])
    loop = _loop_jobs(day, real, runs + np.where(moves, 0.0, launches))
    options = WorldOptions(boot_seconds=boot_seconds, slowdown=1.0, budget_share=_ENOUGH, rules=rules)
    result = World(loop, options, _Planned(moves)).run()
    began: Floats = result.end - runs
    return began


def _loop_jobs(day: Sequence[DayJob], real: Sequence[Ran], runs: Floats) -> LoopJobs:
    count = len(day)
    unknown = np.full(count, UNKNOWN_CODE, np.int64)
    submit = np.array([ran.submit for ran in real])
    limit = np.array([SECONDS_A_MINUTE * job.limit_minutes for job in day])
    processors = np.array([job.processors for job in day], np.int64)
    table = JobTable(
        job_id=np.arange(1, count + 1),
        submit=submit,
        wait=np.zeros(count),
        run=runs,
        processors=processors,
        requested_time=limit,
        user=unknown,
        group=unknown,
        queue=unknown,
        status=np.ones(count, np.int64),
        total_processors=NODES,
        name="day",
    )
    return LoopJobs(
        table=table, first=0, submit=submit, limit=limit, run=runs, processors=processors, machine=NODES
    )


def _compared(day: Sequence[DayJob], real: Sequence[Ran], simulated: Sequence[Floats]) -> dict[str, Any]:
    submit = np.array([ran.submit for ran in real])
    began = np.array([ran.ended - job.run for job, ran in zip(day, real, strict=True)])
    stays = np.array([not job.moves for job in day])
    waits = np.array([float((one - submit).mean()) for one in simulated])
    here = np.array([float((one - submit)[stays].mean()) for one in simulated])
    actual = float((began - submit).mean())
    return {
        "real_mean_wait_seconds": actual,
        "simulated_mean_wait_seconds": float(waits.mean()),
        "simulated_deviation_seconds": float(waits.std(ddof=1)) if len(waits) > 1 else math.nan,
        "mean_wait_ratio": float(waits.mean()) / actual,
        "on_premise_ratio": float(here.mean()) / float((began - submit)[stays].mean()),
        "start_rank_correlation": float(np.mean([spearmanr(began, one)[0] for one in simulated])),
        "moved_jobs": int(np.sum(~stays)),
        "backfilled_share": float(np.mean([ran.by_backfill for ran in real])),
    }
