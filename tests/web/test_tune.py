"""The page Tune: curves, a diff before anything is written, Apply, the history, Undo, and who may."""

from __future__ import annotations

import math
import os
import re
import threading
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from advisor.cli.context import settings_of
from advisor.replay.closed_loop.recommendation import BudgetPoint
from advisor.service.admin.curves import KeptCurves, LimitCurve, keep, kept, outlook
from advisor.service.exchange import snapshot
from advisor.service.state.applied import SettingsHistory
from advisor.web.persons import Person, Role
from tests.service.processes import ServeProcess
from tests.service.site import make_snapshot
from tests.web.conftest import Ask
from tests.web.test_signing_in import as_person

BUDGETS = (100.0, 200.0, 400.0, 1000.0)


def point(usd: float, saved: float) -> BudgetPoint:
    return BudgetPoint(
        budget_share=usd / 10_000.0,
        usd=usd,
        cost_usd=0.9 * usd,
        saved_hours=saved,
        saved_hours_low=0.8 * saved,
        saved_hours_high=1.2 * saved,
        saved_hours_by_week=tuple(saved / 4.0 for _ in range(4)),
        mean_wait_seconds=7200.0 - usd,
        moved_jobs=usd / 2.0,
        later_share=0.01,
    )


def make_curves() -> KeptCurves:
    """Hours grow as the root of the money; with a limit half as many."""
    curves = [
        LimitCurve(
            limit_minutes=limit,
            points=tuple(point(usd, share * 100.0 * math.sqrt(usd)) for usd in BUDGETS),
        )
        for limit, share in ((None, 1.0), (120.0, 0.9), (60.0, 0.8), (30.0, 0.5), (15.0, 0.3))
    ]
    return KeptCurves(
        time=1e9,
        begin=1e9 - 9e6,
        end=1e9,
        jobs=5000,
        weeks=12,
        usd_per_core_hour=0.04,
        mean_wait_seconds=7200.0,
        worth_usd=0.3,
        curves=tuple(curves),
    )


@pytest.fixture
def tuned(config: Path) -> Path:
    """A site with a budget and with curves."""
    config.write_text(config.read_text() + "# ours\n[budget]\nusd = 200.0  # until May\n")
    keep(config.parent / "state", make_curves())
    return config


def review(client: TestClient, path: str = "review", **fields: str) -> dict[str, str]:
    """The hidden fields of the page that shows the diff."""
    page = client.get(f"/tune/{path}", params=fields)
    assert page.status_code == 200, page.text
    form = page.text[page.text.index('<form method="post"') :]
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form))


def test_the_curve_is_read_at_the_settings_and_at_what_is_asked_for(tuned: Path, ask_site: Ask) -> None:
    client = ask_site(tuned)
    page = client.get("/tune", params={"format": "json"}).json()
    assert page["now"]["saved_hours"] == pytest.approx(100.0 * math.sqrt(200.0))
    assert page["then"] is None
    wished = {"budget.usd": "300", "price.uncertainty_limit_minutes": "30", "format": "json"}
    page = client.get("/tune", params=wished).json()
    halfway = (math.sqrt(200.0) + math.sqrt(400.0)) / 2.0
    assert page["then"]["saved_hours"] == pytest.approx(0.5 * 100.0 * halfway)
    assert page["then"]["cost_usd"] == pytest.approx(270.0)
    text = client.get("/tune", params={"budget.usd": "300"}).text
    assert "With these values a month would have cost" in text
    assert re.search(r'role="img" aria-label="Hours saved in a month', text)
    assert "The plot as a table" in text


@pytest.mark.parametrize(
    ("budget", "monthly"),
    [
        ({"usd": 200.0}, 200.0),
        ({"usd": 10.0, "period": "day"}, 10.0 * 365.25 / 12),
        ({"usd_per_hour_saved": 0.25}, 200.0),
        ({"usd_per_hour_saved": 0.25, "usd": 150.0}, 150.0),
        ({"usd_per_hour_saved": 1e-6}, 0.0),
        ({}, 0.0),
    ],
)
def test_money_and_price_of_an_hour_are_one_curve(budget: dict[str, float], monthly: float) -> None:
    from tests.decide.cases import make_settings

    curves = make_curves()
    found = outlook(curves, curves.curves[0], make_settings(budget=budget))
    assert found.budget_usd == pytest.approx(monthly)
    assert found.saved_hours > 0.0 if monthly else found.saved_hours == 0.0


