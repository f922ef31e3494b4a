"""Days of 300 jobs under a budget on a real slurmctld, beside their rehearsal: do both save as much?

Each day runs twice at the same time on this machine, each time with its own slurmctld: without an advisor,
and with the shipped daemons, the EC2 emulator and the one price. The rehearsal runs the same days with the
same settings. What it cannot know of this machine it takes from the *other* real days: how much longer than
its run time a job keeps its nodes from the next one, and how long a cloud node boots. A twentieth of a second
of the former may change which jobs are moved, and a fifth of what a day saves. So each day is rehearsed
several times, and each job's excess is drawn from those seen. On every second day jobs are bought whole, on
the others in slices.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any, Final, NamedTuple

import numpy as np

from advisor.arrays import Floats
from advisor.simulate.pool.rules import Rules
from benchmarks.fidelity import FAST_SCHEDULER
from benchmarks.fidelity_day import Held, completing_seconds
from benchmarks.live_day import LiveDay, draw_live_day
from benchmarks.live_fates import LiveJob
from benchmarks.live_rehearsal import Simulated, fast_world, rehearse_live_day
from benchmarks.live_site import LiveRun, run_on_premise, run_priced

_NOMINAL_BOOT: Final = 5.0
_DRAWS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDays:
    """A day's two real runs, and whether the priced one was bought in slices."""

    day: LiveDay
    on_premise: LiveRun
    priced: LiveRun
    slices: bool


