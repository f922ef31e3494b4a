"""A real slurmctld starts a new job when the forecast says so that begins with a higher priority."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from advisor.arrays import Floats
from advisor.model.job import Job
from advisor.service.control.first_priorities import FirstPriorities
from advisor.service.price.queue_view import OnPremiseQueue, on_premise_queue, seen_queues
from advisor.service.submit.recent import QueueForecast
from advisor.service.submit.state_holder import profiles_of
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.slurm.steering import Ageing
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.lab_processes import wait_until
from tests.decide.cases import make_settings
from tests.service.site import make_snapshot

pytestmark = pytest.mark.slurm

FIRST_SECONDS = 25.0
"""So long that all jobs are submitted meanwhile, also on a busy machine."""
RUN_SECONDS = 5.0
EXTRA = (
    "AccountingStorageEnforce=associations,limits,qos",
    "PriorityWeightQOS=100000",
    "PriorityWeightAge=1000",
)


def test_an_urgent_job_is_forecast_to_overtake_those_that_wait() -> None:
    """One job of the QOS `urgent` has told its priority. Nine of `normal` wait for a machine of two nodes."""
    options = LabOptions(nodes=2, burst_nodes=1, database=True, min_job_age_seconds=3600, extra=EXTRA)
    with Lab.temporary(options) as lab:
        slurm = CliBackend(Commands(Path(shutil.which("squeue") or "").parent, lab.conf))
        lab.run("sacctmgr", "-i", "modify", "user", "root", "set", "qos=normal,urgent")
        time.sleep(1.0)
        script = f"date +%s.%N; sleep {RUN_SECONDS}"
        first = lab.sbatch("-N2", "-n8", "-t5", "--qos=normal", script=f"sleep {FIRST_SECONDS}")

        def runs_alone() -> bool:
            return lab.job(first.job_id)["JobState"] == "RUNNING"

        wait_until(runs_alone, seconds=60.0, what="the first job runs")
        normal = [lab.sbatch("-N2", "-n8", "-t5", "--qos=normal", script=script) for _ in range(9)]
        seen = lab.sbatch("-N2", "-n8", "-t5", "--qos=urgent", script=script)
        time.sleep(2.5)
        found = slurm.snapshot(time.time())
        queue = on_premise_queue(found, make_settings())
        known = FirstPriorities().update(queue.waiting, Ageing.of(slurm.config()), 0, found.time)

        def runs(of: OnPremiseQueue) -> tuple[Floats, Floats]:
            return np.full(len(of.running), FIRST_SECONDS), np.full(len(of.waiting), RUN_SECONDS)

        shot = replace(make_snapshot(found.time), queues=seen_queues(queue, runs), first_priorities=known)
        job = Job(job_id=0, submit_time=found.time, processors=8, user="root", queue="onprem")
        job = structs.replace(job, account="root", qos="urgent", nodes=2, requested_time=300.0)
        new = lab.sbatch("-N2", "-n8", "-t5", "--qos=urgent", script=script)
        waits = [
            QueueForecast(shot.queues, profiles_of(shot), priorities).waits(job, found.time)[0]
            for priorities in (known, {})
        ]
        lab.wait_for_jobs([new.job_id, seen.job_id, normal[0].job_id], seconds=240)
        began = float((lab.folder / "jobs" / f"{new.job_id}.out").read_text().split()[0])
    late, last = (abs(began - found.time - wait) for wait in waits)
    assert late < 0.4 * last, (waits, began - found.time, known)
