"""A job that names a time: it waits here, starts in the cloud when it has to, and is done by then.

Its data is brought to the cloud before; where that fails it is back, unchanged. It keeps its place here, and
comes back when its turn comes in time.
"""

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

PROMISING: dict[str, dict[str, Any]] = {
    "cluster": {"policy": "price"},
    # an hour may cost next to nothing: no job moves for its wait alone
    "budget": {"usd": 600.0, "period": "day", "usd_per_hour_saved": 0.000001},
    "placement": {"boot_seconds": 30.0},
    "promise": {"enabled": True},
    "hedge": {"enabled": True},
    "submit": PATIENT,
}
"""Settings of a site that keeps promises."""


@pytest.fixture
def site(database_template: Path) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="promise-") as name:
        folder = Path(name)
        lab = LabOptions(
            nodes=1,
            burst_nodes=2,
            burst_features=("cloud", "on-demand"),  # never spot
            database=True,
            database_template=database_template,
            suspend_seconds=5,
            prolog=folder / "programs" / "prolog_slurmctld",
        )
        stage_in = folder / "stage-in"
        stage_in.write_text(
            f'#!/bin/sh\necho "$SLURM_JOB_ID $SLURM_JOB_COMMENT" >> {folder}/staged\n'
            'case "$SLURM_JOB_COMMENT" in *data=3GB*) exit 1;; esac\n'
        )
        stage_in.chmod(0o755)
        data = {"stage_in": str(stage_in), "bandwidth_mb_per_second": 1000.0}
        settings = {**PROMISING, "data": data}
        programs = f"stage_in = {stage_in}\n"
        site = Site(folder, SiteOptions(lab=lab, settings=settings, boot_seconds=1.2, programs=programs))
        with site:
            site.start_advisor()
            yield site


def status(site: Site) -> dict[str, Any]:
    control: dict[str, Any] = json.loads(site.advisor("status", "--format", "json").stdout)["control"]
    return control


def wait_for_why(site: Site, job_id: int, words: str) -> None:
    """Wait until `advisor why` says so: the ledger has an advice some seconds after its job has moved."""

    def is_said() -> bool:
        return words in " ".join(site.advisor("why", str(job_id)).stdout.split())

    site.wait_until(f"`advisor why {job_id}` says {words!r}", is_said, seconds=60.0)


def filled(site: Site) -> int:
    """Wait until waits and run times are known, and fill the cluster; the job that fills it."""
    lab = site.lab
    site.wait_until("there is a price", lambda: (status(site)["price"] or {}).get("seconds_per_usd"))

    def is_known() -> bool:
        asked = lab.sbatch("--hold", "-n4", "--time=1", "--comment=by=+2h")
        lab.run("scancel", str(asked.job_id))
        return "free, in 95 of 100 cases" in asked.message

    site.wait_until("waits and run times are known", is_known)
    blocker = lab.sbatch("-n4", "--time=30", script="sleep 1000").job_id
    site.wait_until("the cluster is full", lambda: lab.job(blocker)["JobState"] == "RUNNING")
    return blocker


def test_a_job_comes_back_when_its_turn_comes_in_time(site: Site) -> None:
    lab, blocker = site.lab, filled(site)
    script = "[ $SLURM_JOB_PARTITION = burst ] && sleep 110; sleep 1"
    began = time.time()
    job_id = lab.sbatch("-n4", "--time=2", "--comment=by=+2.9min", script=script).job_id

    def runs_there() -> bool:
        job = lab.job(job_id)
        return (job["JobState"], job["Partition"]) == ("RUNNING", "burst")

    site.wait_until("it runs in the cloud", runs_there)
    wait_for_why(site, job_id, "when its slot is free, and the time is kept here as well")
    kept = f"place-of-{job_id}"
    site.wait_until("its place is kept", lambda: kept in lab.run("squeue", "-h", "-o", "%j").stdout)
    lab.run("scancel", str(blocker))
    site.wait_until("it is done", lambda: lab.job(job_id)["JobState"] == "COMPLETED")
    assert time.time() < began + 2.9 * 60.0 + 10.0
    assert (lab.job(job_id)["Partition"], lab.job(job_id)["Restarts"]) == ("onprem", "1")
    site.wait_until("the kept promise is counted", lambda: status(site)["promises"]["made"] == 1)
    assert status(site)["promises"]["kept"] == 1


def test_a_job_is_done_by_the_time_that_it_names(site: Site) -> None:
    lab = site.lab
    filled(site)
    began = time.time()
    plain = lab.sbatch("-n4", "--time=1", script="sleep 3").job_id
    named = lab.sbatch("-n4", "--time=1", "--comment=by=+100min", script="sleep 3")
    urgent = lab.sbatch("-n4", "--time=1", "--comment=by=+1.9min,data=2GB", script="sleep 3")
    # may not be requeued, and is all the same when its data does not come
    without = lab.sbatch("-n4", "--time=1", "--comment=by=+1.9min,data=3GB", "--no-requeue", script="sleep 3")
    # users read a price list at once
    assert "free, in 95 of 100 cases" in named.message
    assert "is promised" in urgent.message
    assert " USD; by " in urgent.message
    assert lab.job(urgent.job_id)["Partition"] == "onprem"
    site.wait_until("it is done", lambda: lab.job(urgent.job_id)["JobState"] == "COMPLETED")
    job = lab.job(urgent.job_id)
    assert job["Partition"] == "burst"
    assert time.time() < began + 1.9 * 60.0 + 10.0
    wait_for_why(site, urgent.job_id, "promise.goes")
    assert f"{urgent.job_id} by=+1.9min,data=2GB" in (site.folder / "staged").read_text()

    def is_back() -> bool:
        job = lab.job(without.job_id)
        return (job["JobState"], job["Partition"], job["Requeue"]) == ("PENDING", "onprem", "0")

    site.wait_until("the job without its data is back", is_back)
    assert int(lab.job(without.job_id)["Restarts"]) == 1  # it has been there
    # a time that is far off costs nothing yet, and a job without one waits
    for waiting in (plain, named.job_id):
        assert (lab.job(waiting)["JobState"], lab.job(waiting)["Partition"]) == ("PENDING", "onprem")
    site.wait_until("the kept promise is counted", lambda: status(site)["promises"]["made"] == 1)
    assert status(site)["promises"]["kept"] == 1
