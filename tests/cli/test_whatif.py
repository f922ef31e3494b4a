"""``advisor whatif`` on a history in a database, and on a log."""

from __future__ import annotations

import io
import json
import math
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from advisor.cli.main import app
from advisor.cli.whatif import _draw
from advisor.history.store import HistoryStore
from advisor.model import BadInput, CloudState, Job, JobOutcome, SiteState
from advisor.model.settings import Settings
from advisor.replay.own_history import jobs_of_store
from advisor.replay.sources import load_table
from advisor.service.admin.whatif_words import whatif_table
from advisor.service.exchange import snapshot
from advisor.service.exchange.snapshot import Snapshot

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
        f'[cluster]\npolicy = "advisor"\non_premise_partitions = ["main"]\n[paths]\ndatabase_url = "{url}"\n'
        f'state = "{folder}/state"\nrun = "{folder}/run"\n'
    )
    return config


def since(site: Path, jobs: int) -> str:
    """A moment after which so many jobs of the history were submitted."""
    from advisor.cli.context import settings_of

    with HistoryStore(settings_of(site).paths.history_url) as store:
        times = sorted(outcome.job.submit_time for outcome in store.outcomes())
    return time.strftime(MOMENT, time.localtime(times[-jobs]))


def test_settings_side_by_side(site: Path) -> None:
    arguments = ["whatif", "--config", str(site), "--since", since(site, 300), "--format", "json"]
    changes = ["--set", "rules.deny_accounts=['account1']", "--set", "waiting.daily_cap_usd=0.01"]
    found = runner.invoke(app, [*arguments, *changes], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    rows = {row["settings"]: row for row in result["rows"]}
    assert list(rows) == ["in force", "changed", "clairvoyant"]
    assert result["history"] == "history"
    assert 280 <= result["jobs"] + result["left_out_cloud_jobs"] <= 300
    assert 12 <= result["left_out_cloud_jobs"] <= 17
    assert sum(rows["in force"]["reasons"].values()) == result["jobs"]
    assert rows["changed"]["reasons"]["rule.account_denied"] > 0
    assert rows["changed"]["cost_usd"] < rows["in force"]["cost_usd"]
    assert rows["clairvoyant"]["cost_usd"] is None
    assert rows["clairvoyant"]["saved_seconds"] >= rows["in force"]["saved_seconds"]
    assert result["changes"] == {"rules.deny_accounts": ["account1"], "waiting.daily_cap_usd": 0.01}


def test_for_people_and_by_the_published_rule(site: Path) -> None:
    arguments = ["whatif", "--config", str(site), "--since", since(site, 60)]
    found = runner.invoke(app, [*arguments, "--set", "placement.rule=published"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    for word in ("in force", "changed", "clairvoyant", "ran in the cloud", "placement.rule = published"):
        assert word in found.stdout


def test_day_one_11_the_command_says_what_the_page_says() -> None:
    """It rounded to nothing: "hours saved 2, turnaround 0.00 h, USD 2" was 2 h 05 min, 12 s, 4.86 USD."""
    row = {
        "settings": "in force",
        "cloud_jobs": 7,
        "hedged_jobs": 0,
        "slower_jobs": 1,
        "saved_seconds": 7500.0,
        "fraction_of_optimal": 0.5,
        "mean_turnaround_seconds": 12.0,
        "cost_usd": 4.86,
        "dearest_day_usd": 1234.5,
    }
    best = row | {"settings": "clairvoyant", "cost_usd": math.nan, "dearest_day_usd": None}
    headings, cells = whatif_table([row, best])
    assert dict(zip(headings, cells[0], strict=True)) == {
        "settings": "in force",
        "moved": "7",
        "slower": "1",
        "turnaround saved": "2 h 05 min",
        "of the best": "50%",
        "mean turnaround": "12 s",
        "cost, USD": "4.86",
        "dearest day, USD": "1,234.50",
    }
    assert cells[1][2:] == ("-", "2 h 05 min", "50%", "12 s", "-", "-")
    result = {
        "since": 0.0,
        "asked_since": 0.0,
        "jobs": 7,
        "history": "history",
        "changes": {},
        "left_out_cloud_jobs": 0,
    }
    console = Console(width=80, file=io.StringIO())
    _draw(console, result | {"rows": [row | {"reasons": {}}, best | {"reasons": {}}]})
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(cell in shown for cell in cells[0])
    assert max(map(len, shown.splitlines())) <= 80


def test_the_boot_time_is_the_one_control_has_seen(site: Path) -> None:
    """A day until a node is up: nothing is worth that here."""
    from advisor.cli.context import settings_of

    settings = settings_of(site)
    cloud = CloudState(boot_seconds=86_400.0, protected="ten boots failed")
    settings.paths.run.mkdir(exist_ok=True)
    snapshot.write(settings.paths.snapshot, Snapshot(state=SiteState(time=1.0, cluster=None, cloud=cloud)))
    try:
        arguments = ["whatif", "--config", str(site), "--since", since(site, 100), "--format", "json"]
        found = runner.invoke(app, arguments, catch_exceptions=False)
    finally:
        settings.paths.snapshot.unlink()
    rows = {row["settings"]: row for row in json.loads(found.stdout)["rows"]}
    assert rows["in force"]["cloud_jobs"] == rows["clairvoyant"]["cloud_jobs"] == 0
    assert "capacity.protected" not in rows["in force"]["reasons"]


def test_a_log_needs_no_site() -> None:
    arguments = ["whatif", "--trace", "synthetic:1300:2", "--since", "2d", "--format", "json"]
    found = runner.invoke(app, arguments, catch_exceptions=False)
    result = json.loads(found.stdout)
    assert [row["settings"] for row in result["rows"]] == ["in force", "clairvoyant"]
    assert result["jobs"] > 0
    assert result["changes"] == {}


@pytest.mark.parametrize("rule", ["published", "advisor"])
@pytest.mark.parametrize(
    ("limit", "moves"),
    [
        ("placement.uncertainty_limit_minutes=0.001", False),
        ("placement.uncertainty_limit_minutes=inf", True),
        ("placement.cutoff=0.001", False),
        ("placement.cutoff=1e15", True),
    ],
)
def test_g17_14_an_uncertainty_limit_acts_whatever_the_rule(
    site: Path, rule: str, limit: str, *, moves: bool
) -> None:
    arguments = ["whatif", "--config", str(site), "--since", since(site, 60), "--format", "json"]
    changes = ["--set", limit, "--set", f"placement.rule={rule}"]
    found = runner.invoke(app, [*arguments, *changes], catch_exceptions=False)
    result = json.loads(found.stdout)
    rows = {row["settings"]: row for row in result["rows"]}
    assert (rows["changed"]["cloud_jobs"] > 0) == moves
    assert moves or rows["changed"]["reasons"]["turnaround.too_uncertain"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "placement.cutof_minutes=1"], "there is no setting placement.cutof_minutes"),
        (["--set", "placement.cutoff_scale=1e9"], "It is placement.cutoff_minutes now"),
        (["--set", "placement.cutoff=-1"], "seconds squared"),
        (["--set", "placement.baseline=fast"], "placement.baseline"),
        (["--set", "nonsense"], "is not a change"),
        (["--since", "soon"], "is not a time"),
        (["--since", "1s"], "no finished on-premise job"),
    ],
)
def test_what_is_wrong_is_said(site: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        runner.invoke(app, ["whatif", "--config", str(site), *arguments], catch_exceptions=False)
    assert said in f"{caught.value.what} {caught.value.where} {caught.value.mend}"


def test_jobs_keep_what_was_said_of_them(site: Path) -> None:
    from advisor.cli.context import settings_of

    settings = settings_of(site)
    with HistoryStore(settings.paths.history_url) as store:
        own = jobs_of_store(store, settings, 0.0)
        some = jobs_of_store(store, Settings(), time.time(), processors=99)
    assert {own.job_at(row).queue for row in range(0, len(own.table), 50)} == {"main"}
    assert all(own.job_at(row).account for row in range(0, len(own.table), 50))
    assert some.job_at(3).account is None, "only the window's jobs are read whole"
    assert some.job_at(3).user is not None
    assert some.table.total_processors == 99
    assert 0 < own.table.total_processors <= 128


def test_day_one_12_a_young_history_is_judged_from_its_first_forecasts_on(site: Path) -> None:
    """By default 30 days are asked for; all jobs of this site are younger, and the first 1,000 only teach."""
    from advisor.cli.context import settings_of

    found = json.loads(runner.invoke(app, ["whatif", "--config", str(site), "--format", "json"]).stdout)
    assert found["asked_since"] < found["since"]
    assert found["jobs"] > 0
    with HistoryStore(settings_of(site).paths.history_url) as store:
        before = [one for one in store.outcomes() if one.job.submit_time < found["since"]]
    assert 1000 <= len(before) < 1100
    text = " ".join(runner.invoke(app, ["whatif", "--config", str(site)]).stdout.split())
    assert "as requested: too few jobs had ended for forecasts" in text
    assert "turnaround saved" in text


def test_day_one_12_too_few_jobs_at_all_are_told_with_their_number(tmp_path: Path) -> None:
    config = tmp_path / "advisor.toml"
    config.write_text(f'[paths]\nstate = "{tmp_path}"\nrun = "{tmp_path}"\n')
    HistoryStore(f"sqlite:///{tmp_path}/history.db").close()
    with pytest.raises(BadInput) as caught:
        runner.invoke(app, ["whatif", "--config", str(config)], catch_exceptions=False)
    assert caught.value.code == "whatif.short"
    assert "0 finished jobs are known" in caught.value.what
