"""One truth about money: several jobs share a cloud node of a real Slurm, and every view says the same."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from starlette.testclient import TestClient

from advisor.cli.context import loaded_settings, settings_of
from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions
from advisor.web.app import create_app
from advisor.web.gate import COOKIE
from advisor.web.persons import Person, Role
from advisor.web.site import Site as WebSite
from advisor.web.whatif_runs import WhatIfRuns
from benchmarks.soak_past import write_the_past
from demo.__main__ import _paid
from tests.slurm.steps import moved
from tests.slurm.test_whole_site import LONG, all_completed_once, instances_end

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

CENT: Final = 0.005
DOLLARS_AN_HOUR: Final = 360.0  # a second is ten cents: a share that is wrong cannot hide
ACCOUNTS: Final = ("physics", "law")
_DAY: Final = 86_400.0
_TEST_SECONDS: Final = 300.0


@pytest.fixture
def site(database_template: Path) -> Iterator[Site]:
    lab = LabOptions(
        nodes=1,
        burst_nodes=2,
        burst_processors=4,
        burst_features=("cloud", "x86", "spot"),
        database=True,
        database_template=database_template,
        suspend_seconds=3,
        suspend_timeout_seconds=2,
    )
    settings = {
        "cluster": {"policy": "cunha2017"},
        "placement": {"boot_seconds": 5.0},
        "estimator": {"kernel_width": 5.0, "neighbours": 8},
        "ec2": {"spot_usd_per_hour": DOLLARS_AN_HOUR, "on_demand_usd_per_hour": DOLLARS_AN_HOUR},
        "submit": PATIENT,
    }
    with tempfile.TemporaryDirectory(prefix="money-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=settings, boot_seconds=1.2))
        with site:
            write_the_past(site)
            for account in ACCOUNTS:
                site.lab.run("sacctmgr", "-i", "-Q", "add", "account", account)
                site.lab.run("sacctmgr", "-i", "-Q", "add", "user", "root", f"account={account}")
            site.start_advisor()
            yield site


def asked(site: Site, *arguments: str) -> dict[str, Any]:
    return dict(json.loads(site.advisor(*arguments, "--format", "json").stdout))


def page(client: TestClient, path: str) -> dict[str, Any]:
    found = client.get(path, params={"format": "json"})
    assert found.status_code == 200, found.text
    return dict(found.json())


@pytest.mark.comes_last
def test_day_one_9_and_10_every_view_says_the_same_to_the_cent(site: Site, tmp_path: Path) -> None:
    if time.time() % _DAY > _DAY - _TEST_SECONDS:
        time.sleep(_TEST_SECONDS)  # "today" is to be one day
    jobs = [
        moved(site, LONG, "--ntasks=1", "--account=physics", script="sleep 14"),
        moved(site, LONG, "--ntasks=2", script="sleep 9"),
        moved(site, LONG, "--ntasks=1", "--account=law", script="sleep 5"),
        moved(site, LONG, "--nodes=2", "--ntasks-per-node=1", script="sleep 4"),
    ]
    jobs.append(site.lab.sbatch(LONG, "--partition=burst", "--account=law", script="sleep 2"))
    all_completed_once(site, jobs)
    instances_end(site)
    assert {item["option"] for item in site.ec2.instances()} == {"spot"}
    ids = {job.job_id for job in jobs}

    def is_settled() -> bool:
        rows = {row["job_id"]: row for row in asked(site, "ledger")["rows"]}
        found, status = asked(site, "spend"), asked(site, "status")
        same = abs(found["spent_today_usd"] - status["snapshot"]["cloud"]["spent_usd"]) < CENT
        return ids <= rows.keys() and same and found["promised_usd"] < CENT

    site.wait_until("everything has ended and is accounted for", is_settled)

    spend = asked(site, "spend")
    spent = spend["spent_today_usd"]
    lives = [(item["launched"], item["ended"]) for item in site.ec2.instances()]
    truth = sum(max(60.0, ended - launched) for launched, ended in lives) * DOLLARS_AN_HOUR / 3600.0
    late = 2.0 * len(lives) * DOLLARS_AN_HOUR / 3600.0  # the end is when EC2 was told, or a look later
    assert truth - CENT <= spent <= truth + late

    ledger, report = asked(site, "ledger"), asked(site, "report", "--out", str(tmp_path / "r.html"))
    status = asked(site, "status")["snapshot"]["cloud"]
    config = site.config
    runs = WhatIfRuns(("true",), ())
    web = WebSite(settings_of(config), lambda: loaded_settings(config), runs)
    with TestClient(create_app(web), base_url="http://127.0.0.1:9420") as client:
        client.cookies.set(COOKIE, web.gate.open(Person("root", Role.ADMIN)))
        overview, money, listed = (page(client, path) for path in ("/", "/money", "/ledger"))
        job_pages = {job_id: page(client, f"/jobs/{job_id}") for job_id in ids}
    totals = {
        "spend": spent,
        "spend by day": spend["days"][-1]["usd"],
        "the budget": spend["reckoned_today_usd"],
        "ledger": ledger["money"]["spent_usd"],
        "report": report["money"]["spent_usd"],
        "report by day": report["money"]["days"][-1]["spent_usd"],
        "status": status["spent_usd"],
        "overview": overview["spend"]["spent_today_usd"],
        "money page": money["spent_today_usd"],
        "ledger page": listed["money"]["spent_usd"],
        "demo": _paid(SimpleNamespace(site=site)).spent_usd,
    }
    assert totals == {name: pytest.approx(spent, abs=CENT) for name in totals}

    by_account = {row["account"]: row["spent_today_usd"] for row in spend["by_account"]}
    rows = {row["job_id"]: row["cost_usd"] for row in ledger["rows"] if row["job_id"] in ids}
    assert by_account == {
        name: pytest.approx(usd, abs=CENT) for name, usd in ledger["money"]["by_account"].items()
    }
    assert by_account.keys() >= set(ACCOUNTS), "and the default account of who names none"
    assert by_account["physics"] == pytest.approx(rows[jobs[0].job_id], abs=CENT)
    by_users = rows[jobs[4].job_id]
    assert by_account["law"] == pytest.approx(rows[jobs[2].job_id] + by_users, abs=CENT)
    used = sum(by_account.values()) + spend["no_account_usd"]
    assert sum(rows.values()) == pytest.approx(used, abs=CENT)
    for found in (ledger["summary"], listed["summary"], report):
        assert found["cost_usd"] + found["users_cost_usd"] == pytest.approx(used, abs=CENT)
        assert found["users_cost_usd"] == pytest.approx(by_users, abs=CENT)
    assert used + spend["idle_usd"] == pytest.approx(spent, abs=CENT)
    assert spend["idle_usd"] > 0.0, "they have booted"
    assert {job_id: found["outcome"]["cost_usd"] for job_id, found in job_pages.items()} == rows
    whole_nodes = sum(row["actual_run_seconds"] for row in ledger["rows"] if row["job_id"] in ids)
    assert used < 0.9 * whole_nodes * DOLLARS_AN_HOUR / 3600.0, "they have shared"
    assert status["promised_usd"] == pytest.approx(spend["promised_usd"], abs=CENT)
    words = site.advisor("status").stdout
    assert "spent in the budget's period" in words
    assert "promised" in words
