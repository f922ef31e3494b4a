"""Every page, for people and as data; the data are what the commands say."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plotly.graph_objects as go
import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient
from typer.testing import CliRunner

from advisor.history.store import HistoryStore
from advisor.model.bill import day_of
from advisor.model.job import JobOutcome
from advisor.service.control.metrics_page import MetricsPage
from advisor.service.exchange import snapshot, status_file
from advisor.web.money import budget_plots
from advisor.web.plots import add_line, drawn_by_day, figure_text
from tests.commands import app
from tests.decide.cases import make_job
from tests.service.site import make_snapshot
from tests.web.conftest import Ask

PAGES = ["/", "/decisions", "/jobs/11", "/jobs/7", "/ledger", "/money", "/nodes"]
PAGES += ["/accuracy", "/tune", "/portfolio", "/whatif"]


def data_of(client: TestClient, path: str) -> Any:
    answer = client.get(path, params={"format": "json"})
    assert answer.status_code == 200
    return answer.json()


def said(config: Path, *arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--config", str(config), "--format", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_needs_nothing_from_elsewhere_and_runs_nothing_of_others(
    client: TestClient, path: str
) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "<script>alert" not in answer.text
    assert "\x1b" not in answer.text
    assert not re.search(r"""(src|href|action)=["'](https?:)?//""", answer.text)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", answer.text)
    assert "set-cookie" not in answer.headers
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert client.head(path).status_code == 200


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_data_where_data_are_asked_for(client: TestClient, path: str) -> None:
    assert (
        client.get(path, headers={"accept": "application/json"}).json().keys() == data_of(client, path).keys()
    )
    assert "html" in client.get(path, params={"format": "html"}, headers={"accept": "application/json"}).text


def test_the_overview_says_that_the_settings_file_cannot_be_used(config: Path, ask_site: Ask) -> None:
    client = ask_site(config)
    config.write_text(config.read_text() + "\n[cluster\n")
    assert "the settings file cannot be used" in data_of(client, "/")["troubles"][0]
    assert "the settings file cannot be used" in client.get("/").text


def test_the_overview_is_advisor_status(client: TestClient, config: Path) -> None:
    page, command = data_of(client, "/"), said(config, "status")
    assert page.keys() - command.keys() == {"spend", "last_day", "waits"}
    assert page["troubles"] == command["troubles"]
    assert page["snapshot"].keys() == command["snapshot"].keys()
    moved = page["last_day"].pop("moved")
    assert page["last_day"] == {
        "placements": {"burst": 2, "on-premise": 1},
        "stayed_because": {"rule.opt_out_comment": 1},
    }
    assert [row["job_ids"] for row in moved] == [[13], [11]], "newest first"
    text = client.get("/").text
    assert "the user does not want it moved" in text, "reasons in words"
    assert "3.00 USD" in text
    assert "slurm.denied" in text


def test_the_overview_does_not_say_that_shadow_mode_has_moved_a_job(client: TestClient) -> None:
    page = client.get("/").text
    (table,) = re.findall("Newest advice for the cloud</h2>.*?</table>", page, re.DOTALL)
    rows = table.split("<tr>")[2:]
    assert ["jobs/13" in row or "jobs/11" not in row for row in rows] == ["shadow" in row for row in rows]
    assert any("shadow" in row for row in rows)


def test_decisions_are_those_of_the_command_newest_first(client: TestClient, config: Path) -> None:
    page, command = data_of(client, "/decisions"), said(config, "decisions")
    assert page["decisions"] == command["decisions"][::-1]
    assert (page["total"], page["placements"]) == (command["total"], command["placements"])


def test_decisions_page_by_page(client: TestClient) -> None:
    found, before = [], ""
    while before is not None:
        page = client.get("/decisions", params={"limit": 2, "before": before, "format": "json"}).json()
        found += [row["advice_id"] for row in page["decisions"]]
        before = page["before"]
    assert found == ["advice-13", "advice-12", "advice-11"]
    older = re.search(r'href="(\?[^"]*before[^"]*)"', client.get("/decisions?limit=2&user=ann").text)
    assert older is None, "ann has two"
    older = re.search(r'href="(\?[^"]*before[^"]*)"', client.get("/decisions?limit=1&user=ann").text)
    assert older is not None
    second = client.get("/decisions" + older[1].replace("&amp;", "&")).text
    assert "/jobs/12" in second
    assert "/jobs/13" not in second


