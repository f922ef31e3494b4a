"""A day in miniature under a budget: real slurmctld, real daemons, an EC2 emulator, and the one price."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

USD_PER_DAY = 600.0
"""It accrues 0.7 US cents a second: so much as one node costs in two and a half minutes."""
JOBS = 24


@pytest.fixture
def site(database_template: Path) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="price-") as name:
        lab = LabOptions(
            nodes=1, burst_nodes=3, database=True, database_template=database_template, suspend_seconds=5
        )
        settings = {
            "cluster": {"policy": "price"},
            "budget": {"usd": USD_PER_DAY, "period": "day"},
            "placement": {"boot_seconds": 5.0},
            "submit": PATIENT,
        }
        site = Site(Path(name), SiteOptions(lab=lab, settings=settings, boot_seconds=1.2))
        with site:
            site.start_advisor()
            yield site


def status(site: Site) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(site.advisor("status", "--format", "json").stdout)
    control: dict[str, Any] = said["control"]
    return control


def test_a_day_under_a_budget_spends_no_more_than_it_and_loses_no_job(site: Site) -> None:
    lab, began = site.lab, time.time()
    site.wait_until("there is a price", lambda: (status(site)["price"] or {}).get("seconds_per_usd"))
    jobs = [
        lab.sbatch("-n4", "--time=2", script="echo $SLURM_JOB_PARTITION; sleep 5").job_id for _ in range(JOBS)
    ]

    def states() -> set[str]:
        return {lab.job(job)["JobState"] for job in jobs}

    site.wait_until("all jobs have ended", lambda: states() == {"COMPLETED"})
    ran_in = {job: (lab.folder / "jobs" / f"{job}.out").read_text().split() for job in jobs}
    assert {len(partitions) for partitions in ran_in.values()} == {1}  # each started once
    in_cloud = sum(partitions == ["burst"] for partitions in ran_in.values())
    assert 0 < in_cloud < JOBS
    site.wait_until(
        "the nodes are gone",
        lambda: all(instance["state"] == "terminated" for instance in site.ec2.instances()),
    )
    report = status(site)["price"]
    # while little demand is known, no more than twice what has accrued may be spent
    assert 0.0 < report["spent_usd"] <= 2.0 * USD_PER_DAY * (time.time() - began + 60.0) / 86_400.0
    assert report["valued"] >= 1
    # what users read
    said = json.loads(site.advisor("why", str(jobs[-1]), "--format", "json").stdout)
    assert "price" in json.dumps(said)
