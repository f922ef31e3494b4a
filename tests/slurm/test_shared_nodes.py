"""A real slurmctld starts jobs when the forecast says so, where they wait for memory and for whole nodes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from advisor.arrays import Floats
from advisor.cli.own_jobs import jobs_of_site
from advisor.history.ingest import ingest_sacct
from advisor.history.store import HistoryStore
from advisor.model.machine import NOT_KNOWN
from advisor.model.settings import PathSettings
from advisor.model.site import SiteState
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.world import Policy, World, WorldOptions
from advisor.service.exchange import snapshot as snapshot_file
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.observation.sharing import sharing_of
from advisor.service.price.queue_view import (
    OnPremiseQueue,
    forecast_waits,
    on_premise_queue,
    seen_queues,
)
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.testing.lab import Lab, LabOptions
from tests.decide.cases import make_settings

pytestmark = pytest.mark.slurm

JOBS, NODES = 14, 4
SETTINGS = make_settings(cluster={"on_premise_partitions": ["onprem", "whole"]})
NOTHING_SEEN = SiteState(time=0.0, cluster=None)
WHOLE = "PartitionName=whole Nodes=onprem[1-4] OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    options = LabOptions(
        nodes=NODES,
        processors=4,
        memory_mb=4000,
        burst_nodes=1,
        database=True,
        extra=(WHOLE,),
        min_job_age_seconds=3600,
    )
    with Lab.temporary(options) as lab:
        yield lab


def forecast_starts(snapshot: ClusterSnapshot, runs: dict[int, float]) -> dict[int, float]:
    """Epoch seconds, where the run times are known."""

    def known(queue: OnPremiseQueue) -> tuple[Floats, Floats]:
        running, waiting = (
            np.array([runs[queued.job.job_id] for queued in jobs]) for jobs in (queue.running, queue.waiting)
        )
        return running, waiting

    waits = forecast_waits(on_premise_queue(snapshot, SETTINGS), known)
    return {job: snapshot.time + wait for job, wait in waits.items()}


@pytest.mark.parametrize("kind", ["memory", "whole nodes", "room on a node"])
def test_jobs_of_one_processor_start_when_the_forecast_says_so(lab: Lab, tmp_path: Path, kind: str) -> None:
    """And the accounting tells a simulation of the past as much as the snapshot tells the forecast."""
    slurm = CliBackend(Commands(Path(shutil.which("squeue") or "").parent, lab.conf))
    drawn, runs = np.random.default_rng(7), dict[int, float]()
    for number in range(JOBS):
        seconds, memory = float(drawn.integers(3, 9)), int(drawn.choice([1000, 2000, 4000]))
        if kind == "room on a node":  # four jobs have more than half of each node; together much is free
            seconds, memory = (9.0 + 2.0 * number, 2100) if number < NODES else (1.0, 2000)
        whole = "--exclusive" if number % 2 else "--partition=whole"
        how = whole if kind == "whole nodes" else f"--mem={memory}"
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
    own = history_of(lab, slurm, on_premise_queue(snapshot, SETTINGS), runs, tmp_path)
    assert len(own) == JOBS
    as_was = own.table.wait[own.first :]
    told, untold = (
        World(jobs, WorldOptions(), Policy()).run().end - own.submit - own.run - as_was
        for jobs in (own, replace(own, on_premise=None))
    )
    assert np.abs(told).mean() < (0.5 if kind != "room on a node" else 1.0) * np.abs(untold).mean()


def history_of(
    lab: Lab, slurm: CliBackend, queue: OnPremiseQueue, jobs: Collection[int], folder: Path
) -> LoopJobs:
    """The jobs as `advisor whatif` reads them, once slurmdbd has all of them."""
    paths = PathSettings(state=folder, run=folder, database_url=f"sqlite:///{folder}/history.db")
    settings = SETTINGS.model_copy(update={"paths": paths})
    snapshot_file.write(settings.paths.snapshot, Snapshot(state=NOTHING_SEEN, queues=seen_queues(queue)))
    with HistoryStore(settings.history_url) as store:
        read, begin = set[int](), time.time()
        while not read >= set(jobs):
            assert time.time() < begin + 60.0, "slurmdbd does not know all jobs"
            with slurm.accounting(queue.time - 600.0) as export:
                ingest_sacct(store, export.lines, fields=export.fields, delimited_by=export.delimited_by)
            outcomes = list(store.outcomes(0.0))
            read = {outcome.job.job_id for outcome in outcomes}
            time.sleep(0.5)
    first = min(outcome.job.submit_time for outcome in outcomes if outcome.job.job_id in jobs)
    return jobs_of_site(settings, NOTHING_SEEN, 0, lambda _: first).jobs


def not_exclusive(queued: QueuedJob) -> QueuedJob:
    return replace(queued, job=structs.replace(queued.job, whole_nodes=False))
