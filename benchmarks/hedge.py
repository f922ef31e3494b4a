"""Hedged starts on a real slurmctld: does a job that is brought back start when it would have, had it waited?

The same stream of jobs runs in pairs: with its hedged jobs submitted on-premise like all others (they simply
wait), and with the same jobs started in the cloud, their places kept. Only those are hedged that would wait,
by the rule of `advisor.decide`. slurmctld is restarted at the same moments of every run. No two runs of a
cluster are alike: what differs between two in which all wait is what chance alone does, and is reported
beside. Time is compressed: seconds stand for minutes.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from advisor.model.errors import AdvisorError, TellAdmin
from advisor.model.job import PLACEHOLDER_PREFIX
from advisor.service.exchange.announcing import Announcer
from advisor.service.state.hedge_entries import HedgeRecord
from advisor.slurm import hook_files
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.watched import WatchedLab, open_record
from benchmarks.hedge_compare import Arrival, Ran, Record, by_chance, compared

SLOWDOWN: Final = 2.0
"""s(c) of the stream's cloud."""
SECTIONS: Final = {"placement": {"baseline": SLOWDOWN}}
"""Settings of the watching process."""
CONTROL_SOCKET: Final = "control.sock"
_BURST_CORES: Final = 8
_JOB: Final = (
    "echo begin $SLURM_JOB_PARTITION $(date +%s.%N); "
    "if [ $SLURM_JOB_PARTITION = burst ]; then sleep {cloud:.2f}; else sleep {run:.2f}; fi; "
    "echo end $SLURM_JOB_PARTITION $(date +%s.%N)"
)
_LAUNCH_SECONDS: Final = 10.0
_AGEING: Final = ("PriorityWeightAge=100000", "PriorityMaxAge=0-1", "PriorityCalcPeriod=1")


def stream(
    competing: int, hedged: int, arrive_seconds: float, seed: int, stretch: float = 1.0
) -> list[Arrival]:
    """Draw a stream: many small short jobs, few large long ones, in no order; limits as users set them.

    All times but the limits, which are whole minutes and long enough, become `stretch` times as long.
    """
    drawn = np.random.default_rng(seed)
    count = competing + hedged
    at = np.sort(drawn.uniform(0.0, arrive_seconds, count))
    chosen = set(drawn.choice(count, hedged, replace=False).tolist())
    return [
        Arrival(
            at=stretch * float(at[n]),
            cores=int(drawn.choice([1, 2, 4, 8], p=[0.35, 0.25, 0.3, 0.1])),
            run_seconds=stretch * float(np.clip(drawn.lognormal(1.6, 0.7), 1.0, 20.0)),
            limit_minutes=math.ceil(stretch) * int(drawn.choice([1, 2, 5])),
            stop_seconds=stretch * float(drawn.choice([12.0, 30.0, 1000.0])) if n in chosen else None,
        )
        for n in range(count)
    ]


