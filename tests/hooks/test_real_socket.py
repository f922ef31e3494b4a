"""The hook with Debian's Lua 5.1 and lua-socket against real servers, good and bad."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.answers import answer_to
from tests.hooks.slurm_double import HOOK
from tests.service.processes import ServeProcess
from tests.service.site import make_settings

DRIVER = Path(__file__).parent / "driver.lua"


@dataclass
class Outcome:
    """One submission."""

    code: int
    seconds: float
    changes: str
    log: str


class HookProcess:
    """A Lua interpreter that keeps the hook loaded, as slurmctld does."""

    def __init__(self, folder: Path, path: Path, **settings: object) -> None:
        hook = folder / "job_submit.lua"
        shutil.copy(HOOK, hook)
        shutil.copy(HOOK.with_name("advisor_submit.lua"), folder)
        lines = [f"{name} = {value}\n" for name, value in {"socket": path, **settings}.items()]
        (folder / "advisor_hook.conf").write_text("".join(lines))
        self._process = subprocess.Popen(
            ["lua5.1", str(DRIVER), str(hook)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def submit(self, name: str = "job") -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        code, seconds, changes, log = self._process.stdout.readline().rstrip("\n").split("\t")
        return Outcome(int(code), float(seconds), changes, log)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[Callable[..., HookProcess]]:
    started: list[HookProcess] = []

    def start(path: Path, **settings: object) -> HookProcess:
        started.append(HookProcess(tmp_path, path, **settings))
        return started[-1]

    yield start
    for process in started:
        process.close()


def good_answer(line: bytes) -> bytes:
    return answer_to(line, partition="burst")


class BadServer:
    """Accepts, reads a line, does something silly."""

    def __init__(
        self, path: Path, act: Callable[[socket.socket, bytes], Any], *, accepts: bool = True
    ) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(0 if not accepts else 16)
        self._act = act
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        if accepts:
            self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._held.append(connection)
            try:
                line = connection.recv(65536)
                self._act(connection, line)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._thread.is_alive():
            self._thread.join(10)
        for connection in self._held:
            connection.close()


SILLY: dict[str, Callable[[socket.socket, bytes], Any]] = {
    "never answers": lambda _c, _line: None,
    "hangs up": lambda c, _line: c.close(),
    "half a line": lambda c, line: c.sendall(good_answer(line)[:15]),
    "half a line and hangs up": lambda c, line: (c.sendall(good_answer(line)[:15]), c.close()),
    "no frame": lambda c, line: c.sendall(good_answer(line)[6:]),
    "nonsense": lambda c, _line: c.sendall(b"\x00\xff{]\n"),
    "1 MB": lambda c, _line: c.sendall(b"x" * 1_000_000 + b"\n"),
    "someone else's answer": lambda c, line: c.sendall(good_answer(line.replace(b'"seq":', b'"seq":9'))),
}


@pytest.mark.parametrize("kind", SILLY)
def test_a_silly_server_changes_nothing(tmp_path: Path, hook: Callable[..., HookProcess], kind: str) -> None:
    path = tmp_path / "s"
    server = BadServer(path, SILLY[kind])
    lua = hook(path, breaker_failures=2, breaker_seconds=60)
    outcomes = [lua.submit() for _ in range(4)]
    server.close()
    assert [(outcome.code, outcome.changes) for outcome in outcomes] == [(0, "")] * 4
    assert "breaker open" in outcomes[1].log
    assert [outcome.log for outcome in outcomes[2:]] == ["", ""], "not even tried"


def test_a_server_that_does_not_accept(tmp_path: Path, hook: Callable[..., HookProcess]) -> None:
    path = tmp_path / "s"
    server = BadServer(path, SILLY["never answers"], accepts=False)
    fillers = []
    for _ in range(3):  # until its backlog is full
        filler = socket.socket(socket.AF_UNIX)
        filler.setblocking(False)
        fillers.append(filler)
        try:
            filler.connect(str(path))
        except BlockingIOError:
            break
    outcome = hook(path).submit()
    assert (outcome.code, outcome.changes) == (0, "")
    for filler in fillers:
        filler.close()
    server.close()


@pytest.mark.parametrize("kind", ["missing", "nobody listens", "a file"])
def test_no_server(tmp_path: Path, hook: Callable[..., HookProcess], kind: str) -> None:
    path = tmp_path / "s"
    if kind == "a file":
        path.write_text("")
    elif kind == "nobody listens":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    outcome = hook(path).submit()
    assert (outcome.code, outcome.changes) == (0, "")
    assert "no advice" in outcome.log


def test_an_interruption_is_over_when_it_is_over(tmp_path: Path, hook: Callable[..., HookProcess]) -> None:
    """Killed, stopped by SIGSTOP, restarted: the hook never fails a job, and asks again."""
    settings = make_settings(tmp_path)
    with ServeProcess(settings) as advisor:
        advisor.start()
        lua = hook(settings.paths.submit_socket, budget_ms=500, breaker_failures=2, breaker_seconds=3)
        name = "a 'quoted' \"name\" \\ \x07" + "x" * 10_000
        assert "admin_comment=" in submit_until_advised(lua, name).changes
        advisor.freeze()
        stopped = [lua.submit() for _ in range(4)]
        os.kill(advisor.pid, signal.SIGCONT)
        assert [outcome.changes for outcome in stopped] == [""] * 4
        assert "timeout" in stopped[0].log
        assert stopped[3].log == "", "the breaker is open: nothing is tried"
        submit_until_advised(lua)
        advisor.kill()
        assert lua.submit().changes == ""
        advisor.start()
        submit_until_advised(lua)
        lua.submit()  # answered after the books of the one before were closed
        with advisor.client() as client:
            text = client.metrics()
        assert "advisor_serve_hook_failed_total 0.0" not in text
        assert advisor.stop() == 0


def submit_until_advised(lua: HookProcess, name: str = "job") -> Outcome:
    pause = threading.Event()
    for _ in range(600):
        outcome = lua.submit(name)
        assert outcome.code == 0
        if outcome.changes:
            return outcome
        pause.wait(0.02)
    raise AssertionError(outcome.log)
