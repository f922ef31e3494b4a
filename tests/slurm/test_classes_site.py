"""Classes of several instance types on a real Slurm: stock-outs, quotas, and jobs of several nodes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions
from benchmarks.soak_past import write_the_past
from tests.slurm.steps import cancel_all, moved
from tests.slurm.test_whole_site import LONG, all_completed_once, instances_end

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

TYPES = ["c5.xlarge", "m5.xlarge", "r5.xlarge"]


@pytest.fixture(scope="module")
def site(database_template: Path) -> Iterator[Site]:
    lab = LabOptions(
        nodes=1,
        burst_nodes=5,
        burst_features=("mid", "cloud", "spot"),
        last_burst_features=("gpu", "cloud", "on-demand"),
        last_burst_gpus=2,
        database=True,
        database_template=database_template,
        suspend_seconds=3,
        suspend_timeout_seconds=2,
    )
    mid = {
        "nodes": "burst[1-4]",
        "instance_types": TYPES,
        "cores": 4,
        "memory_mb": 4000,
        "on_demand_usd_per_hour": 0.3,
    }
    gpu = {
        **mid,
        "nodes": "burst5",
        "instance_types": ["g5.xlarge"],
        "on_demand_usd_per_hour": 1.0,
        "gpus": 2,
    }
    settings = {
        "rules": {"move_gpu": True},
        "cluster": {"policy": "cunha2017"},
        "placement": {"boot_seconds": 5.0},
        "estimator": {"kernel_width": 5.0, "neighbours": 8},
        "submit": PATIENT,
        "ec2": {"classes": {"mid": mid, "gpu": gpu}},
    }
    with tempfile.TemporaryDirectory(prefix="classes-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=settings, boot_seconds=1.2))
        with site:
            write_the_past(site)
            site.start_advisor()
            yield site


@pytest.fixture(autouse=True)
def _empty(site: Site) -> None:
    cancel_all(site.lab)
    instances_end(site)


def launched(site: Site, since: int) -> list[dict[str, Any]]:
    return site.ec2.instances()[since:]


def test_a_stock_out_of_the_first_two_types_costs_a_job_one_launch_round(site: Site) -> None:
    site.ec2.capacity({"c5.xlarge|*|*": 0, "m5.xlarge|*|*": 0})
    before = len(site.ec2.instances())
    job = moved(site, LONG, script="true")
    assert "class mid" in " ".join(site.advisor("why", str(job.job_id)).stdout.split())
    all_completed_once(site, [job])
    assert site.lab.job(job.job_id)["Restarts"] == "0"  # no node was given back for want of capacity
    (made,) = launched(site, before)
    assert (made["type"], made["option"]) == ("r5.xlarge", "spot")
    assert made["tags"]["advisor:node"].startswith("burst")


def test_a_job_of_four_nodes_sits_in_one_zone(site: Site) -> None:
    site.ec2.capacity({f"{kind}|*|*": 0 for kind in TYPES})
    for zone in ("us-east-1a", "us-east-1b"):
        site.ec2.capacity({f"r5.xlarge|{zone}|spot": 3, f"r5.xlarge|{zone}|on-demand": 3})
    site.ec2.capacity({"r5.xlarge|us-east-1c|on-demand": 4})
    before = len(site.ec2.instances())
    job = moved(site, LONG, "--nodes=4", "--ntasks-per-node=1", script="true")
    all_completed_once(site, [job])
    made = launched(site, before)
    assert {(item["zone"], item["option"]) for item in made} == {("us-east-1c", "on-demand")}
    assert len(made) == 4  # nothing was launched that the job could not use


def test_a_gpu_job_runs_on_a_gpu_node_and_no_other_job_does(site: Site) -> None:
    site.ec2.capacity({f"{kind}|*|*": None for kind in TYPES})
    before = len(site.ec2.instances())
    jobs = [
        moved(site, LONG, *gpus, script="true")
        for gpus in (("--gres=gpu:2",), ("--gpus=1",), ("--ntasks=2",))
    ]
    all_completed_once(site, jobs)
    where = [site.lab.job(job.job_id)["BatchHost"] for job in jobs]
    assert where[:2] == ["burst5", "burst5"]
    assert where[2] != "burst5"
    made = {item["type"]: item["option"] for item in launched(site, before)}
    assert made.pop("g5.xlarge") == "on-demand"  # its node is said to be never spot
    assert "class gpu" in " ".join(site.advisor("why", str(jobs[0].job_id)).stdout.split())
