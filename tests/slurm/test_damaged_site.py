"""The controller's own disk is damaged, and machines are started, ended and paid for all the same.

A real slurmctld and the emulator; `advisor control` is killed and finds the damage when it is started again.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.testing.lab import LabOptions
from advisor.testing.site import Site, SiteOptions

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]


@pytest.fixture
def site() -> Iterator[Site]:
    lab = LabOptions(nodes=1, burst_nodes=2, suspend_seconds=3, suspend_timeout_seconds=2)
    settings = {"budget": {"usd": 50.0, "period": "day"}, "placement": {"boot_seconds": 5.0}}
    with tempfile.TemporaryDirectory(prefix="ill-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=settings, boot_seconds=1.2))
        with site:
            site.start_advisor()
            yield site


def burst_job(site: Site, seconds: float, limit: int = 2) -> int:
    options = ("--partition=burst", f"--time={limit}")
    return site.lab.sbatch(*options, script=f"sleep {seconds}").job_id


def state(site: Site, job: int) -> str:
    return site.lab.job(job)["JobState"]


def alive(site: Site) -> list[str]:
    return [item["id"] for item in site.ec2.instances() if item["state"] == "running"]


def status(site: Site) -> dict[str, Any]:
    return dict(json.loads(site.advisor("status", "--format", "json").stdout))


def ends_and_is_given_back(site: Site, job: int) -> None:
    site.wait_until("the job has ended", lambda: state(site, job) == "COMPLETED")
    site.wait_until("its instance is given back", lambda: not alive(site))


def test_d3_ill_entries_of_the_hand_over_folder_stop_no_node(site: Site) -> None:
    folder = site.state / "handover"
    (folder / "0.json").mkdir()
    (folder / "1.json").symlink_to("/nonexistent")
    os.mkfifo(folder / "2.json")
    ends_and_is_given_back(site, burst_job(site, 1.0))
    assert sorted(path.name for path in folder.glob("*.bad")) == ["0.json.bad", "1.json.bad", "2.json.bad"]
    assert site.control.log.read_text().count("handover.set_aside") == 3


def test_d4_a_damaged_history_keeps_no_machine_running(site: Site) -> None:
    job = burst_job(site, 3.0)
    site.wait_until("it runs", lambda: state(site, job) == "RUNNING")
    site.control.kill()
    for name in ("history.db-wal", "history.db-shm"):
        (site.state / name).unlink(missing_ok=True)
    (site.state / "history.db").write_bytes(b"garbage" * 10_000)
    site.control.start()
    ends_and_is_given_back(site, job)
    ends_and_is_given_back(site, burst_job(site, 1.0))

    def problem() -> str | None:
        found: str | None = status(site)["control"]["history_problem"]
        return found

    site.wait_until("it is told", lambda: "not an SQLite database" in (problem() or ""))
    (site.state / "history.db").rename(site.state / "history.db.damaged")
    site.wait_until("it learns again", lambda: problem() is None)


def test_d5_a_damaged_budget_forgets_nothing(site: Site) -> None:
    budget, copy = site.state / "budget.json", site.state / "budget.json.old"
    site.wait_until("it has counted", budget.exists)
    site.control.stop()
    content = json.loads(budget.read_text())
    today = datetime.now(UTC).date()
    days = (today, today + timedelta(days=1))  # midnight may pass
    content["days"] = {day.isoformat(): {"": 49.999} for day in days}
    budget.write_text(json.dumps(content))
    site.control.start()

    def is_copied() -> bool:
        return copy.exists() and json.loads(copy.read_text())["days"].keys() >= content["days"].keys()

    site.wait_until("it has counted and written twice", is_copied)
    site.control.kill()
    budget.write_bytes(budget.read_bytes()[:40])
    site.control.start()
    launched = len(site.ec2.instances())
    job = burst_job(site, 1.0, limit=60)

    def refused() -> bool:
        return (
            "budget: 50.00 USD of 50.00 for today"
            in site.lab.run("scontrol", "-o", "show", "node", "burst[1-2]").stdout
        )

    site.wait_until("the node's Reason names the budget", refused)
    assert len(site.ec2.instances()) == launched

    def spend() -> dict[str, Any]:
        return dict(status(site)["control"]["cloud_report"]["spend"])

    site.wait_until("it is told", lambda: spend()["rebuilt_today"] == "budget.json was damaged")
    assert spend()["spent_today_usd"] >= 49.999
    assert len((site.state / "budget.json.bad").read_bytes()) == 40
    site.lab.run("scancel", str(job))
