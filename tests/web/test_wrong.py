"""What is wrong: in an address, with the database, with the one who asks."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from advisor.model.settings_service import WebSettings
from advisor.web import site as site_module
from advisor.web.guard import name_of, own_names
from tests.web.conftest import ADDRESS, Ask


@pytest.mark.parametrize(
    "address",
    [
        "/decisions?limit=0",
        "/decisions?limit=201",
        "/decisions?limit=x",
        "/decisions?since=soon",
        "/decisions?since=9999d",
        "/decisions?placement=moon",
        "/decisions?user=" + "u" * 81,
        "/decisions?user=%00",
        "/decisions?job=-1",
        "/decisions?job=99999999999999999999",
        "/decisions?before=1",
        "/decisions?before=nan~x",
        "/ledger?limit=1e3",
        "/ledger?since=2000-01-01",
        "/jobs/0",
        "/jobs/12abc",
        "/jobs?job=",
        "/?format=xml",
    ],
)
def test_a_wrong_wish_is_refused_and_says_what_may_be(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 400
    data = client.get(address + ("&" if "?" in address else "?") + "format=json")
    if "xml" not in address:
        assert data.json()["error"]["message"]
        assert "cannot be shown" in answer.text


@pytest.mark.parametrize(
    "address", ["/nothing", "/static/none.css", "/whatif/none", "/docs", "/openapi.json"]
)
def test_what_is_not_there(client: TestClient, address: str) -> None:
    assert client.get(address).status_code == 404
    assert client.get(address, params={"format": "json"}).json()["error"]["code"] == "web.refused"


def test_no_history_yet(empty: Path, ask_site: Ask) -> None:
    client = ask_site(empty)
    for address in ("/decisions", "/ledger", "/jobs/1"):
        answer = client.get(address)
        assert answer.status_code == 503
        assert "no history yet" in answer.text
    first = client.get("/")
    assert first.status_code == 200
    assert "advisor control does not run" in first.text
    assert "has not run yet" in client.get("/nodes").text
    assert not (empty.parent / "state" / "history.db").exists(), "pages make nothing"


def test_a_database_somebody_else_holds(config: Path, ask_site: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "_BUSY_SECONDS", 0.05)
    holder = sqlite3.connect(config.parent / "state" / "history.db")
    holder.execute("PRAGMA journal_mode=DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    answer = ask_site(config).get("/decisions")
    holder.close()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "10"
    assert "history.locked" in answer.text


def test_a_file_that_is_no_database(empty: Path, ask_site: Ask) -> None:
    (empty.parent / "state" / "history.db").write_bytes(b"nothing of the kind" * 100)
    answer = ask_site(empty).get("/ledger", params={"format": "json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "history.unreadable")


def test_a_fault_of_ours_is_a_page_and_a_line_in_the_journal(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.web.nodes.nodes_written", lambda *_: 1 // 0)
    quiet = TestClient(
        client.app, base_url=ADDRESS, raise_server_exceptions=False, cookies=dict(client.cookies)
    )
    answer = quiet.get("/nodes")
    assert answer.status_code == 500
    assert "an error of the advisor" in answer.text
    assert "ZeroDivision" not in answer.text
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9420", "127.0.0.1.evil.example", "", "[::1", "a b"]
)
def test_a_name_that_is_not_ours_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:9420", "LOCALHOST"])
def test_a_name_that_is_ours(client: TestClient, host: str) -> None:
    assert client.get("/portfolio", headers={"host": host}).status_code == 200


def test_the_proxys_name_is_one_of_ours(empty: Path, ask_site: Ask) -> None:
    empty.write_text(empty.read_text() + '[web]\nhosts = ["hpc.example.org"]\n')
    client = ask_site(empty)
    assert client.get("/portfolio", headers={"host": "HPC.example.org"}).status_code == 200
    assert client.get("/portfolio", headers={"host": "other.example.org"}).status_code == 421


def test_names_of_an_address() -> None:
    assert own_names(WebSettings(address="10.0.0.5")) == {"10.0.0.5"}
    assert "localhost" in own_names(WebSettings(address="::1", hosts=("a.example",)))
    assert name_of("[::1]:80") == "::1"
    assert name_of("localhost]") == name_of("") == ""


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_pages_are_read(client: TestClient, method: str) -> None:
    assert client.request(method, "/").status_code == 405
    assert client.post("/decisions", data={}).status_code == 405


def test_an_endless_address(client: TestClient) -> None:
    assert client.get("/decisions", params={"user": "u" * 5000}).status_code == 414


def token_of(client: TestClient) -> str:
    found = re.search(r'name="token" value="([^"]+)"', client.get("/whatif").text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"data": {"token": "guessed"}}, 403),
        ({"data": {}}, 415),
        ({"data": {"token": ""}}, 403),
        ({"headers": {"origin": "https://evil.example"}}, 403),
        ({"headers": {"origin": "null"}}, 403),
        ({"headers": {"sec-fetch-site": "cross-site"}}, 403),
        ({"headers": {"content-type": "text/plain"}}, 415),
        ({"data": {"more": "x" * 20_000}}, 413),
        ({"data": {"token": "\u00e9"}}, 403),
    ],
)
def test_a_form_that_is_not_ours_starts_nothing(
    client: TestClient, changes: dict[str, Any], status: int
) -> None:
    form = {"data": {"token": token_of(client)}} | changes
    assert client.post("/whatif", **form).status_code == status
    assert client.get("/whatif", params={"format": "json"}).json()["runs"] == []


def test_a_form_without_end_is_refused_before_it_is_read(client: TestClient) -> None:
    endless = client.post("/whatif", content=iter([b"x" * 1000] * 100))
    assert endless.status_code == 413


def test_settings_are_those_of_the_file_now(client: TestClient, config: Path) -> None:
    site = client.site
    site.cache._monotonic = iter(range(0, 10_000, 10)).__next__
    assert "shadow" in client.get("/").text
    good = config.read_text()
    config.write_text(good.replace("[cluster]", '[cluster]\ndefault_mode = "act"'))
    assert client.get("/", params={"format": "json"}).json()["modes"] == {"main": "act"}
    config.write_text("nonsense")
    assert client.get("/", params={"format": "json"}).json()["modes"] == {"main": "act"}, "the last good ones"


def test_day_one_4_job_ids_as_slurm_writes_them_are_taken(client: TestClient) -> None:
    for text in ("11_2", "11_[1-4]", "11.batch", "11+1"):
        answer = client.get("/jobs", params={"job": text}, follow_redirects=False)
        assert answer.status_code == 303, text
        page = client.get(answer.headers["location"], params={"format": "json"})
        assert page.json()["job_id"] == 11, text
        assert client.get(answer.headers["location"]).status_code == 200
        found = client.get("/decisions", params={"job": text, "format": "json"}).json()
        assert [row["job_ids"] for row in found["decisions"]] == [[11]], text
    for text in ("1_1", "x"):
        answer = client.get("/decisions", params={"job": text, "format": "json", "since": "30d"})
        assert answer.status_code == (200 if text == "1_1" else 400)
        assert 11 not in [job for row in answer.json().get("decisions", []) for job in row["job_ids"]]
