"""Classes of several instance types on a real Slurm: stock-outs, quotas, and jobs of several nodes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
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


BLOCK_MINUTES = 45


def reservation(name: str, **more: Any) -> dict[str, Any]:
    """A targeted capacity reservation of one GPU node."""
    return {
        "CapacityReservationId": name,
        "InstanceType": "g5.xlarge",
        "AvailabilityZone": "us-east-1b",
        "TotalInstanceCount": 1,
        "InstanceMatchCriteria": "targeted",
        "Tags": [{"Key": "advisor:cluster", "Value": "lab"}],
        **more,
    }


def a_block() -> dict[str, Any]:
    """A capacity block that EC2 begins to clear in 45 minutes."""
    end = datetime.now(UTC) + timedelta(minutes=BLOCK_MINUTES + 30)
    return {"ReservationType": "capacity-block", "EndDate": end.isoformat()}


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
            site.ec2.reservations([reservation("cr-01"), reservation("cr-b0", **a_block())])
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
    (made,) = (item for item in launched(site, before) if item["type"] == "g5.xlarge")
    # its node is said to be never spot; what is paid for is used first, and what ends soon before the rest
    assert (made["option"], made["reservation"]) == ("capacity-block", "cr-b0")
    why = " ".join(site.advisor("why", str(jobs[0].job_id)).stdout.split())
    assert "already paid for" in why
    assert "class gpu" in why


def test_no_job_runs_past_the_end_of_a_capacity_block(site: Site, tmp_path: Path) -> None:
    """The second one would fit on the idle node of the block, but not into the time that is left of it."""
    before, go = len(site.ec2.instances()), tmp_path / "go"
    first = moved(site, LONG, "--gpus=1", script=f"while [ ! -e {go} ]; do sleep 0.2; done")
    site.wait_until("the first job runs", lambda: site.lab.job(first.job_id)["JobState"] == "RUNNING")
    ends = site.lab.run("scontrol", "--oneliner", "show", "reservations").stdout
    assert "ReservationName=advisor_end_cr-b0" in ends
    assert "Nodes=burst5" in ends
    second = moved(site, "--time=60", "--gpus=2", script="true")
    go.touch()
    all_completed_once(site, [first, second])
    made = [item["reservation"] for item in launched(site, before) if item["type"] == "g5.xlarge"]
    assert made == ["cr-b0", "cr-01"]
    rows = json.loads(site.advisor("pools", "--format", "json").stdout)["paid"]
    assert {row["name"]: (row["kind"], row["total"]) for row in rows} == {
        "cr-b0": ("capacity block", 1),
        "cr-01": ("capacity reservation", 1),
    }
    assert "paid already: capacity block cr-b0 of g5.xlarge us-east-1b" in " ".join(
        site.advisor("pools").stdout.split()
    )
