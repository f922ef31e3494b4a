"""A window of a log through a simulated site, and what became of each job (`advisor rehearse --shipped`)."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.model.settings import Settings
from advisor.rehearsal.log_jobs import LogJobs
from advisor.rehearsal.machines import Paid
from advisor.rehearsal.rounds import Rounds
from advisor.rehearsal.site import SimulatedSite, SiteShape, with_folders
from advisor.rehearsal.virtual_time import VirtualTime
from advisor.testing.memory_slurm_records import BURST, ENDED, MemoryJob

Progress = Callable[[int, int], None]
"""Called with (jobs submitted, all)."""

LEAD_SECONDS: Final = 60.0
"""The daemons start so long before the first submission."""
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- a folder of our own below it, made by tempfile
"""Where the loops' state files lie: they are synced to the disk at each change, which takes long there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rehearsed:
    """The outcome of the jobs of a window; the arrays have an element for each job.

    Attributes:
        submit, start, end: Epoch seconds; the start is the last one.
        run: On-premise run time, seconds, at most the limit.
        in_cloud: Whether it ended in the cloud.
        paid_core_seconds: Core-seconds that were paid for each job's runs in the cloud.
        paid: All instances, with boots, idle time and the minimum of a minute.
        interruptions: How often each job has lost its node.
        lost_seconds: Time that each job has run on nodes that it lost.
        rounds, failures: Rounds of control's loops, and those in which a step failed, by loop.
    """

    submit: Floats
    start: Floats
    end: Floats
    run: Floats
    processors: NDArray[np.int64]
    in_cloud: NDArray[np.bool_]
    paid_core_seconds: Floats
    paid: Paid
    interruptions: NDArray[np.int64]
    lost_seconds: Floats
    refused_launches: dict[str, int]
    seconds: float
    rounds: dict[str, int]
    failures: dict[str, int]

    @property
    def wait(self) -> Floats:
        """Turnaround less the on-premise run time, seconds: boot and slower run count as wait."""
        return self.end - self.submit - self.run


class Rehearsal:
    """Runs one window under one set of settings.

    Args:
        settings: The settings in force; their folders are replaced.
        is_every_round: Leave out no round of a loop (slow; see :mod:`advisor.rehearsal.rounds`).
        found: Writes what an earlier process has left into the state folder.
    """

    def __init__(
        self,
        settings: Settings,
        shape: SiteShape,
        jobs: LogJobs,
        *,
        progress: Progress | None = None,
        is_every_round: bool = False,
        found: Callable[[Path], None] = lambda _state: None,
    ) -> None:
        self._found = found
        self._settings = settings
        self._shape = shape
        self._jobs = jobs
        self._progress = progress
        self._every = is_every_round

    def run(self) -> Rehearsed:
        """Run until the last job has ended and the last instance is gone."""
        began = time.perf_counter()
        where = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
        folder = Path(tempfile.mkdtemp(prefix="advisor-rehearsal-", dir=where))
        try:
            virtual = VirtualTime(self._jobs.begins_at - LEAD_SECONDS)
            settings = with_folders(self._settings, folder)
            settings.paths.state.mkdir(mode=0o700, parents=True)
            self._found(settings.paths.state)
            site = SimulatedSite(settings, self._shape, virtual)
            try:
                return self._run(site, began)
            finally:
                site.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, site: SimulatedSite, began: float) -> Rehearsed:
        past = sorted(self._jobs.past(), key=lambda each: each[2])
        for job, start, end in past:
            site.slurm.ended_runs.add(job, "COMPLETED", start, end)
        site.prepare(past[0][2] - 1.0 if past else site.time.now)
        rounds = Rounds(site, is_every_round=self._every)
        submitted: list[MemoryJob] = []
        for each in self._jobs:
            _advance(site, rounds, each.time)
            rounds.before_decision()
            site.submit(each.request, each.job)
            submitted.append(each.job)
            if self._progress is not None:
                self._progress(len(submitted), len(self._jobs))
        while any(job.state not in ENDED for job in site.slurm.jobs.values()) or site.slurm.has_cloud_work:
            _advance(site, rounds, _next_event(site, rounds))
        return self._result(site, rounds, submitted, began)

    def _result(
        self, site: SimulatedSite, rounds: Rounds, submitted: list[MemoryJob], began: float
    ) -> Rehearsed:
        return Rehearsed(
            submit=np.array([job.submit_time for job in submitted]),
            start=np.array([math.nan if job.start_time is None else job.start_time for job in submitted]),
            end=np.array([job.end_time for job in submitted]),
            run=self._jobs.window.run,
            processors=np.array([job.size for job in submitted]),
            in_cloud=np.array([job.partition == BURST for job in submitted]),
            paid_core_seconds=np.array([job.cloud_core_seconds for job in submitted]),
            paid=site.machines.paid,
            interruptions=np.array([job.interruptions for job in submitted]),
            lost_seconds=np.array([job.lost_seconds for job in submitted]),
            refused_launches=dict(site.ec2.refused),
            seconds=time.perf_counter() - began,
            rounds=rounds.counts,
            failures=rounds.failures,
        )


def _next_event(site: SimulatedSite, rounds: Rounds) -> float:
    return min(site.slurm.next_event(), site.machines.next_boot, site.ec2.next_event(), rounds.next_due())


def _advance(site: SimulatedSite, rounds: Rounds, until: float) -> None:
    """Go on to ``until``, epoch seconds: everything due by then has happened, and every round was had."""
    while True:
        site.time.move_to(min(until, _next_event(site, rounds)))
        site.ec2.advance()
        site.machines.advance()
        site.slurm.advance()
        rounds.run_due()
        if site.time.now >= until and _next_event(site, rounds) > until:
            return
