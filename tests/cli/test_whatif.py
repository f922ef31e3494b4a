"""``advisor whatif`` on a history in a database, and on a log."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor.cli.own_jobs import jobs_of_site
from advisor.config.definitions import by_key
from advisor.history.store import HistoryStore
from advisor.model.errors import BadInput
from advisor.model.job import Job, JobOutcome
from advisor.model.site import CloudState, SiteState
from advisor.replay.closed_loop.site_settings import SHOWN
from advisor.replay.sources import load_table
from advisor.service.exchange import snapshot
from advisor.service.exchange.snapshot import Snapshot
from tests.commands import app

pytestmark = pytest.mark.slow

runner = CliRunner()
MOMENT = "%Y-%m-%dT%H:%M:%S"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,600 jobs that ended lately, every twentieth of them in the cloud."""
    folder = tmp_path_factory.mktemp("site")
    table = load_table("synthetic:1600:8")
    shift = time.time() - float((table.submit + table.wait + table.run).max()) - 60.0
    outcomes = [
        JobOutcome(
            job=Job(
                job_id=row + 1,
                submit_time=float(table.submit[row]) + shift,
                processors=int(table.processors[row]),
                user=f"user{table.user[row]}",
                account=f"account{table.user[row] % 3}",
                queue="burst" if row % 20 == 0 else "main",
                requested_time=float(table.requested_time[row]),
            ),
            start_time=float(table.submit[row] + table.wait[row]) + shift,
            end_time=float(table.submit[row] + table.wait[row] + table.run[row]) + shift,
            partition="burst" if row % 20 == 0 else "main",
        )
        for row in range(len(table))
    ]
    url = f"sqlite:///{folder}/history.db"
    with HistoryStore(url) as store:
        store.add(outcomes)
    config = folder / "advisor.toml"
    config.write_text(
        f'[cluster]\non_premise_partitions = ["main"]\n[paths]\ndatabase_url = "{url}"\n'
        f'state = "{folder}/state"\nrun = "{folder}/run"\n'
    )
    return config


def since(site: Path, jobs: int) -> str:
    """A moment after which so many jobs of the history were submitted."""
    from advisor.cli.context import settings_of

    with HistoryStore(settings_of(site).history_url) as store:
        times = sorted(outcome.job.submit_time for outcome in store.outcomes())
    return time.strftime(MOMENT, time.localtime(times[-jobs]))


