"""A what-if asked for on a page, from the form to the command's own answer."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from advisor.config.definitions import by_key
from advisor.history.store import HistoryStore
from advisor.model.job import Job, JobOutcome
from advisor.replay.sources import load_table
from advisor.web.whatif import WITH_OWN_FIELD
from advisor.web.whatif_runs import RunState, WhatIfRuns
from tests.web.conftest import Ask


def wait_for(condition: Callable[[], bool]) -> None:
    """For a process that may start slowly on a busy machine; how long is no part of any test."""
    end = time.monotonic() + 800.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def ask_for(client: TestClient, **fields: str) -> str:
    """Send the form; where the answer will be."""
    token = re.search(r'name="token" value="([^"]+)"', client.get("/whatif").text)
    assert token is not None
    answer = client.post("/whatif", data={"token": token[1], **fields})
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def data_of(client: TestClient, address: str) -> Any:
    return client.get(address, params={"format": "json"}).json()


@pytest.fixture
def lived(empty: Path) -> Path:
    """A site whose 1,300 jobs have ended lately."""
    table = load_table("synthetic:1300:8")
    shift = time.time() - float((table.submit + table.wait + table.run).max()) - 60.0
    rows = zip(table.submit, table.wait, table.run, table.processors, table.user, strict=True)
    outcomes = [
        JobOutcome(
            job=Job(
                job_id=number + 1,
                submit_time=float(submit) + shift,
                processors=int(processors),
                user=f"user{user}",
                queue="main",
                requested_time=4.0 * float(run),
            ),
            start_time=float(submit + wait) + shift,
            end_time=float(submit + wait + run) + shift,
            partition="main",
        )
        for number, (submit, wait, run, processors, user) in enumerate(rows)
    ]
    with HistoryStore(f"sqlite:///{empty.parent}/state/history.db") as store:
        store.add(outcomes)
    return empty


@pytest.mark.timeout(900)  # a machine that compiles everything anew
def test_from_the_form_to_the_commands_answer(lived: Path, ask_site: Ask) -> None:
    client = ask_site(lived)
    address = ask_for(client, since="1d", more="rules.deny_users=['user1']\n", **{"budget.usd": "400"})
    while_running = client.get(address).text
    wait_for(lambda: data_of(client, address)["state"] != "running")
    found = data_of(client, address)
    assert found["state"] == "done", found["message"]
    assert 'http-equiv="refresh"' in while_running
    assert found["progress"]
    result = found["result"]
    assert result["changes"] == {"budget.usd": 400, "rules.deny_users": ["user1"]}
    assert result["jobs"] > 0
    assert [row["settings"] for row in result["rows"]] == ["all-on-premise", "in force", "changed"]
    page = client.get(address).text
    assert 'http-equiv="refresh"' not in page
    assert "How far to trust it" in page
    assert "All on-premise, the mean wait is" in page
    assert page.count('class="figure"') == 2
    assert address.rpartition("/")[2] in client.get("/whatif").text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("placement.cutof_scale=1", "there is no setting placement.cutof_scale. Did you mean"),
        ("--help", "'--help' is not a change"),
    ],
)
def test_a_wrong_setting_is_told_in_the_commands_own_words(
    config: Path, ask_site: Ask, more: str, said: str
) -> None:
    client = ask_site(config)
    address = ask_for(client, more=more)
    wait_for(lambda: data_of(client, address)["state"] != "running")
    found = data_of(client, address)
    assert (found["state"], found["exit_code"], found["result"]) == ("failed", 2, None)
    assert said in found["message"]
    text = client.get(address).text
    assert "Exit code 2: bad input or configuration" in text
    assert said.partition("'")[0] in text


def test_one_at_a_time_and_it_can_be_cancelled(config: Path, ask_site: Ask) -> None:
    client = ask_site(config)
    runs: WhatIfRuns = client.site.runs  # type: ignore[attr-defined]
    runs._command, runs._niceness = ("/bin/sh", "-c", "sleep 600; exit 0"), 19
    address = ask_for(client)
    process = runs._process
    assert process is not None
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
    page = client.get("/whatif").text
    assert f'href="{address}"' in page
    token = {"token": str(re.search(r'name="token" value="([^"]+)"', page)[1])}  # type: ignore[index]
    busy = client.post("/whatif", data=token)
    assert busy.status_code == 409
    assert "another what-if runs" in busy.text
    assert client.post(f"{address}/cancel", data={"token": "guessed"}).status_code == 403
    assert client.post(f"{address}/cancel", data=token).headers["location"] == address
    wait_for(lambda: process.poll() is not None)
    assert data_of(client, address)["state"] == "cancelled"
    second = ask_for(client)
    assert second != address
    client.post(f"{second}/cancel", data=token)


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    runs = WhatIfRuns(("/bin/sh", "-c", "sleep 600"))
    run = runs.start("1d", (), longest_seconds=0.1)
    wait_for(lambda: run.state is not RunState.RUNNING)
    assert run.state is RunState.FAILED
    assert "ended after 0.1 s" in run.message
    runs.close()


def test_whatever_a_command_says_is_bounded_and_believed_only_whole() -> None:
    script = """i=0; while [ $i -lt 300 ]; do echo "line $i" >&2; i=$((i+1)); done
    echo '{"progress": "x", "done": "y"}' >&2; echo '{"progress": "z", "done": 1, "total": 2}' >&2
    echo '[1]'"""
    runs = WhatIfRuns(("/bin/sh", "-c", script))
    run = runs.start("1d", (), longest_seconds=60.0)
    wait_for(lambda: run.state is not RunState.RUNNING)
    assert run.state is RunState.FAILED
    assert run.progress == {"z": (1, 2)}
    assert len(run.message) <= 2000
    assert "line 299" in run.message
    runs.close()


def test_only_the_last_are_kept() -> None:
    runs = WhatIfRuns(("/bin/sh", "-c", "echo '{}'"))
    started = []
    for _ in range(22):
        run = runs.start("1d", (), longest_seconds=60.0)
        wait_for(lambda run=run: run.state is not RunState.RUNNING)  # type: ignore[misc]
        started.append(run.run_id)
    assert [run.run_id for run in runs.all()] == started[:1:-1]
    assert runs.get(started[0]) is None
    runs.close()


def test_a_program_that_is_not_there(config: Path, ask_site: Ask) -> None:
    client = ask_site(config)
    client.site.runs._command = ("/nowhere/advisor",)  # type: ignore[attr-defined]
    token = re.search(r'name="token" value="([^"]+)"', client.get("/whatif").text)
    assert token is not None
    answer = client.post("/whatif", data={"token": token[1]})
    assert answer.status_code == 503
    assert "cannot be started" in answer.text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"since": "soon"}, "is not a time"),
        ({"more": "\n".join(f"rules.x{n}=1" for n in range(41))}, "at most 40 changes"),
        ({"more": "a=\0"}, "NUL"),
    ],
)
def test_what_no_command_is_started_for(client: TestClient, fields: dict[str, str], said: str) -> None:
    token = re.search(r'name="token" value="([^"]+)"', client.get("/whatif").text)
    assert token is not None
    answer = client.post("/whatif", data={"token": token[1], **fields})
    assert answer.status_code == 400
    assert said in answer.text
    assert data_of(client, "/whatif")["runs"] == []


def test_the_form_has_settings_that_there_are() -> None:
    assert set(WITH_OWN_FIELD) <= set(by_key())


def test_day_one_12_ask_another_keeps_what_was_asked_and_errors_name_the_forms_fields(
    config: Path, ask_site: Ask
) -> None:
    client = ask_site(config)
    asked = {
        "since": "1s",
        "more": "rules.deny_accounts=['physics']",
        "budget.usd": "7.5",
        "hedge.enabled": "true",
    }
    address = ask_for(client, **asked)
    wait_for(lambda: data_of(client, address)["state"] != "running")
    found = data_of(client, address)
    assert found["state"] == "failed"  # the last job is older
    assert found["message"].startswith("since: no finished job was submitted since then")
    again = re.search(r'href="([^"]*)">New what-if', client.get(address).text)
    assert again is not None
    form = client.get(again[1]).text
    assert 'name="since" value="1s"' in form
    assert 'name="budget.usd" value="7.5"' in form
    assert "<option selected>true</option>" in form
    assert "rules.deny_accounts=[&#39;physics&#39;]</textarea>" in form
