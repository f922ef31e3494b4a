"""Credentials that botocore fetches are never written anywhere (attack D1, docs/iam.md)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-c", "from advisor.cli.main import run; run()")
SECRETS = ("AKIAEXAMPLEEXAMPLE00", "TOPSECRETKEY1234567890", "TOKENTOKENTOKEN")
_NAMES = ("AccessKeyId", "SecretAccessKey", "SessionToken")


def credentials(expiration: str) -> str:
    """What a `credential_process` prints."""
    return json.dumps({"Version": 1, **dict(zip(_NAMES, SECRETS, strict=True)), "Expiration": expiration})


HELPERS = {
    "credentials that have expired": f"echo '{credentials('2020-01-01T00:00:00Z')}'",
    "credentials on standard error": f"echo '{credentials('2099-01-01T00:00:00Z')}' >&2; exit 1",
    "no JSON": f"echo 'secret {SECRETS[1]}'",
    "an expiration that is no date": f"echo '{credentials(SECRETS[2])}'",
}
SETTINGS = """
[cluster]
name = "lab"
[ec2]
image_id = "ami-1"
subnet_ids = ["subnet-1"]
endpoint_url = "http://127.0.0.1:1"
[web]
port = 0
"""


class World:
    """A folder with settings and a `credential_process`; everything that is written is below it."""

    def __init__(self, folder: Path, helper: str) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.calls.touch()
        self._output = folder / "output"
        (folder / "run").mkdir()
        program = folder / "helper"
        program.write_text(f"#!/bin/sh\necho called >> {self.calls}\n{helper}\n")
        program.chmod(0o755)
        (folder / "aws").write_text(f"[default]\ncredential_process = {program}\n")
        (folder / "advisor.toml").write_text(SETTINGS)
        self._ours = {program, folder / "aws", folder / "advisor.toml"}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "AWS_CONFIG_FILE": str(folder / "aws"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
            "ADVISOR_CONFIG": str(folder / "advisor.toml"),
            "ADVISOR_PATHS__STATE": str(folder / "state"),
            "ADVISOR_PATHS__RUN": str(folder / "run"),
            "ADVISOR_PATHS__SLURM_CONF": str(folder / "slurm.conf"),
            "ADVISOR_PATHS__SLURM_BIN": str(folder),
            "ADVISOR_LOOPS__METRICS_PORT": "0",
        }

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            return subprocess.Popen(
                (*COMMAND, *arguments), env=self.environment, stdout=output, stderr=output, cwd=self.folder
            )

    def written(self) -> str:
        files = [path for path in self.folder.rglob("*") if path.is_file() and path not in self._ours]
        return "\n".join(_text(path) for path in files)


def _text(path: Path) -> str:
    """Nothing of a file that is gone by now, such as one that only tried its folder."""
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return ""


def wait_until(holds: object, process: subprocess.Popen[bytes], seconds: float = 120.0) -> None:
    assert callable(holds)
    end, pause = time.monotonic() + seconds, threading.Event()
    while not holds():
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < end, "it took too long"
        pause.wait(0.1)


@pytest.mark.parametrize("kind", HELPERS)
def test_d1_control_writes_no_credentials(tmp_path: Path, kind: str) -> None:
    world = World(tmp_path, HELPERS[kind])
    process = world.start("control")
    try:
        wait_until(lambda: len(world.calls.read_text().splitlines()) >= 3, process)
        wait_until(lambda: "ec2." in world.written(), process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    written = world.written()
    assert not [secret for secret in SECRETS if secret in written]
    assert "Traceback" not in written, "a failure of the credentials is foreseen"


@pytest.mark.parametrize("command", [("serve",), ("web",)])
def test_d1_serve_and_web_write_no_credentials(tmp_path: Path, command: tuple[str, ...]) -> None:
    world = World(tmp_path, HELPERS["credentials that have expired"])
    process = world.start(*command)
    try:
        wait_until(lambda: f"{command[0]}.ready" in world.written(), process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert not [secret for secret in SECRETS if secret in world.written()]


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("credentials that have expired", ("doctor",)),
        ("an expiration that is no date", ("doctor",)),
        ("credentials on standard error", ("retrain",)),
    ],
)
def test_d1_commands_write_no_credentials(tmp_path: Path, kind: str, command: tuple[str, ...]) -> None:
    world = World(tmp_path, HELPERS[kind])
    world.start(*command).wait(120)
    assert not [secret for secret in SECRETS if secret in world.written()]