def asked(site: Path, *words: str) -> dict[str, Any]:
    """The command's answer."""
    arguments = ["whatif", "--config", str(site), "--processes", "1", "--format", "json", *words]
    found = runner.invoke(app, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


def changed(site: Path, *changes: str, jobs: int = 300) -> dict[str, Any]:
    """The row of the changed settings, under a budget that moves some jobs."""
    words = [word for change in ("budget.usd=400", *changes) for word in ("--set", change)]
    result = asked(site, "--since", since(site, jobs), *words)
    return {row["settings"]: row for row in result["rows"]}["changed"]


def test_settings_side_by_side(site: Path) -> None:
    changes = ("--set", "budget.usd=400", "--set", "rules.deny_accounts=['account1']")
    result = asked(site, "--since", since(site, 300), *changes)
    rows = {row["settings"]: row for row in result["rows"]}
    assert list(rows) == ["all-on-premise", "in force", "changed"]
    assert result["history"] == "history"
    assert 290 <= result["jobs"] <= 300
    assert 12 <= result["cloud_jobs"] <= 17
    assert result["changes"] == {"budget.usd": 400, "rules.deny_accounts": ["account1"]}
    here, usual, other = rows.values()
    assert (here["saved_hours"], here["later_share"], here["moved_jobs"]) == (0.0, 0.0, 0)
    assert (usual["moved_jobs"], usual["cost_usd"], usual["budget_usd"]) == (0, 0.0, 0.0)  # without a budget
    assert other["moved_jobs"] > 0
    assert 0.0 < other["cost_usd"] <= other["budget_usd"] < 400.0
    assert other["saved_hours"] == pytest.approx(
        result["jobs"] * (here["mean_turnaround_seconds"] - other["mean_turnaround_seconds"]) / 3600.0
    )
    assert result["fidelity"]["jobs"] == result["jobs"] - result["cloud_jobs"]
    assert result["notes"] == ["Spot nodes are not simulated: money is at the on-demand price."]


def test_rules_keep_the_jobs_that_they_name(site: Path) -> None:
    usual = changed(site)
    assert 0 < changed(site, "rules.deny_accounts=['account1']")["moved_jobs"] < usual["moved_jobs"]
    assert changed(site, "rules.max_processors=1")["moved_jobs"] < usual["moved_jobs"]
    everyone = "rules.deny_accounts=['account0', 'account1', 'account2']"
    assert changed(site, everyone)["moved_jobs"] == 0


def test_more_money_never_spends_above_it_and_a_fixed_price_needs_none(site: Path) -> None:
    little, much = changed(site, "budget.usd=50"), changed(site, "budget.usd=5000")
    assert little["cost_usd"] <= little["budget_usd"] < much["budget_usd"]
    assert much["moved_jobs"] > little["moved_jobs"]
    dear = changed(site, "budget.usd=0", "budget.usd_per_hour_saved=0.001")
    cheap = changed(site, "budget.usd=0", "budget.usd_per_hour_saved=5.0")
    assert cheap["budget_usd"] is None
    assert cheap["moved_jobs"] > dear["moved_jobs"]


def test_the_boot_time_is_the_one_control_has_seen_until_it_is_changed(site: Path) -> None:
    """A day until a node is up: nothing is worth that here."""
    from advisor.cli.context import settings_of

    settings = settings_of(site)
    cloud = CloudState(boot_seconds=86_400.0, protected="ten boots failed")
    settings.paths.run.mkdir(exist_ok=True)
    snapshot.write(settings.paths.snapshot, Snapshot(state=SiteState(time=1.0, cluster=None, cloud=cloud)))
    try:
        slow = changed(site)
        fast = changed(site, "placement.boot_seconds=60")
    finally:
        settings.paths.snapshot.unlink()
    assert (slow["boot_seconds"], fast["boot_seconds"]) == (86_400.0, 60.0)
    assert slow["moved_jobs"] < fast["moved_jobs"]


def test_jobs_pay_for_whole_nodes_as_live(site: Path) -> None:
    from advisor.cli.context import settings_of

    settings, rows = settings_of(site), []
    settings.paths.run.mkdir(exist_ok=True)
    for processors in (1, 96):
        cloud = CloudState(processors_per_node=processors, on_demand_usd_per_core_hour=0.05)
        state = SiteState(time=1.0, cluster=None, cloud=cloud)
        snapshot.write(settings.paths.snapshot, Snapshot(state=state))
        try:
            rows.append(changed(site, "budget.usd=0", "budget.usd_per_hour_saved=0.5"))
        finally:
            settings.paths.snapshot.unlink()
    small, large = rows
    assert 0 < large["moved_jobs"] < small["moved_jobs"]


def test_slices_are_bought_only_where_the_site_keeps_places(site: Path) -> None:
    """A job that may not be requeued is never stopped, whatever else is set."""
    sliced = changed(site, "hedge.enabled=true")
    whole = changed(site, "hedge.enabled=true", "cluster.requeue_default=false")
    assert whole["moved_jobs"] != sliced["moved_jobs"]
    assert changed(site, "hedge.enabled=false")["moved_jobs"] == whole["moved_jobs"]


def test_a_log_needs_no_site() -> None:
    arguments = ["whatif", "--trace", "synthetic:1300:2", "--since", "2d", "--format", "json"]
    found = runner.invoke(app, [*arguments, "--processes", "1"], catch_exceptions=False)
    result = json.loads(found.stdout)
    assert [row["settings"] for row in result["rows"]] == ["all-on-premise", "in force"]
    assert result["jobs"] > 0
    assert result["changes"] == {}


@pytest.mark.parametrize("policy", ["price", "cunha2017"])
@pytest.mark.parametrize(("cutoff", "moves"), [("0.001", False), ("1e15", True), ("inf", True)])
def test_g17_14_a_limit_on_the_variance_acts_under_each_policy_that_has_one(
    site: Path, policy: str, cutoff: str, *, moves: bool
) -> None:
    row = changed(site, f"cluster.policy={policy}", f"placement.cutoff={cutoff}")
    assert row["policy"] == policy
    assert (row["moved_jobs"] > 0) == moves


def test_for_people(site: Path) -> None:
    arguments = ["whatif", "--config", str(site), "--since", since(site, 60), "--processes", "1"]
    found = runner.invoke(app, [*arguments, "--set", "budget.usd=400"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    for word in (
        "all-on-premise", "in force", "changed", "ran in the cloud", "budget.usd = 400", "mean wait",
        "bounded slowdown", "All on-premise, the mean wait is",
    ):  # fmt: skip
        assert word in found.stdout


def test_settings_of_one_policy_are_shown_under_it(site: Path) -> None:
    changes = ["cluster.policy=ambati2021", "waiting.long_job_seconds=600", "budget.usd=40000"]
    assert changed(site, *changes, "waiting.short_wait_seconds=1", jobs=60)["moved_jobs"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "price.uncertainty_limit=1"], "there is no setting price.uncertainty_limit"),
        (["--set", "placement.cutoff=-1"], "seconds squared"),
        (["--set", "placement.baseline=fast"], "placement.baseline"),
        (["--set", "nonsense"], "is not a change"),
        (["--since", "soon"], "is not a time"),
        (["--since", "1s"], "no finished job"),
        (["--set", "ec2.region=eu-west-1"], "does not know ec2.region"),
        (["--set", "cluster.default_mode=act"], "does not know cluster.default_mode"),
        (["--set", "capacity.use_spot=false"], "does not know capacity.use_spot"),
        (["--set", "placement.cutoff_minutes=9"], "belongs to the policy 'cunha2017'"),
        (["--set", "cluster.policy=deng2013"], "'deng2013' moves no job"),
        (
            ["--set", "cluster.policy=zrigui2022", "--set", "placement.cutoff=1e6"],
            "'zrigui2022' has no limit on a forecast's variance",
        ),
    ],
)
def test_what_is_wrong_or_not_simulated_is_refused_by_name(
    site: Path, arguments: list[str], said: str
) -> None:
    with pytest.raises(BadInput) as caught:
        runner.invoke(app, ["whatif", "--config", str(site), *arguments], catch_exceptions=False)
    assert said in f"{caught.value.what} {caught.value.where} {caught.value.mend}"
    assert caught.value.mend