def run(
    *,
    competing: int = 200,
    hedged: int = 50,
    nodes: int = 8,
    arrive_seconds: float = 60.0,
    kill_watcher_every: float = 20.0,
    restart_slurmctld: int = 2,
    priorities: str = "priority/multifactor",
    pairs: int = 2,
    seed: int = 1,
    stretch: float = 1.0,
    longest_seconds: float = 900.0,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Run pairs of runs, in which all jobs wait and in which hedged jobs keep their places.

    Args:
        competing, hedged: Number of jobs that only wait; of jobs with a hedge if they have to wait.
        nodes: On-premise nodes, of four processors each.
        arrive_seconds: All jobs are submitted within this time.
        kill_watcher_every: Seconds between two kills of the watching process; infinite for none.
        restart_slurmctld: Number of restarts of slurmctld in every run, after the last job has arrived. It is
            not killed: jobs that ended within the five seconds before would run on for it until their time
            limit.
        stretch: Factor on arrivals, run times and stays in the cloud. The time that a place costs, a second
            or two, is not compressed as the minutes of the jobs are.
        longest_seconds: A run is given up after this time.
    """
    jobs = stream(competing, hedged, arrive_seconds, seed, stretch)
    restarts = [stretch * arrive_seconds + 5.0 + 12.0 * n for n in range(restart_slurmctld)]

    def once(*, keeps_places: bool) -> Record:
        what = "places kept" if keeps_places else "all wait"
        tell(f"{what}: {competing} jobs, {hedged} of interest, {nodes} nodes")
        with tempfile.TemporaryDirectory(prefix="places-") as name:
            folder = Path(name)
            with Lab.temporary(_lab_options(folder, nodes, hedged, priorities)) as lab:
                each = _Run(lab, folder, jobs, restarts, kill_watcher_every, longest_seconds)
                return each.go(keeps_places=keeps_places)

    waited, kept = list[Record](), list[Record]()
    for _ in range(pairs):
        waited.append(once(keeps_places=False))
        kept.append(once(keeps_places=True))
    return {
        "competing_jobs": competing,
        "may_be_hedged_jobs": hedged,
        "pairs": pairs,
        "processors": 4 * nodes,
        "stretch": stretch,
        "priorities": priorities,
        "slowdown_of_the_cloud": SLOWDOWN,
        "slurmctld_restarted": restart_slurmctld,
        "watcher_killed": sum(each.kills for each in kept),
        **compared(jobs, waited, kept),
        "by_chance": by_chance(waited, kept) if pairs > 1 else None,
    }


def _lab_options(folder: Path, nodes: int, hedged: int, priorities: str) -> LabOptions:
    """A lab with the prolog as it is shipped, which notifies the watching process of slots."""
    shutil.copy(hook_files.folder() / hook_files.PROLOG, folder)
    return LabOptions(
        nodes=nodes, burst_nodes=max(4, hedged // 2), burst_processors=_BURST_CORES, boot_seconds=1.2,
        suspend_seconds=20, min_job_age_seconds=3600, priority_type=priorities,
        prolog=folder / hook_files.PROLOG,
        database=priorities == "priority/multifactor",  # without it jobs do not age
        extra=_AGEING if priorities == "priority/multifactor" else (),
    )  # fmt: skip


class _Run:
    """One run of the stream in a lab; `folder` holds what the watching process writes down."""

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        jobs: Sequence[Arrival],
        restarts: Sequence[float],
        every: float,
        longest: float,
    ) -> None:
        self._lab = lab
        self._folder = folder
        self._jobs = jobs
        self._restarts = list(restarts)
        self._every = every
        self._longest = longest
        self._watcher: subprocess.Popen[bytes] | None = None
        self._watched = WatchedLab(lab, folder, sections=SECTIONS)
        self._kills = 0
        self._begin = 0.0
        self._ran: list[Ran] = []
        self._configure_prolog()

    def go(self, *, keeps_places: bool) -> Record:
        """Submit at the set times, kill what is to be killed, wait for the end, read what happened."""
        self._begin = begin = time.time()
        announcer = self._watched.announcer = Announcer(self._folder / CONTROL_SOCKET)
        announcer.start()
        try:
            self._go(begin, keeps_places=keeps_places)
        finally:
            announcer.stop()
            self._kill_watcher()
        left = self._lab.run("squeue", "-h", "-o", "%j").stdout.splitlines()
        places_left = sum(name.startswith(PLACEHOLDER_PREFIX) for name in left)
        places, starts, submits = self._times(begin)
        for ran in self._ran:
            self._read(ran, begin)
            ran.requeued = submits.get(ran.job_id) if ran.restarts else None
            ran.start, ran.place_id = starts.get(ran.job_id), places.get(f"{PLACEHOLDER_PREFIX}{ran.job_id}")
            ran.place_start = None if ran.place_id is None else starts.get(ran.place_id)
        counts = dict(open_record(self._folder).counts)
        return Record(ran=self._ran, counts=counts, kills=self._kills, places_left=places_left)

    def _configure_prolog(self) -> None:
        sinfo = shutil.which("sinfo") or "/usr/bin/sinfo"
        (self._folder / "advisor_programs.conf").write_text(
            f"control_socket = {self._folder / CONTROL_SOCKET}\n"
            f"slurm_conf = {self._lab.conf}\nsinfo = {sinfo}\npoll_seconds = 0.3\n",
            encoding="utf-8",
        )

    def _go(self, begin: float, *, keeps_places: bool) -> None:
        waiting, next_kill = list(self._jobs), self._every
        while True:
            now = time.time() - begin
            if self._watcher is not None and self._watcher.poll() is not None:
                raise TellAdmin("the watching process has ended by itself", code="bench.watcher")
            if keeps_places and (self._watcher is None or now > next_kill):
                self._restart_watcher()
                next_kill = now + self._every
            self._note_places()
            if waiting and waiting[0].at <= now:
                self._submit(waiting.pop(0), keeps_places=keeps_places)
                continue
            if self._restarts and now > self._restarts[0]:
                self._restarts.pop(0)
                self._restart_slurmctld()
            if not waiting and self._is_over(open_record(self._folder)):
                return
            if now > self._longest:
                return
            time.sleep(0.05 if waiting else 0.5)

    def _restart_slurmctld(self) -> None:
        """Restart it while no launch is under way.

        What it has started and not yet sent to the node is lost to it: seen, the job "runs" until its time
        limit and has done nothing, hedged or not. Partitions are closed for that moment, in every run.
        """
        self._open_partitions("inactive")
        end = time.monotonic() + _LAUNCH_SECONDS
        while time.monotonic() < end and self._launching():
            time.sleep(0.2)
        self._lab.restart_slurmctld()
        self._open_partitions("up")

    def _open_partitions(self, state: str) -> None:
        for partition in ("onprem", "burst"):
            self._lab.run("scontrol", "update", f"partitionname={partition}", f"state={state}")

    def _launching(self) -> bool:
        """Whether a job has started that has not said so yet; one that came back said it in the cloud."""
        shown = self._lab.run("squeue", "-h", "--states=RUNNING,CONFIGURING", "-o", "%i %P %j", check=False)
        return any(
            not self._has_begun(job, partition)
            for job, partition, name in (line.split() for line in shown.stdout.splitlines())
            if not name.startswith(PLACEHOLDER_PREFIX)
        )

    def _has_begun(self, job: str, partition: str) -> bool:
        path = self._lab.folder / "jobs" / f"{job}.out"
        return path.exists() and f"begin {partition} " in path.read_text(encoding="utf-8")

    def _submit(self, arrival: Arrival, *, keeps_places: bool) -> None:
        script = _JOB.format(run=arrival.run_seconds, cloud=SLOWDOWN * arrival.run_seconds)
        options = (f"-n{arrival.cores}", "--mem-per-cpu=10")
        if keeps_places and arrival.stop_seconds is not None and self._would_wait(arrival):
            job_id = self._watched.hedged(
                *options,
                script=script,
                stop_seconds=arrival.stop_seconds,
                limit_minutes=arrival.limit_minutes,
            )
            now = time.time() - self._begin
            self._ran.append(Ran(job_id=job_id, is_hedged=True, submitted=now))
        else:
            limits = (f"--time={arrival.limit_minutes}", "--open-mode=append")
            job_id = self._lab.sbatch(*options, *limits, script=script).job_id
            self._ran.append(Ran(job_id=job_id, submitted=time.time() - self._begin))

    def _would_wait(self, arrival: Arrival) -> bool:
        """As the advisor decides it: a job that can start here at once has nothing to hedge against."""
        cluster = self._watched.look()
        return cluster.queue_size > 0 or cluster.free_processors < arrival.cores

    def _is_over(self, record: HedgeRecord) -> bool:
        """Nothing is queued any more and no place written down; a slurmctld that is away knows nothing."""
        shown = self._lab.run("squeue", "-h", "-o", "%i", check=False)
        return shown.returncode == 0 and not shown.stdout.strip() and not len(record)

    def _restart_watcher(self) -> None:
        if self._watcher is not None:
            self._kill_watcher()
            self._kills += 1
        module = "benchmarks.hedge_watcher"
        with (self._lab.folder / "log" / "watcher.log").open("ab") as log:
            self._watcher = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
                [sys.executable, "-m", module, str(self._lab.folder), str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _kill_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()

    def _times(self, begin: float) -> tuple[dict[str, int], dict[int, float], dict[int, float]]:
        """Placeholders by name; by slurmctld's clock each job's start, if it ran, and last submission."""
        columns = "--Format=JobID:12,Name:40,StartTime:24,SubmitTime:24,NodeList:200"
        shown = self._lab.run(
            "env", "SLURM_TIME_FORMAT=%s", "squeue", "--noheader", "--all", "--states=all", columns,
            check=False,
        ).stdout  # fmt: skip
        places, starts, submits = dict[str, int](), dict[int, float](), dict[int, float]()
        for job, name, start, submit, *nodes in (line.split() for line in shown.splitlines()):
            if name.startswith(PLACEHOLDER_PREFIX):
                places[name] = int(job)
            if start.isdigit() and nodes:  # one that was cancelled while it waited shows its end as its start
                starts[int(job)] = int(start) - begin
            if submit.isdigit():  # a requeue sets it anew
                submits[int(job)] = int(submit) - begin
        return places, starts, submits

    def _note_places(self) -> None:
        """How long each placeholder took; the record forgets it with the job."""
        missing = [ran for ran in self._ran if ran.is_hedged and ran.place_seconds is None]
        if not missing:
            return
        kept = {kept.job_id: kept for kept in open_record(self._folder).all() if kept.placeholder}
        for ran in missing:
            if (found := kept.get(ran.job_id)) is not None:
                ran.place_seconds = found.acted - self._begin - ran.submitted

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
