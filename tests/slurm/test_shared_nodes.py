"""A real slurmctld starts jobs when the forecast says so, where they wait for memory and for whole nodes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from advisor.arrays import Floats
from advisor.model.machine import NOT_KNOWN
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.observation.sharing import sharing_of
from advisor.service.price.queue_view import OnPremiseQueue, forecast_waits, on_premise_queue
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.testing.lab import Lab, LabOptions
from tests.decide.cases import make_settings

pytestmark = pytest.mark.slurm

JOBS = 14
WHOLE = "PartitionName=whole Nodes=onprem[1-4] OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    options = LabOptions(
        nodes=4, processors=4, memory_mb=4000, burst_nodes=1, extra=(WHOLE,), min_job_age_seconds=3600
    )
    with Lab.temporary(options) as lab:
        yield lab


def forecast_starts(snapshot: ClusterSnapshot, runs: dict[int, float]) -> dict[int, float]:
    """Epoch seconds, where the run times are known."""
    settings = make_settings(cluster={"on_premise_partitions": ["onprem", "whole"]})

    def known(queue: OnPremiseQueue) -> tuple[Floats, Floats]:
        running, waiting = (
            np.array([runs[queued.job.job_id] for queued in jobs]) for jobs in (queue.running, queue.waiting)
        )
        return running, waiting

    waits = forecast_waits(on_premise_queue(snapshot, settings), known)
    return {job: snapshot.time + wait for job, wait in waits.items()}


@pytest.mark.parametrize("kind", ["memory", "whole nodes"])
def test_jobs_of_one_processor_start_when_the_forecast_says_so(lab: Lab, kind: str) -> None:
    slurm = CliBackend(Commands(Path(shutil.which("squeue") or "").parent, lab.conf))
    drawn, runs = np.random.default_rng(7), dict[int, float]()
    for _ in range(JOBS):
        seconds, memory = float(drawn.integers(3, 9)), int(drawn.choice([1000, 2000, 4000]))
        whole = "--exclusive" if len(runs) % 2 else "--partition=whole"
        how = f"--mem={memory}" if kind == "memory" else whole
        job = lab.sbatch("-n1", "-t5", how, script=f"date +%s.%N; sleep {seconds}")
        runs[job.job_id] = seconds
    time.sleep(3.0)  # what can start has started
    snapshot = replace(slurm.snapshot(time.time()), sharing=sharing_of(slurm.config(), slurm.partitions()))
    shared = forecast_starts(snapshot, runs)
    as_if_alone = replace(snapshot, sharing=NOT_KNOWN, jobs=tuple(map(not_exclusive, snapshot.jobs)))
    before = forecast_starts(as_if_alone, runs)
    lab.wait_for_jobs(list(runs), seconds=240)
    began = {job: float((lab.folder / "jobs" / f"{job}.out").read_text().split()[0]) for job in shared}
    late, without = (np.array([began[job] - found[job] for job in shared]) for found in (shared, before))
    assert len(shared) >= JOBS // 2
    assert np.abs(late).mean() < 0.5 * np.abs(without).mean()


def not_exclusive(queued: QueuedJob) -> QueuedJob:
    return replace(queued, job=structs.replace(queued.job, whole_nodes=False))