def test_what_the_world_knows_are_settings() -> None:
    assert set(SHOWN) - {"placement.cutoff"} <= set(by_key())


def test_jobs_keep_what_was_said_of_them(site: Path) -> None:
    from advisor.cli.context import settings_of

    settings = settings_of(site)
    seen = SiteState(time=0.0, cluster=None)
    own = jobs_of_site(settings, seen, 0, lambda _table: 0.0)
    count = len(own.jobs)
    assert {own.job_at(row).queue for row in range(count)} == {"main", None}  # None: ran in the cloud
    assert sum(own.job_at(row).queue is None for row in range(count)) == own.in_cloud
    assert all(own.job_at(row).account for row in range(0, count, 50))
    some = jobs_of_site(settings, seen, 128, lambda table: float(table.submit[-5]))
    assert some.job_at(3).account is None, "only the window's jobs are read whole"
    assert some.job_at(3).user is not None
    assert some.jobs.machine == 128
    assert 0 < own.jobs.machine <= 128


def test_a_history_that_is_shorter_than_asked_is_told(site: Path) -> None:
    assert asked(site, "--since", "1000d")["is_whole_history"] is True
    assert asked(site, "--since", since(site, 60))["is_whole_history"] is False


def test_an_empty_history_is_told(tmp_path: Path) -> None:
    config = tmp_path / "advisor.toml"
    config.write_text(f'[paths]\nstate = "{tmp_path}"\nrun = "{tmp_path}"\n')
    HistoryStore(f"sqlite:///{tmp_path}/history.db").close()
    with pytest.raises(BadInput) as caught:
        runner.invoke(app, ["whatif", "--config", str(config)], catch_exceptions=False)
    assert caught.value.code == "whatif.empty"
    assert "advisor ingest" in caught.value.mend
