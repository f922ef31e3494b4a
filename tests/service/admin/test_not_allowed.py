"""A login that may not ask the services is told so, and not that they do not run."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from advisor.model.errors import TellAdmin
from advisor.service.exchange import status_file
from advisor.service.exchange.access import DENIED, denied
from advisor.service.exchange.client import SubmitClient
from tests.commands import app

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as another user")


@contextmanager
def somebody_else() -> Iterator[None]:
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def site(open_folder: Path) -> Iterator[Path]:
    """A running server's socket and a status, in a folder of the service's own, as systemd makes it."""
    folder, run = open_folder, open_folder / "run"
    run.mkdir(mode=0o750)
    status_file.write(run, {"time": 1.0})
    config = folder / "advisor.toml"
    config.write_text(f'[paths]\nstate = "{run}"\nrun = "{run}"\n[loops]\nmetrics_port = 0\n')
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(run / "submit.sock"))
        listener.listen()
        yield config


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Everything that the commands need: somebody else may not read where this Python is installed."""
    folder = tmp_path_factory.mktemp("imported")
    config = folder / "advisor.toml"
    config.write_text(f'[paths]\nstate = "{folder}"\nrun = "{folder}"\n[loops]\nmetrics_port = 0\n')
    for words in (["status"], ["status", "--format", "json"], ["nodes"], ["pools"], ["advise", "--time=5"]):
        CliRunner().invoke(app, [*words, "--config", str(config)])
    denied(config)


def test_day_one_13_the_socket_says_who_may_ask(site: Path) -> None:
    path = site.parent / "run" / "submit.sock"
    with somebody_else(), SubmitClient(path) as client, pytest.raises(TellAdmin) as caught:
        client.ping()
    assert caught.value.code == DENIED
    assert "nobody" in str(caught.value)
    assert "belongs to root:root, mode 0750" in str(caught.value)


def test_day_one_13_status_raises_no_false_alarm(site: Path) -> None:
    with somebody_else():
        done = CliRunner().invoke(app, ["status", "--config", str(site)])
    text = " ".join(done.output.split())
    assert done.exit_code == 1, (done.output, done.exception)
    assert "does not answer" not in text
    assert "does not run" not in text
    assert "every job is accepted as submitted" not in text
    assert "mode 0750" in text
    with somebody_else():
        found = json.loads(
            CliRunner().invoke(app, ["status", "--config", str(site), "--format", "json"]).output
        )
    assert found["serve"]["running"] is None
    assert found["control"]["running"] is None


def test_day_one_13_a_server_that_does_not_answer_is_still_told(site: Path) -> None:
    (site.parent / "run" / "submit.sock").unlink()
    done = CliRunner().invoke(app, ["status", "--config", str(site)])
    assert "advisor serve does not answer" in " ".join(done.output.split())
    assert done.exit_code == 0


@pytest.mark.parametrize("command", ["nodes", "pools", "advise"])
def test_day_one_13_other_commands_say_it_too(site: Path, command: str) -> None:
    options = ["--time=5"] if command == "advise" else []
    with somebody_else(), pytest.raises(TellAdmin) as caught:
        CliRunner().invoke(app, [command, *options, "--config", str(site)], catch_exceptions=False)
    assert caught.value.code == DENIED
