"""``advisor report``: a page that needs no network, and the same numbers as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.errors import BadInput
from advisor.model.job import JobOutcome
from tests.commands import app
from tests.decide.cases import ask, make_estimates, make_job

runner = CliRunner()
ACCOUNT = "<script>alert(1)</script>"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    url = f"sqlite:///{tmp_path}/history.db"
    at = time.time() - 3600.0
    job = make_job(submit_time=at, account=ACCOUNT, user="confidential")
    with HistoryStore(url) as store:
        advice = replace(ask(job), advice_id="one", time=at)
        store.add_advice([AdviceRecord(advice=advice, job=job, estimates=make_estimates())])
        ended = replace(job, job_id=9)
        store.add([JobOutcome(job=ended, start_time=at + 130.0, end_time=at + 190.0, advice_id="one")])
        assert store.set_costs({9: 1.25}) == 1
    path = tmp_path / "advisor.toml"
    path.write_text(f'[paths]\ndatabase_url = "{url}"\n')
    return path


def test_a_page_and_its_numbers(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    arguments = ["report", "--config", str(config), "--out", str(out), "--format", "json"]
    found = runner.invoke(app, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    assert (result["moved"], result["cost_usd"]) == (1, 1.25)
    assert result["saved_seconds_estimate"] > 0
    page = out.read_text()
    assert "1.25 USD" in page
    assert ACCOUNT not in page, "what users typed is shown, never run"
    assert "confidential" not in page
    assert " src=" not in page.split("</head>")[0], "nothing is fetched"


def test_for_people(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    found = runner.invoke(app, ["report", "--config", str(config), "--out", str(out)], catch_exceptions=False)
    assert "1 were moved" in found.stdout
    assert "Written to" in found.stdout


def test_a_folder_that_is_not_there(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "nowhere" / "page.html"
    with pytest.raises(BadInput) as caught:
        runner.invoke(app, ["report", "--config", str(config), "--out", str(out)], catch_exceptions=False)
    assert str(out) in caught.value.where
    assert caught.value.mend
