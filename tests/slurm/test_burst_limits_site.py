"""A burst partition with limits of its own on a real slurmctld: no sbatch is refused, and no job is stuck."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions
from tests.slurm.steps import cancel_all, moved

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

LIMITS = (
    "flags=DenyOnLimit",
    "MaxWall=30",
    "MaxTRES=cpu=3",
    "MinTRES=cpu=2",
    "MaxSubmitJobsPerUser=4",
    "MaxTRESMins=cpu=80",
    "MaxTRESRunMinsPU=cpu=75",
)
OF_LAB = [("-n2", "--time=30", "--account=lab")] * 2


def test_jobs_over_a_limit_of_the_burst_partition_stay(database_template: Path) -> None:
    lab = LabOptions(
        nodes=1,
        burst_nodes=1,
        database=True,
        database_template=database_template,
        extra=("AccountingStorageEnforce=associations,limits,qos",),
    )
    settings = {
        "cluster": {"policy": "price"},
        "budget": {"usd": 5_000_000.0, "period": "day", "usd_per_hour_saved": 10_000.0},
        "placement": {"boot_seconds": 5.0},
        "submit": PATIENT,
    }
    with tempfile.TemporaryDirectory(prefix="qos-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=settings))
        with site:
            _limits_hold(site)


def _limits_hold(site: Site) -> None:
    lab = site.lab
    lab.run("sacctmgr", "-i", "add", "qos", "there")
    lab.run("sacctmgr", "-i", "modify", "qos", "there", "set", *LIMITS)
    lab.run("scontrol", "update", "PartitionName=burst", "QOS=there")
    lab.run("sacctmgr", "-i", "add", "user", "root", "account=lab", "partition=burst")
    of_root = ("user", "root", "where", "account=lab", "partition=burst")
    lab.run("sacctmgr", "-i", "modify", *of_root, "set", "MaxSubmitJobs=1")
    lab.sbatch("-n4", "--time=600", script="sleep 900")
    site.start_advisor()
    first = moved(site, "-n2", "--time=30", release=False).job_id
    asked = [
        ("-n2", "--time=31"),
        ("-n4", "--time=30"),
        ("-n1", "--time=30"),
        ("-n3", "--time=30"),
        ("-n3", "--time=26"),
        *OF_LAB,
        *[("-n2", "--time=30")] * 4,
    ]
    jobs = [lab.sbatch("--hold", *options).job_id for options in asked]  # none is refused
    places = [lab.job(job)["Partition"] for job in jobs]
    # the association lets one in, and all together are four
    assert places == ["onprem"] * 5 + ["burst", "onprem"] + ["burst"] * 2 + ["onprem"] * 2
    site.wait_until(
        "the ledger says why", lambda: "rule.burst_limits" in site.advisor("why", str(jobs[0])).stdout
    )
    # and one that a limit set since keeps there goes home
    lab.run("sacctmgr", "-i", "modify", "qos", "there", "set", "flags=-1", "MaxWall=10")
    lab.run("scontrol", "release", str(first))
    site.wait_until("it is back", lambda: lab.job(first)["Partition"] == "onprem")
    cancel_all(lab)
