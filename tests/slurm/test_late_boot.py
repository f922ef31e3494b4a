"""A job that may not be requeued is not lost when its cloud node does not come before ResumeTimeout."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

NEVER = 1000.0


@pytest.fixture
def site() -> Iterator[Site]:
    lab = LabOptions(nodes=1, burst_nodes=1, resume_timeout_seconds=20, suspend_timeout_seconds=2)
    with tempfile.TemporaryDirectory(prefix="late-") as folder:
        options = SiteOptions(lab=lab, settings={"submit": PATIENT}, boot_seconds=NEVER)
        with Site(Path(folder), options) as site:
            site.start_advisor()
            yield site


def test_a_job_whose_node_does_not_boot_in_time_is_tried_again_and_runs_once(site: Site) -> None:
    job_id = site.lab.sbatch("--partition=burst", "--no-requeue", script="echo began; sleep 10").job_id
    site.wait_until("it boots", lambda: site.lab.job(job_id)["JobState"] == "CONFIGURING")
    site.wait_until("its node is given up", lambda: site.lab.job(job_id)["JobState"] != "CONFIGURING")
    assert site.lab.job(job_id)["Restarts"] == "1"
    assert site.hypervisor is not None
    site.hypervisor.boot_seconds = 2.0
    site.wait_until("it runs", lambda: site.lab.job(job_id)["JobState"] == "RUNNING")
    site.wait_until("Requeue is taken back", lambda: site.lab.job(job_id)["Requeue"] == "0")
    assert site.lab.job(job_id)["JobState"] == "RUNNING"
    assert site.lab.wait_for_jobs([job_id]) == {job_id: "COMPLETED"}
    assert (site.lab.folder / "jobs" / f"{job_id}.out").read_text() == "began\n"