def test_more_money_than_any_budget_of_the_curve_says_so() -> None:
    from tests.decide.cases import make_settings

    curves = make_curves()
    found = outlook(curves, curves.curves[0], make_settings(budget={"usd": 5000.0}))
    assert found.is_beyond
    assert found.saved_hours == curves.curves[0].points[-1].saved_hours


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_curves_that_root_has_kept_are_the_services(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, 2345)
    path = keep(tmp_path, make_curves())
    assert [(one.stat().st_uid, one.stat().st_gid) for one in (path, path.parent)] == [(1234, 2345)] * 2


def test_apply_shows_the_lines_writes_them_and_stands_in_the_history(tuned: Path, ask_site: Ask) -> None:
    client = ask_site(tuned)
    before = tuned.read_text()
    wished = {"budget.usd": "300", "price.uncertainty_limit_minutes": "30", "mode.main": "act"}
    page = client.get("/tune/review", params=wished, headers={"accept": "application/json"}).json()
    assert "-usd = 200.0  # until May" in page["diff"]
    assert "+usd = 300.0  # until May" in page["diff"]
    assert "name" not in " ".join(page["diff"]), "only what changes: no other line, no password"
    hidden = review(client, **wished)
    assert tuned.read_text() == before, "nothing is written by a look"
    done = client.post("/tune/apply", data=hidden | {"reason": "deadline <b>week</b>"})
    assert (done.status_code, done.headers["location"]) == (303, "/tune#history")
    settings = settings_of(tuned)
    assert (settings.budget.usd, settings.price.uncertainty_limit_minutes) == (300.0, 30.0)
    assert settings.cluster.modes == {"main": "act"}
    assert "# ours" in tuned.read_text()
    (entry,) = client.get("/tune", params={"format": "json"}).json()["history"]
    assert (entry["author"], entry["reason"]) == ("root", "deadline <b>week</b>")
    assert entry["time"] == pytest.approx(time.time(), abs=6000.0)
    assert "deadline &lt;b&gt;week" in client.get("/tune").text
    assert client.get("/", params={"format": "json"}).json()["modes"] == {"main": "act"}, "shown at once"


def test_a_period_that_the_form_does_not_offer_stays(tuned: Path, ask_site: Ask) -> None:
    tuned.write_text(tuned.read_text() + 'period = "quarter"\n')
    page = ask_site(tuned).get("/tune").text
    periods = page[page.index('name="budget.period"') :].partition("</select>")[0]
    assert re.findall("<option( selected)?>([^<]*)", periods) == [
        ("", "day"),
        ("", "week"),
        ("", "month"),
        (" selected", "quarter"),
    ]


def test_undo_brings_back_what_was_and_is_a_change_of_its_own(tuned: Path, ask_site: Ask) -> None:
    client = ask_site(tuned)
    before = settings_of(tuned)
    hidden = review(client, **{"budget.usd": "300", "mode.main": "act"})
    client.post("/tune/apply", data=hidden | {"reason": "a try"})
    undo = review(client, "undo/1")
    done = client.post("/tune/undo/1", data=undo | {"reason": "undo of change 1"})
    assert done.status_code == 303, done.text
    assert settings_of(tuned) == before
    history = client.get("/tune", params={"format": "json"}).json()["history"]
    assert [(entry["number"], entry["undoes"]) for entry in history] == [(2, 1), (1, None)]
    again = client.get("/tune/undo/1")
    assert again.status_code == 409
    assert "changed after it" in again.text


def test_the_lines_of_an_undo_show_no_password(tuned: Path, ask_site: Ask) -> None:
    url = "postgresql://advisor:hunter2@db/advisor"
    history = SettingsHistory(tuned, settings_of(tuned).paths.state)
    history.apply({"paths.database_url": url}, author="root", reason="a try", now=1e9)
    history.apply({"budget.usd": 250.0}, author="root", reason="a try", now=1e9)
    page = ask_site(tuned).get("/tune/undo/1")
    assert page.status_code == 200
    assert "postgresql://advisor:***@db/advisor" in page.text
    assert "hunter2" not in page.text


