"""On a real Slurm, the users of an installed site: slurmctld's, the daemons', and the jobs' are three."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

SERVICE, USER = "daemon", "mail"


@pytest.fixture(scope="module")
def site(database_template: Path) -> Iterator[Site]:
    lab = LabOptions(
        nodes=1, burst_nodes=2, database=True, database_template=database_template, slurm_user="slurm"
    )
    settings = {
        "budget": {"usd": 1000.0, "usd_per_hour_saved": 10.0},  # what accrues in a minute pays for a job
        "hedge": {"enabled": True},
        "placement": {"boot_seconds": 5.0},
        "submit": PATIENT,
    }
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        options = SiteOptions(lab=lab, settings=settings, boot_seconds=1.0, service_user=SERVICE)
        with Site(Path(folder), options) as site:
            add = ("sacctmgr", "-i", "-Q", "add", "user")
            site.lab.run(*add, SERVICE, "account=lab", "adminlevel=Admin")
            site.lab.run(*add, USER, "account=lab")
            site.start_advisor()
            yield site


def submit(site: Site, *options: str, script: str) -> int:
    """Submit a job as its user."""
    as_user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
    output = f"--output={site.lab.folder}/jobs/%j.out"
    done = subprocess.run(
        (*as_user, "sbatch", "--parsable", "--chdir=/", output, *options),
        env=site.lab.env,
        input=f"#!/bin/sh\n{script}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(done.stdout)


def test_a_job_is_moved_keeps_its_place_and_ends_in_the_cloud(site: Site) -> None:
    filler = submit(site, "-n4", "--time=60", script="sleep 600")
    site.wait_until("the node is full", lambda: site.lab.job(filler)["JobState"] == "RUNNING")
    for _ in range(20):  # the last look at the cluster may be of before
        job = submit(site, "-n2", "--time=30", script="id -un; sleep 8")
        if site.lab.job(job)["Partition"] == "burst":
            break
        site.lab.run("scancel", str(job))
        time.sleep(1.0)
    shown = site.lab.job(job)
    assert shown["Partition"] == "burst"
    place = ("squeue", "-h", f"--user={USER}", f"--name=place-of-{job}")
    site.wait_until("a placeholder keeps its place", lambda: bool(site.lab.run(*place).stdout.strip()))
    site.wait_until("it has ended", lambda: site.lab.job(job)["JobState"] == "COMPLETED")
    assert site.lab.job(job)["Partition"] == "burst"
    assert (site.lab.folder / "jobs" / f"{job}.out").read_text().strip() == USER
    site.wait_until("its placeholder has gone", lambda: not site.lab.run(*place).stdout.strip())
    site.wait_until(
        "it is in the ledger",
        lambda: (
            f'"job_id": {job}' in json.dumps(json.loads(site.advisor("ledger", "--format", "json").stdout))
        ),
    )


def test_the_doctor_finds_no_fault_with_rights_and_sockets(site: Site) -> None:
    found = json.loads(site.advisor("doctor", "--format", "json", check=False).stdout)["findings"]
    levels = {(one["check"], one["level"]) for one in found}
    for check in ("slurm", "rights", "folders", "submit socket", "control socket", "place helper", "ec2"):
        assert (check, "ok") in levels, check
        assert (check, "error") not in levels, check


def test_everything_that_the_daemons_write_is_theirs(site: Site) -> None:
    owners = {path.owner() for folder in (site.state, site.folder / "run") for path in folder.rglob("*")}
    assert owners == {SERVICE}
    assert not [path for path in (site.state).rglob("*") if path.stat().st_mode & 0o007]