@pytest.mark.parametrize(
    ("wanted", "jobs"),
    [
        ({"user": "ann"}, {12, 13}),
        ({"placement": "on-premise"}, {12}),
        ({"reason": "rule.opt_out_comment"}, {12}),
        ({"job": "13"}, {13}),
        ({"since": "1s"}, set()),
    ],
)
def test_decisions_that_are_asked_for(client: TestClient, wanted: dict[str, str], jobs: set[int]) -> None:
    page = client.get("/decisions", params={**wanted, "format": "json"}).json()
    assert {job for row in page["decisions"] for job in row["job_ids"]} == jobs
    assert page["total"] == len(jobs)


def test_a_job_is_advisor_why_and_what_came_of_it(client: TestClient, config: Path) -> None:
    page = data_of(client, "/jobs/11")
    command = said(config, "why", "11")
    assert {name: page[name] for name in command} == command
    assert page["outcome"] == said(config, "ledger")["rows"][0]
    text = client.get("/jobs/11").text
    for words in ("2. Is the cloud faster, and are we sure?", "predicted wait", "1 h 58 min", "1.25 USD"):
        assert words in text


def test_a_job_that_was_never_advised_says_so(client: TestClient) -> None:
    assert "whole of job 11" in client.get("/jobs/11_99").text
    assert "never advised" in client.get("/jobs/7").text
    assert data_of(client, "/jobs/7")["finished"]["end_time"] > 0
    assert "has not ended" in client.get("/jobs/13").text
    assert data_of(client, "/jobs/13[2]")["advice"]["advice_id"] == "advice-13"  # LSF's, advised as a whole
    missing = client.get("/jobs/99")
    assert missing.status_code == 404
    assert "nothing is known of job 99" in missing.text
    assert client.get("/jobs?job=11").headers["location"] == "/jobs/11"


def test_an_element_of_an_array_of_lsf_has_its_name(client: TestClient, config: Path) -> None:
    element = 2 << 32 | 13
    with HistoryStore(f"sqlite:///{config.parent}/state/history.db") as store:
        job = make_job(job_id=element, submit_time=time.time() - 500.0)
        ended = JobOutcome(job=job, start_time=time.time() - 400.0, end_time=time.time() - 100.0)
        store.add([replace(ended, advice_id="advice-13")])
    text = client.get("/ledger").text
    assert f'<a href="/jobs/{element}">13[2]</a>' in text


def test_the_ledger_is_the_command_and_its_report(client: TestClient, config: Path, tmp_path: Path) -> None:
    page, command = data_of(client, "/ledger"), said(config, "ledger")
    assert {name: page[name] for name in ("summary", "rows")} == {
        name: command[name] for name in ("summary", "rows")
    }
    report = said(config, "report", "--since", "7d", "--out", str(tmp_path / "page.html"))
    same = report.keys() - {"out", "since", "until"}
    assert {name: page["report"][name] for name in same} == {name: report[name] for name in same}
    plots = re.findall(
        r'<script type="application/json" class="figure">(.*?)</script>', client.get("/ledger").text
    )
    assert len(plots) == 5, "all but the nodes' cost: none was paid for"
    assert all(json.loads(plot)["data"] for plot in plots)


def test_the_cloud_is_nodes_pools_and_spend(client: TestClient, config: Path) -> None:
    page, money = data_of(client, "/nodes"), data_of(client, "/money")
    for name in ("nodes", "pools"):
        assert page[name].keys() == said(config, name).keys()
        assert page[name][name] == said(config, name)[name]
    assert money["jobs"] == said(config, "spend")["jobs"]
    assert money["by_account"] == said(config, "spend")["by_account"]


