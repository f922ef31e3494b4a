"""A hedged job's placeholder follows at once, however seldom control looks: real Slurm, both daemons."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.service.exchange.client import SubmitClient
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.lab_processes import wait_until
from advisor.testing.site import PATIENT, Site, SiteOptions
from advisor.testing.watched import WatchedLab

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

SELDOM = 1200.0  # longer than anything here may take
PATIENCE = 120.0
_TRIES = 20


@pytest.fixture
def site() -> Iterator[Site]:
    """A machine that is full, and an advisor that has seen it, and will not look again."""
    settings = {
        "hedge": {"enabled": True},
        "loops": {"snapshot_seconds": SELDOM, "watch_seconds": SELDOM},
        "cluster": {"policy": "ambati2021"},
        "placement": {"boot_seconds": 5.0},
        "submit": {**PATIENT, "snapshot_max_age_seconds": 3600.0},
    }
    lab = LabOptions(nodes=1, burst_nodes=4, suspend_seconds=600)
    with tempfile.TemporaryDirectory(prefix="told-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=settings, boot_seconds=1.0))
        with site:
            filler = site.lab.sbatch("-n4", "--time=60", script="sleep 3600").job_id
            wait_until(
                lambda: site.lab.job(filler)["JobState"] == "RUNNING", seconds=PATIENCE, what="it is full"
            )
            site.start_advisor()
            yield site


def hedged(site: Site) -> int:
    """Submit a job until one is hedged: slurmctld does not wait for an advisor that is late."""
    for _ in range(_TRIES):
        job = site.lab.sbatch("-n1", "--time=30", "--comment=hedge", script="sleep 600").job_id
        if site.lab.job(job)["Partition"] == "burst":
            return job
        site.lab.run("scancel", str(job))
        time.sleep(1.0)
    raise AssertionError(site.advisor("status", check=False).stdout)


def placeholders(site: Site, job: int) -> list[str]:
    shown = site.lab.run(
        "squeue", "-h", f"--name=place-of-{job}", "--partition=onprem", "-o", "%i %u %T"
    ).stdout
    return shown.splitlines()


def announced(site: Site) -> float:
    with SubmitClient(site.folder / "run" / "submit.sock", timeout=30) as client:
        lines = client.metrics().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("advisor_serve_hedges_announced"))


def test_who_came_in_between_and_still_waits_comes_after_the_placeholder(tmp_path: Path) -> None:
    """Where a number is the place, the placeholder has its job's."""
    options = LabOptions(nodes=1, burst_nodes=1, priority_type="priority/basic")
    with Lab.temporary(options) as lab:
        filler = lab.sbatch("-n4", "--time=10", script="sleep 600").job_id
        wait_until(lambda: lab.job(filler)["JobState"] == "RUNNING", seconds=PATIENCE, what="it is full")
        watched = WatchedLab(lab, tmp_path)
        before = lab.sbatch("-n4", "--time=1", script="sleep 1").job_id
        job = watched.hedged("-n4", script="sleep 600", stop_seconds=1000.0)
        between = lab.sbatch("-n4", "--time=1", script="sleep 1").job_id
        watched.step()  # so late
        kept = watched.kept(job)
        assert kept is not None
        assert kept.placeholder > between
        places = [int(lab.job(number)["Priority"]) for number in (before, kept.placeholder, between)]
        assert places == sorted(places, reverse=True)
        assert len(set(places)) == 3


def test_its_placeholder_follows_at_once(site: Site) -> None:
    for _ in range(2):  # the second long after the looks that the start of a daemon brings
        job = hedged(site)
        wait_until(lambda job=job: placeholders(site, job), seconds=PATIENCE, what="its place")
        assert len(placeholders(site, job)) == 1
    # serve counts it when control has answered, which may be after the placeholder is there
    wait_until(lambda: announced(site) >= 2.0, seconds=PATIENCE, what="both are counted")
    told = announced(site)
    site.control.kill()
    job = hedged(site)  # nobody hears of it, and it is none the worse
    assert placeholders(site, job) == []
    site.control.start()
    wait_until(lambda: placeholders(site, job), seconds=PATIENCE, what="its place, by the first look")
    assert len(placeholders(site, job)) == 1
    assert announced(site) == told
