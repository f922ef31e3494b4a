"""`advisor budget`: all budgets with what is left of them, and how one is set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor.config import load
from advisor.model.errors import BadInput
from advisor.model.periods import period_span
from advisor.service.admin.budgets_view import budget_table, budget_words, budgets_view
from advisor.service.exchange import status_file
from tests.commands import app
from tests.decide.cases import make_settings

DAY = 86_400.0
NOW = 1_790_000_000.0 - 1_790_000_000.0 % DAY + DAY / 2
BUDGET = {"usd": 300.0, "period": "14d", "users": {"ann": 20.0}, "user_period": "day"}


def of(payer: str, **changes: Any) -> dict[str, Any]:
    begin, end = period_span(NOW, changes.get("period", "14d"))
    usual = {
        "usd": 300.0,
        "carried": 0.0,
        "spent": 60.0,
        "promised": 15.0,
        "period": "14d",
        "spent_week": 60.0,
    }
    return {"payer": payer, "begin": begin, "end": end, **usual, **changes}


def view(tmp_path: Path, *budgets: dict[str, Any], price: Any = None, **more: Any) -> dict[str, Any]:
    settings = make_settings(budget=BUDGET, paths={"run": tmp_path})
    spend = {"budgets": budgets, "began": NOW - 30 * DAY, "in_doubt": None, **more}
    found = price or {"usd_per_hour": 0.4, "unknown": None}
    status_file.write(
        settings.paths.published, {"time": NOW - 5.0, "cloud_report": {"spend": spend}, "price": found}
    )
    return budgets_view(settings, NOW)


def test_money_that_is_left_and_may_not_be_committed_yet_is_told(tmp_path: Path) -> None:
    """`advisor why` says of the same moment that the budget has 12 USD."""
    price = {"usd_per_hour": 0.4, "unknown": None, "tokens_usd": 12.0}
    said = " ".join(budget_words(view(tmp_path, of(""), price=price)))
    assert "12.00 USD of what is left to the site may be committed now" in said
    said = " ".join(budget_words(view(tmp_path, of(""), price={**price, "tokens_usd": 225.0})))
    assert "may be committed now" not in said


def test_what_is_left_and_the_forecast_of_the_last_week(tmp_path: Path) -> None:
    found = view(tmp_path, of(""), of("user ann", usd=20.0, period="day", spent=5.0, promised=15.0))
    site, ann = found["budgets"]
    assert site["left"] == 225.0
    days = (site["end"] - NOW) / DAY
    assert site["forecast"] == pytest.approx(60.0 + days * 60.0 / 6.5)
    assert (ann["left"], ann["forecast"]) == (0.0, 20.0)
    assert found["not_applied"] == []
    _, cells = budget_table(found)
    assert cells[0][:3] == ("the site", "these 14 days", "300.00")
    assert cells[1][:2] == ("user ann", "today")
    said = " ".join(budget_words(found))
    assert "an hour that it saves costs 0.40 USD at most" in said
    assert "The jobs of user ann stay on-premise: nothing is left until the next day begins." in said


def test_no_more_than_the_budget_is_forecast_and_young_sites_are_reckoned_by_their_days(
    tmp_path: Path,
) -> None:
    found = view(tmp_path, of("", carried=10.0, spent_week=290.0, spent=290.0), began=NOW - DAY)
    assert found["budgets"][0]["forecast"] == 310.0
    found = view(tmp_path, of("", spent=1.0, promised=0.0, spent_week=1.0), began=NOW - 2 * DAY)
    assert found["budgets"][0]["forecast"] == pytest.approx(
        1.0 + (found["budgets"][0]["end"] - NOW) / DAY / 2
    )


def test_a_forecast_is_never_less_than_what_is_spent_and_promised_already(tmp_path: Path) -> None:
    found = view(tmp_path, of("", usd=100.0, spent=120.0, promised=5.0))  # it was lowered
    assert found["budgets"][0]["forecast"] == 125.0


def test_what_control_has_not_read_yet_and_what_it_does_not_know_is_said(tmp_path: Path) -> None:
    price = {"usd_per_hour": None, "unknown": "budget.json was damaged"}
    found = view(tmp_path, of("", usd=200.0), of("chem"), price=price, in_doubt="budget.json was damaged")
    assert found["not_applied"] == ["the site", "account chem", "user ann"]
    said = " ".join(budget_words(found))
    assert "No job moves by a price: budget.json was damaged." in said
    assert "nothing is launched" in said
    assert "systemctl reload" in said


def test_a_budget_is_set_and_removed_in_the_file_that_keeps_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "advisor.toml"
    path.write_text(
        "[budget]\nusd = 100.0  # from the dean\n[budget.accounts]\nchem = 5.0  # a trial\nbio = 2.0\n"
    )

    def run(*arguments: str) -> dict[str, Any]:
        command = ["budget", "set", *arguments, "--config", str(path), "--format", "json"]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    found = run("250", "--period", "quarter from 2026-09-28", "--carry-over")
    assert {row["key"]: (row["before"], row["written"]) for row in found["settings"]} == {
        "budget.usd": (100.0, 250.0),
        "budget.period": ("month", "quarter from 2026-09-28"),
        "budget.carry_over": (False, True),
    }
    assert found["to_take_effect"] == ["systemctl reload advisor-serve advisor-control"]
    assert "usd = 100.0" in Path(found["former"]).read_text()
    run("7.5", "--account", "bio", "--period", "week")
    run("3", "--user", "*")
    run("--remove", "--account", "phys")
    budget = load(path, {}).settings.budget
    assert (budget.usd, budget.carry_over) == (250.0, True)
    assert (budget.accounts, budget.account_period) == ({"chem": 5.0, "bio": 7.5}, "week")
    assert budget.users == {"*": 3.0}
    assert "# from the dean" in path.read_text()
    assert "chem = 5.0  # a trial" in path.read_text()
    run("--remove", "--account", "bio")
    assert load(path, {}).settings.budget.accounts == {"chem": 5.0}


def test_an_account_is_the_same_however_it_is_typed(tmp_path: Path) -> None:
    """Slurm has all accounts in lower case, and the settings follow it."""
    path = tmp_path / "advisor.toml"
    path.write_text("[budget.accounts]\nPhysics = 100.0\nbio = 2.0\n")

    def budgets_after(*arguments: str) -> dict[str, float]:
        done = CliRunner().invoke(app, ["budget", "set", *arguments, "--config", str(path)])
        assert done.exit_code == 0, done.output
        return load(path, {}).settings.budget.accounts

    assert budgets_after("20", "--account", "Physics") == {"bio": 2.0, "physics": 20.0}
    assert budgets_after("--remove", "--account", "Physics") == {"bio": 2.0}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "nothing is to be changed"),
        (("5", "--account", "chem", "--user", "ann"), "an account's or a user's"),
        (("5", "--remove"), "set or removed"),
        (("5", "--period", "fortnight"), "is no period"),
    ],
)
def test_what_cannot_be_set_changes_nothing(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    path = tmp_path / "advisor.toml"
    path.write_text("[budget]\nusd = 1.0\n")
    done = CliRunner().invoke(app, ["budget", "set", *arguments, "--config", str(path)])
    assert isinstance(done.exception, BadInput)
    assert why in str(done.exception)
    assert path.read_text() == "[budget]\nusd = 1.0\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["advisor.toml"]


def test_a_site_without_control_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "advisor.toml"
    path.write_text(f'[paths]\nrun = "{tmp_path}"\n')
    done = CliRunner().invoke(app, ["budget", "--config", str(path)])
    assert done.exit_code == 0, done.output
    assert "advisor control" in done.stdout
