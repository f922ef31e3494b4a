"""advisor nodes, pools, spend: what the control process wrote, for people and machines; nobody is asked."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from advisor.ec2.account import Account, Reservation
from advisor.ec2.errors import FailureClass
from advisor.ec2.pools import Pool, Target, UnavailablePools
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.advice import Capacity, Placement
from advisor.model.bill import NodeUse, PaidTime, bill, midnight
from advisor.model.errors import BadInput
from advisor.model.job import JobOutcome
from advisor.service.admin.cloud_written import predicted_against_billed
from advisor.service.admin.money import spend_view
from advisor.service.cloud.cloud_metrics import CloudCollector
from advisor.service.cloud.cloud_report import CloudReport
from advisor.service.exchange import status_file
from advisor.service.stability.feature import stability_columns
from advisor.service.state.budget_records import LaunchRequest, limits_of
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.service.state.state_files import CLOSED_POOLS, INTERRUPTIONS
from tests.commands import app
from tests.decide.cases import ask, make_estimates, make_job, make_settings
from tests.service.cloud.rig import EMPTY_POOL, Rig
from tests.service.doubles import POOL, make_instance, make_node, make_queued

TODAY = bill(
    [PaidTime(instance_id="i-1", node="burst1", since=0.0, until=3600.0, usd_per_hour=3.0)],
    [
        NodeUse(job_id=1, node="burst1", start=0.0, end=1200.0, processors=1.0, account="physics"),
        NodeUse(job_id=2, node="burst1", start=1200.0, end=1800.0, processors=1.0),
    ],
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "advisor.toml"
    path.write_text(f'[paths]\nstate = "{tmp_path}"\nrun = "{tmp_path}"\n')
    return path


@pytest.fixture
def report(tmp_path: Path) -> CloudReport:
    """A site with two nodes, one of them about to be taken back, an empty pool and some money spent."""
    rig = Rig(tmp_path)
    rig.fleet.refusals = {"burst9": EMPTY_POOL}
    rig.hand_over("resume", "burst[1-2,9]")
    rig.look()
    rig.provision.act_on_handovers()
    rig.fleet.listed = [
        make_instance("burst1", launch_time=rig.hands.wall),
        make_instance("burst2", option=Capacity.ON_DEMAND, launch_time=rig.hands.wall),
        make_instance("burst3", state="terminated"),
    ]
    rig.hands.pass_by(3600.0)
    rig.look(
        [
            make_node("burst1", "MIXED", "DRAIN"),
            make_node("burst2"),
            make_node("burst3", "IDLE", "POWERED_DOWN"),
        ],
        [make_queued(7, "RUNNING", nodes="burst1", account="physics")],
        others=False,
    )
    rig.provision.watch_boots()
    rig.reconcile.read_instances()
    rig.reconcile.count_money()
    rig.cloud.budget.promise(
        [LaunchRequest(node="burst4", account="", usd=1.0, usd_per_hour=1.0)], limits_of(rig.settings)
    )
    breakers = UnavailablePools(CLOSED_POOLS.at(tmp_path), rig.hands.clock.wall)
    breakers.mark_unavailable(
        Pool(option=Capacity.SPOT, instance_type="c5.xlarge"), EMPTY_POOL.kind, EMPTY_POOL.code
    )
    target = Target(reservation_id="cr-1", zone="us-east-1a")
    full = Pool(option=Capacity.RESERVED, instance_type="c5.xlarge", target=target)
    breakers.mark_unavailable(full, FailureClass.QUOTA, "InstanceLimitExceeded")
    reservation = Reservation(reservation_id="cr-1", instance_type="c5.xlarge", zone="us-east-1a", total=2)
    record = InterruptionRecord(INTERRUPTIONS.at(tmp_path))
    record.interrupted([7], "i-burst3")
    return CloudReport(
        dataclasses.replace(
            rig.context, interruptions=record, account=lambda: Account(reservations=(reservation,))
        ),
        provision=rig.provision,
        reconcile=rig.reconcile,
        breakers=breakers,
        describe_node=lambda node: stability_columns(None, node),
        today=lambda: TODAY,
    )


@pytest.fixture
def written(tmp_path: Path, config: Path, report: CloudReport) -> Path:
    status_file.write(
        tmp_path, {"time": time.time(), "cloud_configured": True, "cloud_report": report.everything()}
    )
    return config


def call(config: Path, *arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*arguments, "--config", str(config), "--format", "json"])
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(app, [*arguments, "--config", str(config)])
    assert shown.exit_code == 0, shown.output
    return dict(json.loads(done.stdout)) | {"text": shown.stdout}


def test_nodes(written: Path) -> None:
    result = call(written, "nodes")
    assert [row["node"] for row in result["nodes"]] == ["burst1", "burst2"]
    first = result["nodes"][0]
    assert (first["instance_id"], first["capacity"], first["jobs"]) == ("i-burst1", "spot", [7])
    assert (first["age_seconds"], first["usd_per_hour"]) == (3600.0, 1.0)
    assert "i-burst1" in result["text"]


def test_a_stopped_instance_costs_nothing_by_the_hour(
    report: CloudReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = make_instance("burst1", state="stopped")
    monkeypatch.setattr(report._reconcile, "last_listed", (stopped,))
    (row,) = (row for row in report.nodes() if row["instance_id"])
    assert (row["instance_state"], row["usd_per_hour"]) == ("stopped", 0.0)


def test_pools(written: Path) -> None:
    result = call(written, "pools")
    rows = {row["capacity"]: row for row in result["pools"]}
    spot = rows["spot"]
    assert (spot["pool"], spot["open"], spot["instances"], spot["launches"]) == (POOL.key, False, 1, 2)
    assert spot["closed_by"] == "InsufficientInstanceCapacity"
    assert (spot["boots"], spot["boot_median_seconds"]) == (2, 3600.0)
    assert rows["on-demand"]["open"]
    closed = {row["pool"]: row["closed_by"] for row in result["pools"] if row["capacity"] == "reserved"}
    assert closed == {
        "reserved|c5.xlarge|default|cr-1": "InstanceLimitExceeded",
        "reserved|c5.xlarge|default": None,
    }
    assert result["counters"]["refusals"] == {"InsufficientInstanceCapacity": 1}
    assert result["counters"]["interruptions"] == {"jobs_interrupted": 1}
    assert "unavailable for" in result["text"]


def test_day_one_10_spend(written: Path, tmp_path: Path) -> None:
    with HistoryStore(f"sqlite:///{tmp_path}/history.db") as store:
        begin = midnight(time.time())
        for node, price in (("burst1", 1.0), ("burst2", 2.0)):
            piece = {"instance_id": node, "node": node, "since": begin, "until": begin + 3600.0}
            store.add_paid([PaidTime(usd_per_hour=price, **piece)])
        shared = {"node": "burst1", "start": begin, "end": begin + 1800.0, "processors": 1.0}
        store.add_uses([NodeUse(job_id=7, account="physics", **shared), NodeUse(job_id=8, **shared)])
    result = call(written, "spend")
    assert result["spent_today_usd"] == 3.0
    assert [(row["account"], row["spent_today_usd"]) for row in result["by_account"]] == [
        ("physics", pytest.approx(0.25))
    ]
    assert result["no_account_usd"] == pytest.approx(0.25), "not idle time"
    assert result["idle_usd"] == pytest.approx(2.5)
    assert result["promised_usd"] > 1.0, "and not in what was spent"
    assert result["days"][-1]["usd"] == 3.0
    lines = [line.split() for line in result["text"].splitlines()]
    for row in (
        ["physics", "0.25"],
        ["no", "account", "0.25"],
        ["idle", "time", "2.50"],
        ["together", "3.00"],
    ):
        assert any(line[: len(row)] == row for line in lines), result["text"]
    assert result["reckoned_today_usd"] == pytest.approx(3.0)
    assert "Budgets use" not in result["text"]
    assert result["jobs"] == {"jobs": 0, "predicted_usd": 0.0, "billed_usd": 0.0}
    assert "physics" in result["text"]


def test_the_tasks_of_an_array_share_the_predicted_cost_of_the_whole(tmp_path: Path) -> None:
    now = time.time()
    job = make_job(submit_time=now - 900.0, array_tasks=4)
    advice = msgspec.structs.replace(ask(job), advice_id="a", time=now - 900.0)
    whole = advice.number("predicted_cost")
    assert advice.placement == Placement.BURST
    assert whole is not None
    with HistoryStore(f"sqlite:///{tmp_path}/history.db") as store:
        store.add_advice([AdviceRecord(advice=advice, job=job, estimates=make_estimates())])
        for job_id in (11, 12, 13):  # the fourth one runs
            store.link("a", job_id)
            task = msgspec.structs.replace(job, job_id=job_id, array_tasks=1)
            store.add([JobOutcome(job=task, start_time=now - 800.0, end_time=now - 100.0)])
        store.set_costs({11: 0.5, 12: 0.25, 13: 0.25})
        found = predicted_against_billed(store, now - 1000.0)
    assert found == {"jobs": 3, "predicted_usd": pytest.approx(0.75 * whole), "billed_usd": 1.0}


def test_an_account_with_a_budget_of_nothing_has_one(tmp_path: Path) -> None:
    spend = {"account_budgets_usd": {"chem": 0.0, "*": 5.0}, "promised_by_account": {"bio": 1.0}}
    status_file.write(tmp_path, {"time": time.time(), "cloud_report": {"spend": spend}})
    settings = make_settings(paths={"run": tmp_path})
    with HistoryStore(f"sqlite:///{tmp_path}/history.db") as store:
        rows = spend_view(settings, store, time.time())["by_account"]
    assert {row["account"]: row["budget_usd"] for row in rows} == {"*": 5.0, "bio": 5.0, "chem": 0.0}


def test_what_the_site_may_spend_has_what_was_carried_over(tmp_path: Path) -> None:
    """It said that 120 of 100 USD were spent."""
    spend = {"budget_usd": 100.0, "budgets": [{"payer": "", "usd": 100.0, "carried": 50.0}]}
    status_file.write(tmp_path, {"time": time.time(), "cloud_report": {"spend": spend}})
    settings = make_settings(paths={"run": tmp_path})
    with HistoryStore(f"sqlite:///{tmp_path}/history.db") as store:
        assert spend_view(settings, store, time.time())["budget_usd"] == 150.0


def test_day_one_19_without_a_control_process_or_a_cloud_it_says_so(tmp_path: Path, config: Path) -> None:
    for command, empty in (
        ("nodes", "nodes"),
        ("pools", "pools"),
        ("spend", None),
    ):  # a fresh site is no error
        done = CliRunner().invoke(app, [command, "--config", str(config)])
        assert done.exit_code == 0, done.exception
        assert "advisor control has not run yet" in done.output
        done = CliRunner().invoke(app, [command, "--config", str(config), "--format", "json"])
        assert json.loads(done.output)["age_seconds"] is None
        assert empty is None or json.loads(done.output)[empty] == []
    status_file.write(tmp_path, {"time": time.time(), "cloud_configured": False, "cloud_report": None})
    done = CliRunner().invoke(app, ["pools", "--config", str(config)])
    assert isinstance(done.exception, BadInput)
    assert "ec2.image_id" in str(done.exception)


def test_the_metric_of_the_budget_counts_what_was_carried_over(
    report: CloudReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alert says that 80 % are spent: of all that may be."""
    budgets = [{"payer": "", "usd": 100.0, "carried": 40.0}, {"payer": "chem", "usd": 9.0, "carried": 0.0}]
    rich = {**report.spend(), "budget_usd": 100.0, "budgets": budgets}
    monkeypatch.setattr(report, "spend", lambda: rich)
    shown = {
        metric.name: metric.samples[0].value for metric in CloudCollector(report).collect() if metric.samples
    }
    assert shown["advisor_budget_usd"] == 140.0


def test_metrics_of_every_pool_launch_boot_interruption_orphan_and_dollar(report: CloudReport) -> None:
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in CloudCollector(report).collect()
        for sample in metric.samples
    }
    assert found["advisor_pool_open", POOL.key] == 0.0
    assert found["advisor_pool_launches_total", POOL.key] == 2.0
    assert found["advisor_pool_instances", POOL.key] == 1.0
    assert found["advisor_pool_boot_median_seconds", POOL.key] == 3600.0
    assert found["advisor_launch_refused_total", "InsufficientInstanceCapacity"] == 1.0
    assert found["advisor_boots_total", "succeeded"] == 2.0
    assert found["advisor_interruptions_total", "jobs_interrupted"] == 1.0
    assert found["advisor_orphans_collected_total",] == 0.0
    assert found["advisor_spent_today_usd", "account", "physics"] == pytest.approx(1.0)
    assert found["advisor_spent_today_usd", "no_account", ""] == pytest.approx(0.5)
    assert found["advisor_spent_today_usd", "idle", ""] == pytest.approx(1.5)
    assert found["advisor_budget_usd",] == 0.0
    assert found["advisor_promised_usd",] > 1.0