def test_a_portfolio_in_charge_says_what_it_has_set(client: TestClient, config: Path) -> None:
    assert data_of(client, "/portfolio")["enabled"] is False
    assert "wrong" not in client.get("/portfolio").text
    report = {
        "enabled": True, "policy": "ODX-FCFS-FirstFit", "why": "the champion", "since": None,
        "champion": None, "judged_jobs": 5, "billing": "second", "release_rule": "by the second",
        "nodes_rented": 1, "nodes_allowed": 2, "closed_nodes": ["b9"],
        "reservation": "r", "nodes_kept": [], "no_more_because": "", "jobs_waiting": 0, "jobs_ordered": 0,
        "scores": {}, "losses": {}, "chosen": {}, "undo": "advisor portfolio undo",
    }  # fmt: skip
    run = config.parent / "run"
    status_file.write(run, {**status_file.read(run), "portfolio": report})
    assert data_of(client, "/portfolio") | {"age_seconds": 0.0} == said(config, "portfolio", "show") | {
        "age_seconds": 0.0
    }
    assert "ODX-FCFS-FirstFit" in client.get("/portfolio").text


@pytest.mark.parametrize("name", ["style.css", "plots.js", "icon.svg"])
def test_what_pages_are_drawn_with_is_ours(client: TestClient, name: str) -> None:
    assert f"/static/{name}" in client.get("/ledger").text
    assert client.get(f"/static/{name}").status_code == 200


def test_the_drawing_library_comes_from_its_package(client: TestClient) -> None:
    address = re.search(r'src="(/static/plotly-[^"]+)"', client.get("/ledger").text)
    assert address is not None
    answer = client.get(address[1])
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert len(answer.content) > 1_000_000
    assert client.get("/static/..%2fapp.py").status_code == 404


def test_under_a_path_of_the_proxy_links_lead_there(empty: Path, ask_site: Ask) -> None:
    empty.write_text(empty.read_text() + '[web]\npath = "/burst"\n')
    text = ask_site(empty).get("/whatif").text
    assert 'href="/burst/decisions"' in text
    assert not re.search(r'(href|action|src)="/(?!burst)', text)


SCRAPED = """# TYPE advisor_serve_up gauge
advisor_serve_up 1.0
# TYPE advisor_serve_advice counter
advisor_serve_advice_total{placement="burst",reason="capacity.spot",mode="act"} 3.0
advisor_serve_advice_total{placement="on-premise",reason="rule.gres",mode="act"} 4.0
# TYPE advisor_serve_model_version gauge
advisor_serve_model_version{kind="predictor"} 12.0
"""


