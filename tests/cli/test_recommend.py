"""``advisor recommend`` on a small history: the curve, the pick, what is written and what is refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor.history.store import HistoryStore
from advisor.model.errors import BadInput
from advisor.model.job import Job, JobOutcome
from advisor.service.admin.curves import kept, path_of
from tests.commands import app

pytestmark = pytest.mark.slow

DAY = 86_400.0
BEGIN = 1.7e9


def outcome(number: int, submit: float, wait: float, run: float, partition: str = "main") -> JobOutcome:
    job = Job(
        job_id=number, submit_time=submit, processors=2, user="alice", queue=partition, requested_time=7200.0
    )
    return JobOutcome(job=job, start_time=submit + wait, end_time=submit + wait + run, partition=partition)


def site(folder: Path, days: int) -> Path:
    """Each day ten pairs of jobs of an hour on two processors, the second waits, and one job in the cloud."""
    url = f"sqlite:///{folder}/history.db"
    jobs = [
        outcome(20 * day + turn + 1, BEGIN + day * DAY + turn // 2 * 8000.0, turn % 2 * 3600.0, 3600.0)
        for day in range(days)
        for turn in range(20)
    ]
    jobs += [
        outcome(100_000 + day, BEGIN + day * DAY + 1.0, 120.0, 3600.0 * 1.02, "burst") for day in range(days)
    ]
    with HistoryStore(url) as store:
        store.add(jobs)
    config = folder / "advisor.toml"
    config.write_text(
        '# ours\n[cluster]\non_premise_partitions = ["main"]\n[paths]\n'
        f'database_url = "{url}"\nstate = "{folder}/state"\nrun = "{folder}/run"\n'
    )
    return config


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return site(tmp_path_factory.mktemp("site"), 35)


def recommended(config: Path, *words: str) -> str:
    arguments = ["recommend", "--config", str(config), "--processes", "1", *words]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_curve_pick_and_fidelity(config: Path) -> None:
    before = config.read_text()
    result: dict[str, Any] = json.loads(recommended(config, "--format", "json"))
    assert result["jobs"] == 35 * 21  # those that ran in the cloud, too
    assert result["processors"] == 2
    assert result["weeks"] == 5
    assert [one["usd"] for one in result["points"]] == sorted(one["usd"] for one in result["points"])
    assert result["pick"]["usd"] in [0.0, *(one["usd"] for one in result["points"])]
    assert all(one["cost_usd"] <= one["usd"] for one in result["points"])
    assert result["fidelity"]["mean_wait_ratio"] == pytest.approx(1.0)  # of those that ran on-premise
    assert result["fidelity"]["jobs"] == 700
    assert result["written"] is None
    assert config.read_text() == before


def test_curves_are_kept_for_the_page_tune(config: Path) -> None:
    state = config.parent / "state"
    state.mkdir()
    result = json.loads(recommended(config, "--keep", "--format", "json"))
    assert result["kept"] == str(path_of(state))
    curves = kept(state)
    assert curves is not None
    assert (curves.jobs, curves.weeks, curves.begin) == (result["jobs"], result["weeks"], result["begin"])
    assert [one.limit_minutes for one in curves.curves] == [None, 120.0, 60.0, 30.0, 15.0]
    # the curve under the limit in force is the one that is printed; the lowest limit keeps jobs that gain
    widest, *_, narrowest = (one.points for one in curves.curves)
    assert [(one.usd, one.saved_hours) for one in widest] == [
        (one["usd"], pytest.approx(one["saved_hours"])) for one in result["points"]
    ]
    assert 0.0 < narrowest[-1].saved_hours < widest[-1].saved_hours


def test_for_people_in_ten_lines_below_the_table(config: Path) -> None:
    lines = recommended(config, "--usd", "50").splitlines()
    assert sum(line.startswith("50 USD a month: ") for line in lines) == 1
    assert "It is the budget that was asked for." in lines
    assert lines[-1] == "To write it: advisor recommend --usd 50 --write"
    assert len(lines) <= 1 + 1 + 7 + 10


def test_it_is_written_and_the_comments_stay(tmp_path: Path) -> None:
    config = site(tmp_path, 35)
    text = recommended(config, "--usd", "50", "--write")
    assert "budget.usd = 50.0 (was 0.0)" in text
    assert "systemctl reload" in text
    assert tomllib.loads(config.read_text())["budget"] == {"usd": 50.0, "period": "month"}
    assert config.read_text().startswith("# ours\n")


def test_accounts_keep_the_period_of_their_money(tmp_path: Path) -> None:
    config = site(tmp_path, 35)
    before = '[budget]\nusd = 10.0\nperiod = "day"\naccounts = { chem = 3.0 }\nusers = { ann = 9.0 }\n'
    config.write_text(config.read_text() + before + 'user_period = "week"\n')
    recommended(config, "--usd", "50", "--write")
    assert tomllib.loads(config.read_text())["budget"] == {
        "usd": 50.0,
        "period": "month",
        "accounts": {"chem": 3.0},
        "account_period": "day",
        "users": {"ann": 9.0},
        "user_period": "week",
    }


def test_a_period_that_was_set_during_the_rehearsal_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "advisor.toml"
    config.write_text(
        f'[paths]\nstate = "{tmp_path}/state"\n[budget]\nperiod = "day"\naccounts = {{ chem = 3.0 }}\n'
    )

    def rehearsed(*_: object, **__: object) -> dict[str, Any]:
        config.write_text(config.read_text() + 'account_period = "week"\n')
        return {"pick": {"usd": 50.0}}

    monkeypatch.setattr("advisor.cli.recommend._recommended", rehearsed)
    recommended(config, "--write", "--format", "json")
    assert tomllib.loads(config.read_text())["budget"]["account_period"] == "week"


def test_too_little_history_says_how_much_is_needed(tmp_path: Path) -> None:
    arguments = ["recommend", "--config", str(site(tmp_path, 10))]
    with pytest.raises(BadInput, match="500 jobs of 28 days"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