def test_a_file_that_changed_meanwhile_is_looked_at_anew(tuned: Path, ask_site: Ask) -> None:
    client = ask_site(tuned)
    hidden = review(client, **{"budget.usd": "300"})
    tuned.write_text(tuned.read_text() + "# by hand\n")
    answer = client.post("/tune/apply", data=hidden | {"reason": "late"})
    assert answer.status_code == 409
    assert settings_of(tuned).budget.usd == 200.0


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"budget.usd": "much"}, 400),
        ({"budget.usd": "-1"}, 400),
        ({"budget.usd": "nan"}, 400),
        ({"budget.usd": "inf"}, 400),
        ({"price.uncertainty_limit_minutes": "7"}, 400),
        ({"budget.period": "fortnight"}, 400),
        ({"mode.main": "fast"}, 400),
        ({"mode.other": "act"}, 400),
        ({}, 400),
    ],
)
def test_a_wrong_wish_is_refused(tuned: Path, ask_site: Ask, fields: dict[str, str], status: int) -> None:
    client = ask_site(tuned)
    assert client.get("/tune/review", params=fields).status_code == status
    token = client.site.gate.form_token(Person("root", Role.ADMIN))
    before = tuned.read_text()
    answer = client.post("/tune/apply", data={**fields, "token": token, "base": "", "reason": "x"})
    assert answer.status_code in {400, 409}
    assert tuned.read_text() == before


def test_who_may_not_apply_changes_nothing(tuned: Path, ask_site: Ask) -> None:
    client = ask_site(tuned)
    hidden = review(client, **{"budget.usd": "300"}) | {"reason": "mine"}
    operator = as_person(client, Person("kim", Role.OPERATOR))
    user = as_person(client, Person("ann", Role.USER))
    page = operator.get("/tune/review", params={"budget.usd": "300"})
    assert page.status_code == 200
    assert "Only admins" in page.text
    assert user.get("/tune").status_code == 403
    for asking, path in ((operator, "apply"), (user, "apply"), (operator, "undo/1")):
        token = client.site.gate.form_token(Person("kim", Role.OPERATOR))
        for given in (hidden, hidden | {"token": token}):
            assert asking.post(f"/tune/{path}", data=given).status_code == 403
    assert client.post("/tune/apply", data=hidden | {"token": "guessed"}).status_code == 403
    assert client.post("/tune/apply", data=hidden | {"reason": " "}).status_code == 400, "no reason"
    assert settings_of(tuned).budget.usd == 200.0


def test_what_the_environment_says_cannot_be_applied(
    tuned: Path, ask_site: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_BUDGET__USD", "50")
    answer = ask_site(tuned).get("/tune/review", params={"budget.usd": "300"})
    assert answer.status_code == 409
    assert "ADVISOR_BUDGET__USD" in answer.text


def test_without_curves_the_page_says_what_to_run(config: Path, ask_site: Ask) -> None:
    assert "advisor recommend --keep" in ask_site(config).get("/tune").text
    (config.parent / "state" / "web").mkdir()
    (config.parent / "state" / "web" / "curves.json").write_text("{")
    assert kept(config.parent / "state") is None
    assert ask_site(config).get("/tune").status_code == 200


def test_apply_changes_the_next_decision_of_the_running_server_and_undo_the_one_after(
    tuned: Path, ask_site: Ask
) -> None:
    client, settings = ask_site(tuned), settings_of(tuned)
    snapshot.write(settings.paths.snapshot, make_snapshot(now=time.time()))
    pause = threading.Event()

    def wait_for(mode: str) -> None:
        while asking.advise(dry=True).mode != mode:
            pause.wait(0.02)

    with ServeProcess(settings, config=tuned) as process:
        process.start()
        with process.client() as asking:
            assert asking.advise(dry=True).mode == "shadow"
            hidden = review(client, **{"mode.main": "act"})
            assert client.post("/tune/apply", data=hidden | {"reason": "go"}).status_code == 303
            wait_for("act")
            undo = review(client, "undo/1") | {"reason": "no"}
            assert client.post("/tune/undo/1", data=undo).status_code == 303
            wait_for("shadow")
    assert [entry.undoes for entry in SettingsHistory(tuned, settings.paths.state).entries()] == [None, 1]
