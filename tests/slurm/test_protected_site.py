"""Forecasts that drift, then ten boots in a row that fail: nothing is sent to the cloud, and why is told."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from advisor.model.drift import DayMeasured
from advisor.service.learn.drift_book import DAY
from advisor.service.state.state_files import DRIFT
from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions
from benchmarks.soak_past import write_the_past
from tests.slurm.steps import moved
from tests.slurm.test_whole_site import LONG

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]


def test_f18_users_see_why_and_their_jobs_run_on_premise(database_template: Path) -> None:
    lab = LabOptions(
        nodes=1,
        burst_nodes=10,
        database=True,
        database_template=database_template,
        suspend_timeout_seconds=2,
        resume_timeout_seconds=5,
    )
    settings = {
        "cluster": {"policy": "cunha2017"},
        "placement": {"boot_seconds": 5.0},
        "estimator": {"kernel_width": 5.0, "neighbours": 8},
        "submit": PATIENT,
    }
    never = 10_000.0
    with tempfile.TemporaryDirectory(prefix="f18-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=settings, boot_seconds=never))
        with site:
            write_the_past(site)
            measured(site, inside=20)
            site.start_advisor()
            drifts_and_comes_back(site)
            for _ in range(10):
                moved(site, LONG, "--ntasks=4")

            def troubles() -> str:
                return "\n".join(json.loads(site.advisor("status", "--format", "json").stdout)["troubles"])

            site.wait_until("protection", lambda: "cloud nodes in a row did not boot" in troubles())
            shown = ""

            def told() -> bool:  # `advisor serve` hears of it with the next snapshot
                nonlocal shown
                job = site.lab.sbatch(LONG)
                shown = site.lab.run("scontrol", "-o", "show", "job", str(job.job_id)).stdout
                return '"why":"capacity.protected"' in shown

            site.wait_until("who submits now is told", told)
            assert "Partition=onprem" in shown
            assert "did not boot" in shown
            site.wait_until("what did not boot is given back", lambda: not running(site))


def measured(site: Site, *, inside: int) -> None:
    """A week in which so many of 40 intervals held each day, as control has measured it."""
    today = int(time.time() // DAY)
    week = [DayMeasured(today - n, 40, inside) for n in reversed(range(7))]
    file = DRIFT.at(site.state)
    known = file.read()
    known.days["onprem"] = week
    for name, before in known.fallen_back.items():  # it has been so for days: only later ones can end it
        known.fallen_back[name] = replace(before, since_day=today - 4)
    file.write(known)


def drifts_and_comes_back(site: Site) -> None:
    """A week of forecasts that did not hold keeps every job here; when they hold, jobs move again."""

    def why() -> str:
        job = site.lab.sbatch("--hold", LONG, "--ntasks=4").job_id
        said = site.advisor("why", str(job), "--format", "json", check=False).stdout
        site.lab.run("scancel", str(job))
        return said

    site.wait_until("jobs stay", lambda: "rule.fallen_back" in why())
    troubles = json.loads(site.advisor("status", "--format", "json").stdout)["troubles"]
    assert any("onprem stay on-premise" in one for one in troubles)
    site.control.stop()
    measured(site, inside=36)
    site.control.start()
    site.wait_until("forecasts hold", lambda: "turnaround." in why())


def running(site: Site) -> list[str]:
    return [item["id"] for item in site.ec2.instances() if item["state"] == "running"]