@pytest.mark.parametrize(
    ("scraped", "expected"),
    [
        (SCRAPED, {"running": True, "advice_given": 7, "model_version": "00000012"}),
        ("# TYPE advisor_serve_up gauge\nadvisor_serve_up 0.0\n", {"running": False}),
        ("<html>another server's", {"running": None}),
    ],
)
def test_without_a_socket_the_submit_server_is_seen_through_the_metrics(
    empty: Path, ask_site: Ask, scraped: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:  # as systemd does to a unit without AF_UNIX
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    no_unix = SimpleNamespace(socket=refuse, AF_UNIX=socket.AF_UNIX, SOCK_STREAM=socket.SOCK_STREAM)
    monkeypatch.setattr("advisor.service.exchange.client.socket", no_unix)
    page = MetricsPage(("127.0.0.1", 0), scraped.encode)
    page.start()
    empty.write_text(empty.read_text().replace("metrics_port = 0", f"metrics_port = {page.port}"))
    try:
        client = ask_site(empty)
        found = data_of(client, "/")["serve"]
        assert client.get("/").status_code == 200
    finally:
        page.stop()
    assert {name: found[name] for name in expected} == expected


def test_the_link_to_the_data_asks_for_the_same(client: TestClient) -> None:
    text = client.get("/decisions", params={"user": "ann", "limit": "1"}).text
    link = re.search(r'href="(\?[^"]*format=json)"', text)
    assert link is not None
    page = client.get("/decisions" + link[1].replace("&amp;", "&")).json()
    assert [row["user"] for row in page["decisions"]] == ["ann"]


def test_an_axis_of_a_few_days_names_each_of_them_once() -> None:
    """With one day plotly would divide it, and name it again at each part."""

    def step(*days: str) -> object:
        figure = go.Figure()
        add_line(figure, "spent", days, [1.0] * len(days))
        return json.loads(drawn_by_day(figure, "Spent", "US dollars").text)["layout"]["xaxis"].get("dtick")

    assert step("2026-11-28") == 86_400_000
    assert step("2026-11-21", "2026-11-28") == 86_400_000
    assert step("2026-11-20", "2026-11-28") is None
    assert step() is None


def test_no_text_in_a_figure_ends_its_element() -> None:
    figure = go.Figure(go.Bar(x=["</script><script>alert(1)//", "a&b"], y=[1.0, math.nan]))
    text = figure_text(figure)
    assert not set(text) & set("<>&")
    assert json.loads(text)["data"][0]["x"] == ["</script><script>alert(1)//", "a&b"]


def test_day_one_35_a_portfolio_that_is_off_is_no_fault(
    client: TestClient, ask_site: Ask, empty: Path
) -> None:
    for asked in (client, ask_site(empty)):
        text = asked.get("/portfolio").text
        assert 'class="wrong"' not in text
        assert asked.get("/portfolio").status_code == 200


def test_a_long_period_begins_with_what_was_spent_before_the_known_days() -> None:
    now = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()  # the 60th day of the quarter
    days = [{"day": day_of(now - number * 86_400.0), "usd": 2.0} for number in range(30, -1, -1)]
    spend = {"days": days, "budget_usd": 460.0, "budget_period": "quarter", "spent_usd": 100.0}
    (plot,) = budget_plots(spend, now)
    spent = {row[1]: row[2] for row in plot.rows if row[0] == "spent"}
    assert (spent["2026-10-01"], spent["2026-10-29"]) == ("-", "-")
    assert (spent["2026-10-30"], spent["2026-11-29"], spent["2026-11-30"]) == ("40", "100", "-")


def test_the_overview_says_why_money_is_not_shown(client: TestClient, config: Path) -> None:
    (config.parent / "run" / status_file.NAME).write_text("{")
    page = client.get("/").text
    assert "no cloud is configured" not in page
    assert "cannot be read" in page


def test_a_clock_that_was_set_back_is_no_fresh_snapshot(client: TestClient, config: Path) -> None:
    run, later = config.parent / "run", time.time() + 3600.0
    snapshot.write(run / "snapshot.msgpack", make_snapshot(later))
    (run / status_file.NAME).write_text(json.dumps({"time": later}))
    found = data_of(client, "/")
    assert not found["snapshot"]["usable"]
    assert not found["control"]["running"]


def test_a_mean_of_a_few_jobs_is_not_shown(client: TestClient) -> None:
    (week,) = client.get("/accuracy?format=json").json()["weeks"]
    assert week["runs"]["jobs"] < 30
    assert week["runs"]["mean_absolute_error_seconds"] is None


def test_accuracy_shows_which_partition_has_drifted(client: TestClient) -> None:
    rows = client.get("/accuracy?format=json").json()["drift"]["rows"]
    found = {(row["partition"], row["measure"]): row for row in rows}
    held, fallen = found["main", "coverage"], found["long", "coverage"]
    assert (held["state"], held["value"], held["least"], held["cases"]) == ("holds", 0.91, 0.75, 700)
    assert (fallen["state"], fallen["value"], fallen["since"] % 86_400.0) == ("fallen back", 0.4, 0.0)
    assert found["main", "saved time"]["value"] == pytest.approx(0.85)
    assert (found["long", "saved time"]["state"], found["long", "saved time"]["value"]) == ("too few", None)
    page = client.get("/accuracy").text
    for words in ("fallen back</span>", "long: 7 values from 40 to 40"):
        assert words in page
    assert "<script>alert" not in page


def test_accuracy_without_measured_drift(client: TestClient, config: Path) -> None:
    file = config.parent / "state" / "drift.json"
    file.unlink()
    rows = client.get("/accuracy?format=json").json()["drift"]["rows"]
    assert {row["state"] for row in rows} == {"too few"}
    file.write_text("[]")
    assert "state.damaged" in client.get("/accuracy").text
