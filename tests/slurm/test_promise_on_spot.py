"""A promised job on spot: EC2 takes its instance back, and it is done in time on-demand."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from advisor.service.state.records import EndedLife, Lives
from advisor.service.state.state_files import LIVES
from advisor.testing.lab import LabOptions
from advisor.testing.site import Site, SiteOptions
from tests.ec2.test_prices import product, spot_row
from tests.slurm.test_promised_job import PROMISING, filled, status, wait_for_why

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

MINUTES = 3.0


@pytest.fixture
def site(database_template: Path) -> Iterator[Site]:
    """A site whose spot instances have lasted a month, and prices of EC2's own."""
    lab = LabOptions(
        nodes=1,
        burst_nodes=2,
        database=True,
        database_template=database_template,
        suspend_seconds=3,
        suspend_timeout_seconds=2,
    )
    with tempfile.TemporaryDirectory(prefix="onspot-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=PROMISING, boot_seconds=1.2))
        with site:
            now, month = time.time(), 30 * 86_400.0
            lives = [EndedLife("spot|c5.xlarge|default", now - month, now - 60.0, False) for _ in range(40)]
            LIVES.at(site.state).write(Lives(ended=lives))
            hour_ago = datetime.fromtimestamp(now - 3600.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            site.ec2.history([{**spot_row("us-east-1a", "0.0500", 15), "Timestamp": hour_ago}])
            site.ec2.products([product("0.1700000000")])
            site.start_advisor()
            yield site


def test_a_job_whose_spot_instance_is_lost_is_done_by_its_time_on_demand(site: Site) -> None:
    lab = site.lab
    filled(site)
    began = time.time()
    script = "[ ${SLURM_RESTART_COUNT:-0} = 0 ] && sleep 600; sleep 1"
    job_id = lab.sbatch("-n4", "--time=1", f"--comment=by=+{MINUTES:g}min", script=script).job_id

    def runs_there() -> bool:
        job = lab.job(job_id)
        return (job["JobState"], job["Partition"]) == ("RUNNING", "burst")

    site.wait_until("it runs in the cloud", runs_there)
    wait_for_why(site, job_id, "begins anew on-demand")
    (instance,) = [item for item in site.ec2.instances() if item["state"] == "running"]
    assert instance["option"] == "spot"
    site.wait_until("the advisor has seen it", lambda: instance["id"] in nodes(site))
    site.ec2.take_back(instance["id"])
    site.wait_until("it is done", lambda: lab.job(job_id)["JobState"] == "COMPLETED")
    assert time.time() < began + 60.0 * MINUTES + 10.0
    job = lab.job(job_id)
    assert (job["Partition"], job["Restarts"]) == ("burst", "1")
    assert [item["option"] for item in site.ec2.instances()] == ["spot", "on-demand"]
    site.wait_until("the kept promise is counted", lambda: status(site)["promises"]["made"] == 1)
    assert status(site)["promises"]["kept"] == 1


def nodes(site: Site) -> list[str]:
    rows = json.loads(site.advisor("nodes", "--format", "json").stdout)["nodes"]
    return [row["instance_id"] for row in rows]
