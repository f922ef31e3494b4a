"""``advisor web`` as a program: where it listens, how it ends, what it says when it cannot."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from urllib.request import HTTPCookieProcessor

import pytest

from advisor.cli.context import settings_of
from advisor.cli.main import run
from advisor.model.errors import BadInput
from advisor.model.settings_service import WebSettings
from advisor.web.links import Links
from advisor.web.run import listen
from tests.web.conftest import ADMIN, COMMAND


def test_day_one_37_it_serves_where_it_is_told_until_it_is_told_to_end(config: Path) -> None:
    process = subprocess.Popen(
        # the options come first
        [*COMMAND, "web", "--config", str(config), "--port", "0", "--address", "127.0.0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "ADVISOR_WEB__PORT": "1", "ADVISOR_WEB__ADDRESS": "203.0.113.7", "NO_COLOR": "1"},
    )
    with process:
        assert process.stdout is not None
        ready = next(line for line in process.stdout if "web.ready" in line)
        port = re.search(r"port\W+(\d+)", ready)
        if port is None:
            process.kill()
        assert port is not None, ready
        home, browser = f"http://127.0.0.1:{port[1]}", urllib.request.build_opener(HTTPCookieProcessor())
        token = Links(settings_of(config).paths.state).make(ADMIN, time.time() + 6000.0)
        browser.open(f"{home}/signin", data=f"link={token}".encode(), timeout=600).close()
        with browser.open(f"{home}/jobs/11?format=json", timeout=600) as answer:
            assert json.load(answer)["advice"]["advice_id"] == "advice-11"
            assert "Server" not in answer.headers
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
    assert process.returncode == 0, rest


def test_it_ends_when_it_is_told_so_before_it_serves(config: Path) -> None:
    program = """
import signal
from advisor.cli.main import run
from advisor.service.running.notify import Notifier
Notifier.ready = lambda *_: signal.raise_signal(signal.SIGTERM)
run()
"""
    arguments = ["web", "--config", str(config), "--port", "0", "--address", "127.0.0.1"]
    done = subprocess.run(
        [*COMMAND[:-1], program, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_port_somebody_else_has_is_said_and_ends_with_2(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        monkeypatch.setenv("ADVISOR_WEB__PORT", str(holder.getsockname()[1]))
        monkeypatch.setattr("sys.argv", ["advisor", "web", "--config", str(config)])
        with pytest.raises(SystemExit) as caught:
            run()
    assert caught.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "web.address and web.port" in said
    assert "Address already in use" in said


def test_a_port_that_is_none_is_said_of_its_own_option(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["advisor", "web", "--config", str(config), "--port", "99999"])
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == 2
    assert "error: --port, web.port: 99999 is too large" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("address", ["203.0.113.7", "no such host"])
def test_an_address_that_is_not_ours(address: str) -> None:
    with pytest.raises(BadInput, match=re.escape(address)):
        listen(WebSettings(address=address, port=0))


@pytest.mark.parametrize("path", ["burst", "/a b", "/a/", "/<script>", "//evil.example"])
def test_a_path_that_is_none(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        WebSettings(path=path)