def run(
    *,
    jobs: int = 300,
    seconds: float = 240.0,
    seeds: Sequence[int] = (1, 2, 3),
    budget_share: float = 0.6,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Run each day for real and rehearsed.

    Args:
        jobs: Of a day.
        seconds: In which they arrive.
        seeds: One a day.
        budget_share: A day's budget, as a share of its core-hours at the on-demand price.
    """
    found = {}
    with tempfile.TemporaryDirectory(prefix="days-") as folder:
        for seed in seeds:
            day = draw_live_day(seed, jobs=jobs, seconds=seconds, budget_share=budget_share)
            found[seed] = live_day(day, Path(folder) / f"database-{seed}", slices=seed % 2 == 1, tell=tell)
    return report(found, tell)


def live_day(day: LiveDay, template: Path, *, slices: bool, tell: Callable[[str], None]) -> LiveDays:
    """Run a day for real, twice at the same time."""
    start = Barrier(2)

    def one() -> LiveRun:
        return run_on_premise(
            day, template.with_suffix(".here"), start, lambda text: tell(f"on-premise: {text}")
        )

    def other() -> LiveRun:
        return run_priced(
            day, template.with_suffix(".priced"), start, lambda text: tell(f"priced: {text}"), slices=slices
        )

    with ThreadPoolExecutor(2) as pool:
        here, priced = pool.submit(one), pool.submit(other)
        for each in (here, priced):  # a run that fails must not leave the other waiting
            each.add_done_callback(lambda done: start.abort() if done.exception() else None)
        failed = [error for each in (here, priced) if (error := each.exception()) is not None]
        if failed:  # the one that waited at the barrier only says that it was broken
            raise next((error for error in failed if not isinstance(error, BrokenBarrierError)), failed[0])
        return LiveDays(day=day, on_premise=here.result(), priced=priced.result(), slices=slices)


def report(days: Mapping[int, LiveDays], tell: Callable[[str], None]) -> dict[str, Any]:
    """Compare real days with their rehearsals."""
    rows = []
    for seed, one in days.items():
        tell(f"day {seed}: rehearsed")
        others = [days[number] for number in days if number != seed] or [one]
        rows.append({"seed": seed, **_compared(one, others)})
    return {
        "jobs": len(next(iter(days.values())).day),
        "days": rows,
        "saved_hours_ratio": sum(row["rehearsed"]["saved_hours"] for row in rows)
        / sum(row["real"]["saved_hours"] for row in rows),
        "lost_jobs": sum(row["real"]["lost_jobs"] for row in rows),
        "jobs_done_twice": sum(row["real"]["jobs_done_twice"] for row in rows),
        "requeued_against_their_will": sum(row["real"]["requeued_against_their_will"] for row in rows),
        "amiss": [
            {"seed": seed, "run": name} | job
            for seed, one in days.items()
            for name, run in (("on-premise", one.on_premise), ("priced", one.priced))
            for job in run.amiss
        ],
    }


def _compared(one: LiveDays, others: Sequence[LiveDays]) -> dict[str, Any]:
    excess = np.concatenate([_excess(other) for other in others])
    boots = [_boot(other) for other in others]
    boot = Boot(*(statistics.fmean(each) for each in zip(*boots, strict=True)))
    drawn = np.random.default_rng(one.day.window.first)
    days = [
        one.day.with_overhead(drawn.choice(excess, len(one.day))).begun_at(one.priced.begin)
        for _ in range(_DRAWS)
    ]
    rules = Rules.of_slurm(FAST_SCHEDULER)
    rehearse = partial(
        rehearse_live_day, slices=one.slices, cloud_start_seconds=boot.after_launch, rules=rules
    )
    fast = partial(fast_world, cloud_start_seconds=boot.after_request, rules=rules)
    real, rehearsed = _real(one), _simulated(rehearse, days)
    return {
        "slices": one.slices,
        "budget_usd": one.day.usd,
        "overhead_seconds": float(excess.mean()),
        "boot_seconds": boot._asdict(),
        "real": real,
        "rehearsed": rehearsed,
        "fast_world": _simulated(fast, days),
        "saved_hours_ratio": rehearsed["saved_hours"] / real["saved_hours"],
    }


def _excess(one: LiveDays) -> Floats:
    """Seconds beyond its run time until the nodes of each job on-premise are another one's."""
    here = [
        (Held(job.submit, job.first_start, job.first_end, job.by_backfill), run)
        for job, run in zip(one.on_premise.jobs, one.day.window.run, strict=True)
        if len(job.runs) == 1 and math.isfinite(job.first_start + job.first_end)
    ]
    completing = statistics.median(completing_seconds([held for held, _ in here]) or [0.0])
    excess = np.array([held.end - held.start - run + completing for held, run in here], dtype=np.float64)
    return np.clip(excess, 0.0, None)


class Boot(NamedTuple):
    """Seconds from a node's launch, and from Slurm's request of it, until it takes a job."""

    after_launch: float
    after_request: float


def _boot(one: LiveDays) -> Boot:
    """How much later a job begins on a node that had to boot than on one that was up, medians."""
    launches, cold, warm = one.priced.launches, list[tuple[float, float]](), list[float]()
    for job in one.priced.jobs:
        if not job.began or job.began[0][0] != "burst" or not math.isfinite(job.first_start):
            continue
        began = job.began[0][1]
        nodes = next((run.nodes for run in job.runs if run.partition == "burst"), ())
        asked = [time for node in nodes for time in launches.get(node, ()) if job.first_start < time < began]
        if asked:
            cold.append((began - max(asked), began - job.first_start))
        else:
            warm.append(began - job.first_start)
    if not cold:
        return Boot(_NOMINAL_BOOT, _NOMINAL_BOOT)
    launch = statistics.median(warm or [0.0])
    medians = (statistics.median(times) for times in zip(*cold, strict=True))
    return Boot(*(max(0.0, seconds - launch) for seconds in medians))


def _real(one: LiveDays) -> dict[str, Any]:
    jobs, usual = one.priced.jobs, np.array([job.turnaround for job in one.on_premise.jobs])
    turnaround = np.array([job.turnaround for job in jobs])
    known = ~np.isnan(turnaround + usual)
    returned = [job for job in jobs if job.was_in_cloud and job.ended and job.ended[0] == "onprem"]
    return {
        "on_premise_turnaround_seconds": float(usual[known].mean()),
        "mean_turnaround_seconds": float(turnaround[known].mean()),
        "saved_hours": float((usual - turnaround)[known].sum()) / 3600.0,
        "usd": one.priced.usd,
        "moved_jobs": sum(job.was_in_cloud for job in jobs),
        "ended_in_cloud": sum(job.ended is not None and job.ended[0] == "burst" for job in jobs),
        "lost_jobs": sum(job.is_lost for job in (*jobs, *one.on_premise.jobs)),
        "jobs_done_twice": sum(job.ran_twice for job in (*jobs, *one.on_premise.jobs)),
        "requeued_against_their_will": sum(
            len(job.began) > 1 for job, may in zip(jobs, one.day.may_requeue, strict=True) if not may
        ),
        "returned_jobs": len(returned),
        "seconds_behind_their_place": _lags(returned),
        "price": one.priced.price,
        "places": one.priced.places,
        "helper_connections": one.priced.helper_connections,
    }


def _lags(returned: Sequence[LiveJob]) -> dict[str, float] | None:
    """How long after its placeholder's start a returned job began to run on-premise."""
    lags = [job.began[-1][1] - job.place_start for job in returned if job.place_start is not None]
    return {"jobs": len(lags), "median": statistics.median(lags), "max": max(lags)} if lags else None


def _simulated(simulate: Callable[..., Simulated], days: Sequence[LiveDay]) -> dict[str, Any]:
    """Means over the draws of a day, and the standard deviation of what is saved."""
    pairs = [(simulate(day, moves=True), simulate(day, moves=False)) for day in days]
    saved = [float((usual.turnaround - moved.turnaround).sum()) / 3600.0 for moved, usual in pairs]
    return {
        "draws": len(days),
        "on_premise_turnaround_seconds": statistics.fmean(usual.turnaround.mean() for _, usual in pairs),
        "mean_turnaround_seconds": statistics.fmean(moved.turnaround.mean() for moved, _ in pairs),
        "saved_hours": statistics.fmean(saved),
        "saved_hours_deviation": statistics.stdev(saved),
        "usd": statistics.fmean(moved.usd for moved, _ in pairs),
        "moved_jobs": statistics.fmean(int(moved.moved.sum()) for moved, _ in pairs),
        "ended_in_cloud": statistics.fmean(int(moved.in_cloud.sum()) for moved, _ in pairs),
    }
