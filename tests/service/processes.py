"""`advisor serve` as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from advisor.model.settings import Settings
from advisor.service.exchange.client import SubmitClient

COMMAND = (sys.executable, "-c", "from advisor.cli.main import run; run()", "serve")


class ServeProcess:
    """Started with settings from its environment; ready when it told systemd so."""

    def __init__(self, settings: Settings, *, config: Path | None = None) -> None:
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self._environment = {
            **os.environ,
            "ADVISOR_PATHS__RUN": str(settings.paths.run),
            "ADVISOR_PATHS__STATE": str(settings.paths.state),
            "ADVISOR_PATHS__SLURM_CONF": str(settings.paths.slurm_conf),
            "ADVISOR_CLUSTER__DEFAULT_MODE": settings.cluster.default_mode.value,
            "ADVISOR_CLUSTER__POLICY": settings.cluster.policy,
            "ADVISOR_SUBMIT__SNAPSHOT_MAX_AGE_SECONDS": str(settings.submit.snapshot_max_age_seconds),
        }
        if config is not None:
            self._environment["ADVISOR_CONFIG"] = str(config)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> str:
        """Start and wait until it says READY; returns the datagram."""
        with (
            tempfile.TemporaryDirectory() as folder,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        ):
            address = f"{folder}/notify"
            manager.bind(address)
            manager.settimeout(240)
            self._process = subprocess.Popen(
                COMMAND,
                env={**self._environment, "NOTIFY_SOCKET": address},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            return manager.recv(4096).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def client(self) -> SubmitClient:
        return SubmitClient(self._settings.paths.submit_socket, timeout=30)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP, and wait until it holds: until then a thread may still answer on another core."""
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate(timeout=30)

    def stop(self) -> int:
        """As systemd does; returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        self.output, _ = self._process.communicate(timeout=30)
        return self._process.returncode


def run_and_fail(settings_environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `advisor serve` where it is expected to end by itself."""
    return subprocess.run(
        COMMAND,
        env={**os.environ, **settings_environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
