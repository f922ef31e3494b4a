"""A synthetic day of a compressed site, and what a real slurmctld made of it."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np

from advisor.testing.lab import Lab, LabOptions

NODES: Final = 24
"""On-premise, of one processor each: Slurm's backfilling reserves whole nodes."""
CLOUD_PROCESSORS: Final = 16
"""Of a cloud node, which runs one job at a time."""
SECONDS_A_MINUTE: Final = 60.0
_ENDS_WITHIN: Final = 420.0
_STAMP: Final = r"^\[(\S+)\] "
_EVENTS: Final = {
    "submit": re.compile(_STAMP + r"_slurm_rpc_submit_batch_job: JobId=(\d+) "),
    "main": re.compile(_STAMP + r"sched: Allocate JobId=(\d+) "),
    "backfill": re.compile(_STAMP + r"sched/backfill: _start_job: Started JobId=(\d+) "),
    "end": re.compile(_STAMP + r"_job_complete: JobId=(\d+) done"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DayJob:
    """One job of a day.

    Attributes:
        at: Submission, seconds after the day's begin.
        processors: On one node.
        run: Seconds that its script sleeps.
        limit_minutes: Its time limit.
        moves: Whether the plan sends it to the cloud.
    """

    at: float
    processors: int
    run: float
    limit_minutes: int
    moves: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What slurmctld's log says of one job; seconds after the day's begin.

    Attributes:
        job_id: Slurm's.
        submit: When slurmctld had accepted it.
        start: When it got its nodes; in the cloud a boot may follow.
        began, ended: First and last line of its script, on the node.
        end: When slurmctld knew that it was over.
        by_backfill: Whether the backfill scheduler started it.
    """

    job_id: int
    submit: float
    start: float
    began: float
    ended: float
    end: float
    by_backfill: bool


def draw_day(seed: int, *, jobs: int, seconds: float, share_moved: float = 0.5) -> list[DayJob]:
    """Draw jobs that arrive within ``seconds``: many small and short ones, few wide and long ones."""
    drawn = np.random.default_rng(seed)
    at = np.sort(drawn.uniform(0.0, seconds, jobs))
    runs = np.clip(drawn.lognormal(2.3, 0.9, jobs), 2.0, 60.0)
    sizes = drawn.choice([1, 2, 4, 8], jobs, p=[0.3, 0.2, 0.25, 0.25])
    generous = drawn.choice([1, 2, 3, 5], jobs, p=[0.4, 0.3, 0.2, 0.1])
    return [
        DayJob(
            at=float(at[row]),
            processors=int(sizes[row]),
            run=float(runs[row]),
            limit_minutes=int(generous[row]) + int(runs[row] > 0.8 * SECONDS_A_MINUTE),
            moves=row > 0 and zlib.crc32(f"{seed}/{row}".encode()) % 1000 < 1000 * share_moved,
        )
        for row in range(jobs)
    ]


def lab_options(scheduler_parameters: str, *, burst_nodes: int = 40) -> LabOptions:
    """A site of single processors on-premise, and of cloud nodes."""
    return LabOptions(
        nodes=NODES, processors=1, burst_nodes=burst_nodes, burst_processors=CLOUD_PROCESSORS,
        boot_seconds=2.0, suspend_seconds=15, min_job_age_seconds=3600,
        scheduler_parameters=scheduler_parameters,
    )  # fmt: skip


def run_day(day: Sequence[DayJob], options: LabOptions, tell: Callable[[str], None]) -> list[Ran]:
    """Run a day through a real slurmctld."""
    with Lab.temporary(options) as lab:
        begin = time.time()
        ids = []
        for number, job in enumerate(day):
            time.sleep(max(0.0, begin + job.at - time.time()))
            ids.append(_submit(lab, job))
            if number % 50 == 49:
                tell(f"{number + 1} of {len(day)} jobs submitted")
        lab.wait_for_jobs(ids, seconds=_ENDS_WITHIN)
        time.sleep(1.0)
        return _read(lab, ids, begin)


def _submit(lab: Lab, job: DayJob) -> int:
    arguments = [f"--ntasks={job.processors}", f"--time={job.limit_minutes}"]
    if job.moves:
        arguments += ["--partition=burst", "--nodes=1", "--exclusive"]
    script = f"date +%s.%N; sleep {job.run:.3f}; date +%s.%N"
    return lab.sbatch(*arguments, script=script).job_id


def first_events(lab: Lab) -> dict[str, dict[int, float]]:
    """When each job first was submitted, started and ended by slurmctld's log, epoch seconds.

    Starts are told apart by scheduler: ``main`` and ``backfill``.
    """
    seen: dict[str, dict[int, float]] = {name: {} for name in _EVENTS}
    for line in (lab.folder / "log" / "slurmctld.log").read_text(errors="replace").splitlines():
        for name, pattern in _EVENTS.items():
            if found := pattern.match(line):
                moment = datetime.fromisoformat(found[1]).astimezone().timestamp()
                seen[name].setdefault(int(found[2]), moment)
    return seen


class Held(NamedTuple):
    """When a job was submitted, got its nodes and gave them back, seconds; by which scheduler it started."""

    submit: float
    start: float
    end: float
    by_backfill: bool


def completing_seconds(here: Sequence[Held]) -> list[float]:
    """Seconds from the end of a job to the start of one that waited for it, by the main scheduler."""
    gaps = []
    for held in here:
        before = [other.end for other in here if held.submit < other.end < held.start]
        if before and not held.by_backfill:
            gaps.append(held.start - max(before))
    return gaps


def _read(lab: Lab, ids: Sequence[int], begin: float) -> list[Ran]:
    seen = first_events(lab)
    ran = []
    for job_id in ids:
        written = (lab.folder / "jobs" / f"{job_id}.out").read_text().split()
        started = {name: seen[name][job_id] for name in ("main", "backfill") if job_id in seen[name]}
        ran.append(
            Ran(
                job_id=job_id,
                submit=seen["submit"][job_id] - begin,
                start=min(started.values()) - begin,
                began=float(written[0]) - begin,
                ended=float(written[-1]) - begin,
                end=seen["end"][job_id] - begin,
                by_backfill="main" not in started,
            )
        )
    return ran
