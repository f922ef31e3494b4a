"""Jobs of many shapes on a site whose machine is full: who can start in the cloud moves, all others stay.

slurmctld refuses a submission that could never start in the partition to which the hook sends it, so each of
these is one that a user would have lost.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions
from tests.slurm.steps import cancel_all, moved

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

# The cloud has three nodes of 4 processors and 4000 MiB, and one with 2 GPUs; its partition gives a job that
# asks for no memory 1500 MiB for each processor, and no job more than three nodes.
LITTLE = "--mem-per-cpu=100"
MOVE = (
    ("-n1",),
    ("--mem=3000",),
    ("-n4",),  # two nodes, for their memory
    ("-N3", LITTLE),
    ("-n4", "-N1", LITTLE),
    ("-n12", LITTLE),
    ("-n3", "-c3", LITTLE),
    ("-n3", "--ntasks-per-node=1"),
    ("-n2", "--ntasks-per-node=2", LITTLE),
    ("-N1-3", LITTLE),
    ("-n3", "--spread-job", LITTLE),
    ("--exclusive", LITTLE),
    ("--prefer=cloud",),
    ("--exclude=onprem1",),
    ("--hint=nomultithread", "-n2", LITTLE),
    ("--array=1-4%2",),
    ("--no-requeue", "--constraint=cloud&gpu"),
    ("--contiguous", "-N2", LITTLE),
    ("--switches=1", "-N2", LITTLE),
    ("--constraint=[cloud*2]", "-N2", LITTLE),
    ("--qos=brief",),  # a minute at most: a limit that is raised before the job runs is refused
)
STAY = (
    ("--mem=0",),  # all memory of a node is 16000 MiB here
    ("--mem=5000",),
    ("-n8",),
    ("-n4", "-N1"),
    ("-N4",),
    ("-N2-4", LITTLE),
    ("-n4", "--spread-job", LITTLE),  # slurmctld makes -N1-4 of it
    ("-n4", "-c3", LITTLE),  # 12 processors, of which a node has three for one task
    ("-n4", "--ntasks-per-node=1"),
    ("--exclusive",),
    ("--exclusive", "-n3"),
    ("--prefer=onprem",),
    ("--exclude=burst[1-3]",),
    ("--hint=nomultithread", "-n4", "-N1", LITTLE),
    ("--constraint=onprem",),
    ("--nodelist=onprem1",),
    ("--dependency=singleton",),
    ("--reboot",),
    ("--account=away",),  # whose association is for the partition onprem alone
)
PREEMPTING = ("PreemptType=preempt/qos", "PreemptMode=REQUEUE")
BRIEF = ("set", "MaxWall=1", "flags=DenyOnLimit")


@pytest.fixture(scope="module")
def site(database_template: Path) -> Iterator[Site]:
    lab = LabOptions(
        nodes=5,
        processors=16,
        memory_mb=16_000,
        burst_nodes=4,
        burst_features=("cloud", "spot"),
        last_burst_features=("cloud", "gpu", "on-demand"),
        last_burst_gpus=2,
        database=True,
        database_template=database_template,
        suspend_seconds=30,
        suspend_timeout_seconds=2,
        extra=("AccountingStorageEnforce=associations,limits,qos", *PREEMPTING),
    )
    mid = {
        "nodes": "burst[1-3]",
        "instance_types": ["c5.xlarge"],
        "cores": 4,
        "memory_mb": 4000,
        "on_demand_usd_per_hour": 0.17,
    }
    gpu = {**mid, "nodes": "burst4", "instance_types": ["g5.xlarge"], "gpus": 2}
    settings = {
        "cluster": {"policy": "price"},
        "rules": {"move_gpu": True},
        "budget": {"usd": 5_000_000.0, "period": "day", "usd_per_hour_saved": 10_000.0},
        "placement": {"boot_seconds": 5.0},
        "submit": PATIENT,
        "ec2": {"classes": {"mid": mid, "gpu": gpu}},
    }
    with tempfile.TemporaryDirectory(prefix="shapes-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=settings, boot_seconds=1.2))
        with site:
            terms = ("DefMemPerCPU=1500", "MaxNodes=3", "DefaultTime=7")
            site.lab.run("scontrol", "update", "PartitionName=burst", *terms)
            for said in (
                ("add", "qos", "brief", *BRIEF),
                ("modify", "qos", "urgent", "set", "preempt=normal"),
                ("add", "account", "away"),
                ("add", "user", "root", "account=away", "partition=onprem"),
                ("modify", "user", "root", "set", "qos+=brief,urgent"),
            ):
                site.lab.run("sacctmgr", "-i", *said)
            begun = site.lab.sbatch("-N5", "--exclusive", "--time=600", script="sleep 900").job_id
            site.wait_until("the machine is full", lambda: site.lab.job(begun)["JobState"] == "RUNNING")
            site.start_advisor()
            yield site
            cancel_all(site.lab)


def test_each_job_starts_where_it_is_put_and_none_is_refused(site: Site) -> None:
    lab = site.lab
    first = moved(site, "--time=1", script="true")  # the price is known now
    unlimited = lab.sbatch(script="true").job_id
    moves = {lab.sbatch("--time=1", *asked, script="true").job_id: asked for asked in MOVE}
    stays = {lab.sbatch("--time=1", *asked, script="true").job_id: asked for asked in STAY}
    shown = {job: lab.job(job) for job in (*moves, *stays, unlimited)}
    assert [asked for job, asked in moves.items() if shown[job]["Partition"] != "burst"] == []
    assert [asked for job, asked in stays.items() if shown[job]["Partition"] != "onprem"] == []
    # its user gave no limit: it keeps that of the partition from which it has moved
    assert (shown[unlimited]["Partition"], shown[unlimited]["TimeLimit"]) == ("burst", "01:00:00")
    ran = (first.job_id, unlimited, *moves)
    ended = lab.wait_for_jobs(ran)  # tasks of the array have ids of their own
    assert {ended[job] for job in ran} == {"COMPLETED"}
    stayed = {job: lab.job(job) for job in stays}
    assert {job["JobState"] for job in stayed.values()} == {"PENDING"}
    # nor have the loops moved one since, by what squeue shows of it
    assert [stays[job] for job, now in stayed.items() if now["Partition"] != "onprem"] == []


@pytest.mark.comes_last
def test_a_job_that_may_preempt_others_starts_here(site: Site) -> None:
    """It ends the job that fills the machine; to a forecast it would wait for hours."""
    lab = site.lab
    moved(site, "--time=1", script="true")
    (filler,) = lab.run("squeue", "-h", "-t", "R", "-p", "onprem", "-o", "%A").stdout.split()
    urgent = lab.sbatch("-n16", "--qos=urgent", "--time=1", script="true").job_id
    assert lab.job(urgent)["Partition"] == "onprem"
    assert lab.wait_for_jobs([urgent]) == {urgent: "COMPLETED"}
    assert lab.job(int(filler))["Restarts"] == "1"
