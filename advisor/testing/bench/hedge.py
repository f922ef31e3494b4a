"""Hedged starts on a real slurmctld: does a job that is brought back start when it would have, had it waited?

The same stream of jobs runs several times: with its hedged jobs submitted on-premise like all others (they
simply wait), and with the same jobs started in the cloud, their places kept. Crashes happen at the same
moments of every run. The first way is run twice, since no two runs of a cluster are alike: what differs
between those two is what chance alone does. Time is compressed: seconds stand for minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from advisor.model.errors import AdvisorError
from advisor.service.hedge_record import HedgeRecord
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.watched import WatchedLab, open_record

SLOWDOWN: Final = 2.0
"""s(c) of the stream's cloud."""
_BURST_CORES: Final = 8
_JOB: Final = (
    "echo begin $SLURM_JOB_PARTITION $(date +%s.%N); "
    "if [ $SLURM_JOB_PARTITION = burst ]; then sleep {cloud:.2f}; else sleep {run:.2f}; fi; "
    "echo end $SLURM_JOB_PARTITION $(date +%s.%N)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One job of the stream.

    Attributes
    ----------
    at : float
        Seconds since the stream's begin.
    cores : int
        Asked for.
    run_seconds : float
        On-premise; in the cloud `SLOWDOWN` times as long.
    limit_minutes : int
        Its user's time limit.
    stop_seconds : float or None
        Stop-loss of its hedge; None: it is none of the hedged.
    """

    at: float
    cores: int
    run_seconds: float
    limit_minutes: int
    stop_seconds: float | None


@dataclass(slots=True)
class Ran:
    """One job in one run: what it wrote itself, seconds since the stream's begin, and what Slurm says."""

    job_id: int
    begun: list[tuple[str, float]] = field(default_factory=list)
    ended: list[tuple[str, float]] = field(default_factory=list)
    state: str = ""
    restarts: int = 0

    @property
    def start_here(self) -> float | None:
        """When it began on-premise."""
        return next((at for where, at in self.begun if where == "onprem"), None)


def stream(competing: int, hedged: int, arrive_seconds: float, seed: int) -> list[Arrival]:
    """Draw a stream: many small short jobs, few large long ones, in no order; limits as users set them."""
    drawn = np.random.default_rng(seed)
    count = competing + hedged
    at = np.sort(drawn.uniform(0.0, arrive_seconds, count))
    chosen = set(drawn.choice(count, hedged, replace=False).tolist())
    return [
        Arrival(
            at=float(at[n]),
            cores=int(drawn.choice([1, 2, 4, 8], p=[0.35, 0.25, 0.3, 0.1])),
            run_seconds=float(np.clip(drawn.lognormal(1.6, 0.7), 1.0, 20.0)),
            limit_minutes=int(drawn.choice([1, 2, 5])),
            stop_seconds=float(drawn.choice([12.0, 30.0, 1000.0])) if n in chosen else None,
        )
        for n in range(count)
    ]


def run(
    *,
    competing: int = 200,
    hedged: int = 50,
    nodes: int = 8,
    arrive_seconds: float = 60.0,
    kill_watcher_every: float = 7.0,
    restart_slurmctld: int = 2,
    priorities: str = "priority/multifactor",
    again: bool = True,
    seed: int = 1,
    longest_seconds: float = 900.0,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Run the pair.

    Parameters
    ----------
    competing, hedged : int
        Jobs that only wait; jobs with a hedge.
    nodes : int
        On-premise, of four processors each.
    arrive_seconds : float
        All jobs are submitted within this time.
    kill_watcher_every : float
        Seconds between two kills of the process that watches.
    restart_slurmctld : int
        How often slurmctld is restarted, in every run, after the last job has arrived. It is not killed: what
        ended within the five seconds before would run on for it until its time limit, hedged or not.
    priorities : str
        Slurm's priority plugin.
    again : bool
        Whether the waiting run is repeated, to know what chance does.
    seed : int
        Of the stream.
    longest_seconds : float
        After so long a run is given up.
    tell : callable
        Told what is being done.
    """
    jobs = stream(competing, hedged, arrive_seconds, seed)
    restarts = [arrive_seconds + 5.0 + 12.0 * n for n in range(restart_slurmctld)]

    def once(what: str, *, keeps_places: bool) -> _Run:
        tell(f"{what}: {competing} jobs, {hedged} of interest, {nodes} nodes")
        options = LabOptions(
            nodes=nodes, burst_nodes=max(4, hedged // 2), burst_processors=_BURST_CORES, boot_seconds=1.2,
            suspend_seconds=20, min_job_age_seconds=3600, priority_type=priorities,
            database=priorities == "priority/multifactor",  # without it jobs do not age
            extra=("PriorityWeightAge=100000", "PriorityMaxAge=0-1", "PriorityCalcPeriod=1")
            if priorities == "priority/multifactor"
            else (),
        )  # fmt: skip
        with Lab.temporary(options) as lab:
            return _Run(lab, jobs, restarts, kill_watcher_every, longest_seconds).go(
                keeps_places=keeps_places
            )

    waited = once("all wait", keeps_places=False)
    kept = once("places kept", keeps_places=True)
    chance = once("all wait, again", keeps_places=False) if again else None
    return {
        "competing_jobs": competing,
        "hedged_jobs": hedged,
        "processors": 4 * nodes,
        "priorities": priorities,
        "slowdown_of_the_cloud": SLOWDOWN,
        "slurmctld_restarted": restart_slurmctld,
        "watcher_killed": kept.kills,
        **_compared(jobs, waited, kept),
        "by_chance": None if chance is None else _chance(jobs, waited, chance, kept),
    }


class _Run:
    """One run of the stream in a lab."""

    def __init__(
        self, lab: Lab, jobs: Sequence[Arrival], restarts: Sequence[float], every: float, longest: float
    ) -> None:
        self._lab = lab
        self._jobs = jobs
        self._restarts = list(restarts)
        self._every = every
        self._longest = longest
        self._watcher: subprocess.Popen[bytes] | None = None
        self.kills = 0
        self.counts: dict[str, int] = {}
        self.places_left = 0
        self.ran: list[Ran] = []

    def go(self, *, keeps_places: bool) -> _Run:
        """Submit at the set times, kill what is to be killed, wait for the end, read what happened."""
        with tempfile.TemporaryDirectory(prefix="places-") as state:
            folder = Path(state)
            watched = WatchedLab(self._lab, folder, sections=SECTIONS)
            try:
                self._go(watched, folder, keeps_places=keeps_places)
            finally:
                self._kill_watcher()
            self.counts = dict(open_record(folder).counts)
        return self

    def _go(self, watched: WatchedLab, folder: Path, *, keeps_places: bool) -> None:
        begin = time.time()
        waiting, next_kill = list(self._jobs), self._every
        while True:
            now = time.time() - begin
            if keeps_places and (self._watcher is None or now > next_kill):
                self._restart_watcher(folder)
                next_kill = now + self._every
            if waiting and waiting[0].at <= now:
                self._submit(watched, waiting.pop(0), keeps_places=keeps_places)
                continue
            if self._restarts and now > self._restarts[0]:
                self._restarts.pop(0)
                self._lab.restart_slurmctld()
            if not waiting and self._is_over(open_record(folder)):
                break
            if now > self._longest:
                break
            time.sleep(0.05 if waiting else 0.5)
        self.places_left = len(self._lab.run("squeue", "-h", check=False).stdout.split())
        for ran in self.ran:
            self._read(ran, begin)

    def _submit(self, watched: WatchedLab, arrival: Arrival, *, keeps_places: bool) -> None:
        script = _JOB.format(run=arrival.run_seconds, cloud=SLOWDOWN * arrival.run_seconds)
        options = (f"-n{arrival.cores}", "--mem-per-cpu=10")
        if keeps_places and arrival.stop_seconds is not None:
            job_id = watched.hedged(
                *options,
                script=script,
                stop_seconds=arrival.stop_seconds,
                limit_minutes=arrival.limit_minutes,
            )
        else:
            limits = (f"--time={arrival.limit_minutes}", "--open-mode=append")
            job_id = self._lab.sbatch(*options, *limits, script=script).job_id
        self.ran.append(Ran(job_id=job_id))

    def _is_over(self, record: HedgeRecord) -> bool:
        """Nothing is queued any more and no place written down; a slurmctld that is away knows nothing."""
        shown = self._lab.run("squeue", "-h", "-o", "%i", check=False)
        return shown.returncode == 0 and not shown.stdout.strip() and not len(record)

    def _restart_watcher(self, folder: Path) -> None:
        if self._watcher is not None:
            self._kill_watcher()
            self.kills += 1
        with (self._lab.folder / "log" / "watcher.log").open("ab") as log:
            self._watcher = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
                [
                    sys.executable,
                    "-m",
                    "advisor.testing.bench.hedge_watcher",
                    str(self._lab.folder),
                    str(folder),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _kill_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()

    def _read(self, ran: Ran, begin: float) -> None:
        path = self._lab.folder / "jobs" / f"{ran.job_id}.out"
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            words = line.split()
            if len(words) == 3 and words[0] in {"begin", "end"}:  # slurmstepd writes there as well
                found = ran.begun if words[0] == "begin" else ran.ended
                found.append((words[1], float(words[2]) - begin))
        with suppress(AdvisorError):
            shown = self._lab.job(ran.job_id)
            ran.state, ran.restarts = shown["JobState"], int(shown["Restarts"])


SECTIONS: Final = {"placement": {"baseline": SLOWDOWN}}
"""Settings of the watching process."""


def _compared(jobs: Sequence[Arrival], waited: _Run, kept: _Run) -> dict[str, Any]:
    """What became of the hedged jobs, and of the others."""
    of_interest = [n for n, job in enumerate(jobs) if job.stop_seconds is not None]
    back = [n for n in of_interest if kept.ran[n].start_here is not None]
    others = [n for n, job in enumerate(jobs) if job.stop_seconds is None]
    return {
        "ended_in_the_cloud": len(of_interest) - len(back),
        "brought_back": len(back),
        "counts": kept.counts,
        "brought_back_later_seconds": _spread(_later(back, waited, kept)),
        "others_later_seconds": _spread(_later(others, waited, kept)),
        "turnaround_saved_seconds": _saved(of_interest, waited, kept),
        "integrity": _integrity([waited, kept]),
        "odd_jobs": [
            f"{what}: {job}"
            for what, each in (("all wait", waited), ("places kept", kept))
            for job in each.ran
            if len(job.ended) != 1 or job.state != "COMPLETED"
        ][:20],
    }


def _chance(jobs: Sequence[Arrival], waited: _Run, again: _Run, kept: _Run) -> dict[str, Any]:
    back = [n for n in range(len(jobs)) if jobs[n].stop_seconds is not None and kept.ran[n].start_here]
    return {
        "the_same_jobs_later_seconds": _spread(_later(back, waited, again)),
        "all_jobs_later_seconds": _spread(_later(range(len(jobs)), waited, again)),
    }


def _later(rows: Sequence[int], first: _Run, second: _Run) -> list[float]:
    """By how much each job starts later on-premise in the second run."""
    pairs = [(first.ran[n].start_here, second.ran[n].start_here) for n in rows]
    return [b - a for a, b in pairs if a is not None and b is not None]


def _saved(rows: Sequence[int], waited: _Run, kept: _Run) -> dict[str, float]:
    ends = [(waited.ran[n].ended, kept.ran[n].ended) for n in rows]
    gains = [a[0][1] - b[-1][1] for a, b in ends if a and b]
    return _spread(gains)


def _spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean, quantiles, and the shares that Slurm's whole seconds and a second more allow to tell."""
    if not values:
        return {"jobs": 0}
    found = np.asarray(values)
    low, middle, high = np.quantile(found, [0.05, 0.5, 0.95])
    return {
        "jobs": len(found),
        "mean": float(found.mean()),
        "p5": float(low),
        "median": float(middle),
        "p95": float(high),
        "most": float(found.max()),
        "share_not_later": float((found <= 0.0).mean()),
        "share_not_later_than_1_s": float((found <= 1.0).mean()),
        "share_not_later_than_5_s": float((found <= 5.0).mean()),
    }


def _integrity(runs: Sequence[_Run]) -> dict[str, int]:
    """What must not happen, counted."""
    ran = [job for each in runs for job in each.ran]
    return {
        "jobs": len(ran),
        "lost": sum(not job.ended for job in ran),
        "ended_twice": sum(len(job.ended) > 1 for job in ran),
        "begun_twice_on_premise": sum(
            len([where for where, _ in job.begun if where == "onprem"]) > 1 for job in ran
        ),
        "begun_in_the_cloud_after_on_premise": sum(
            "onprem" in [where for where, _ in job.begun[:-1]] for job in ran
        ),
        "not_completed": sum(job.state != "COMPLETED" for job in ran),
        "restarted_more_than_once": sum(job.restarts > 1 for job in ran),
        "placeholders_left": sum(each.places_left for each in runs),
    }
