"""A real slurmctld starts the jobs of a partition with a higher tier first, as the forecast says."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.service.observation.sharing import sharing_of
from advisor.service.price.queue_view import forecast_waits, on_premise_queue
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.lab_processes import wait_until
from tests.decide.cases import make_settings

pytestmark = pytest.mark.slurm

SETTINGS = make_settings(cluster={"on_premise_partitions": ["onprem", "urgent"]})
URGENT = "PartitionName=urgent Nodes=onprem1 PriorityTier=10 MaxTime=INFINITE State=UP"


def test_jobs_start_in_the_order_of_their_partitions_tiers() -> None:
    with Lab.temporary(LabOptions(nodes=1, burst_nodes=1, min_job_age_seconds=3600, extra=(URGENT,))) as lab:
        slurm = CliBackend(Commands(Path(shutil.which("squeue") or "").parent, lab.conf))
        first = lab.sbatch("-n4", "-t5", script="sleep 8")
        wait_until(lambda: lab.job(first.job_id)["JobState"] == "RUNNING", seconds=60.0, what="it runs")
        script = "date +%s.%N; sleep 1"
        wait = [lab.sbatch("-n4", "-t5", script=script).job_id for _ in range(2)]
        wait.append(lab.sbatch("-n4", "-t5", "-purgent", script=script).job_id)
        found = slurm.snapshot(time.time())
        found = replace(found, sharing=sharing_of(slurm.config(), slurm.partitions()))
        waits = forecast_waits(on_premise_queue(found, SETTINGS))
        lab.wait_for_jobs(wait, seconds=120)
        began = {job: float((lab.folder / "jobs" / f"{job}.out").read_text().split()[0]) for job in wait}
    assert sorted(wait, key=waits.__getitem__) == sorted(wait, key=began.__getitem__) == [wait[2], *wait[:2]]
