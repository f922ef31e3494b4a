"""A site with a history, a snapshot and a status, and a client that asks for its pages."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from advisor.cli.context import loaded_settings, settings_of
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.drift import DayMeasured, FallenBack, Measure
from advisor.model.job import JobOutcome
from advisor.service.exchange import snapshot, status_file
from advisor.service.state.records import Drift
from advisor.service.state.state_files import DRIFT
from advisor.web.app import create_app
from advisor.web.gate import COOKIE
from advisor.web.persons import Person, Role
from advisor.web.site import Site
from advisor.web.whatif_runs import WhatIfRuns
from tests.decide.cases import ask, make_estimates, make_job, make_settings
from tests.service.site import make_snapshot

HOSTILE = "<script>alert(1)</script>\x1b[31m"
COMMAND = (sys.executable, "-P", "-c", "from advisor.cli.main import run; run()")
ADDRESS = "http://127.0.0.1:9420"

ADMIN = Person("root", Role.ADMIN)

Ask = Callable[[Path], TestClient]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Settings of a site where nothing has run yet."""
    config = tmp_path / "advisor.toml"
    for name in ("run", "state"):
        (tmp_path / name).mkdir()
    config.write_text(
        f'[cluster]\nname = "c1"\non_premise_partitions = ["main"]\n[loops]\nmetrics_port = 0\n'
        f'[paths]\nstate = "{tmp_path}/state"\nrun = "{tmp_path}/run"\n'
    )
    return config


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pieces of advice, the first and the second with jobs that have ended; one job without any."""
    path, now = tmp_path_factory.mktemp("history") / "history.db", float(int(time.time())) - 600.0
    shadow = make_settings(cluster={"default_mode": "shadow"})
    given = [(11, ask()), (12, ask(make_job(comment="no-burst"))), (13, ask(settings=shadow))]
    with HistoryStore(f"sqlite:///{path}") as store:
        for number, (job_id, advice) in enumerate(given):
            at, advice_id = now + number, f"advice-{job_id}"
            user = HOSTILE if job_id == 11 else "ann"
            job = make_job(submit_time=at, user=user, name=HOSTILE, account=HOSTILE, comment=HOSTILE)
            named = replace(advice, advice_id=advice_id, time=at)
            store.add_advice([AdviceRecord(advice=named, job=job, estimates=make_estimates())])
            store.link(advice_id, job_id)
            if job_id != 13:
                ran = JobOutcome(job=replace(job, job_id=job_id), start_time=at + 130.0, end_time=at + 190.0)
                store.add([ran])
        store.set_costs({11: 1.25})
        old = make_job(job_id=7, submit_time=now - 500.0, user=HOSTILE)
        store.add([JobOutcome(job=old, start_time=now - 400.0, end_time=now - 100.0)])
    return path


@pytest.fixture
def config(empty: Path, history: Path) -> Path:
    """Settings of a site with a history, where `advisor control` runs."""
    run = empty.parent / "run"
    shutil.copy(history, empty.parent / "state")
    snapshot.write(run / "snapshot.msgpack", make_snapshot(time.time(), spent_usd=3.0))
    status_file.write(run, status())
    DRIFT.at(empty.parent / "state").write(drifted(int(time.time() // 86_400.0)))
    return empty


def drifted(today: int) -> Drift:
    """`main` holds, `long` has fallen back."""
    week = range(today - 6, today + 1)
    return Drift(
        days={
            "main": [DayMeasured(day, 100, 91, 20, 7200.0, 6120.0) for day in week],
            "long": [DayMeasured(day, 50, 20) for day in week],
            HOSTILE: [DayMeasured(today, 1, 1)],
        },
        fallen_back={"long": FallenBack(today, Measure.COVERAGE, 0.4, 0.75)},
    )


def status() -> dict[str, object]:
    """What `advisor control` writes, with hostile words where they come from outside."""
    node = {
        "node": "burst1",
        "power": "up",
        "jobs": [11],
        "instance_id": "i-1",
        "instance_state": "running",
        "capacity": "spot",
        "zone": HOSTILE,
        "age_seconds": 60.0,
        "usd_per_hour": 0.07,
        "notices": {"rebalance": 1.0},
        "tier": "steady",
        "survival_probability": 0.9,
        "survival_horizon_seconds": 3600.0,
        "retiring": False,
    }
    pool = {
        "pool": "spot c5.xlarge",
        "open": False,
        "closed_until": time.time() + 60.0,
        "closed_by": HOSTILE,
        "instances": 1,
        "launches": 2,
        "boots": 0,
        "boot_median_seconds": None,
        "boot_p90_seconds": None,
        "usd_per_hour": 0.07,
    }
    accounts = [{"account": HOSTILE, "spent_today_usd": 1.0, "budget_usd": None}]
    spend = {
        "spent_today_usd": 3.0,
        "promised_usd": 1.0,
        "budget_usd": 9.0,
        "budget_period": "day",
        "spent_usd": 3.0,
        "by_account": accounts,
        "idle_usd": 2.0,
        "days": [{"day": "2026-11-21", "usd": 3.0, "by_account": {HOSTILE: 1.0}}],
    }
    report = {
        "nodes": [node],
        "pools": [pool],
        "spend": spend,
        "counters": {"refusals": {HOSTILE: 1}},
        "protected": HOSTILE,
    }
    failure = {"message": HOSTILE, "code": "slurm.denied"}
    return {
        "time": time.time(),
        "cloud_configured": True,
        "knowledge_base_jobs": 3,
        "cloud_report": report,
        "loops": {"watch": {"open_failures": {"requeue": failure}}},
    }


@pytest.fixture
def ask_site() -> Iterator[Ask]:
    """Clients of sites by their settings file."""
    opened: list[TestClient] = []

    def make(config: Path) -> TestClient:
        # not behind other tests: on a busy machine it would wait for them all
        runs = WhatIfRuns(COMMAND, (f"--config={config}",), niceness=0)
        site = Site(settings_of(config), lambda: loaded_settings(config), runs)
        client = TestClient(create_app(site), base_url=ADDRESS, follow_redirects=False)
        client.cookies.set(COOKIE, site.gate.open(ADMIN))
        client.site = site  # type: ignore[attr-defined]
        client.__enter__()
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.__exit__()


@pytest.fixture
def client(config: Path, ask_site: Ask) -> TestClient:
    """Of the site with a history."""
    return ask_site(config)
