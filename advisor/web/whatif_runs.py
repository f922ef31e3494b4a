"""Runs of `advisor whatif` for the page: one at a time, in a process of low priority."""

from __future__ import annotations

import enum
import json
import os
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import structlog

from advisor.model.errors import RetryLater, TellAdmin

log = structlog.get_logger(__name__)

_FIELDS: Final = {"--since": "since", "--set": "settings"}
"""Name of the page's form field for each option of the command, so that errors name the field."""
MAX_SECONDS: Final = 1800.0
"""After that a what-if is ended: a month of a busy site takes a few minutes."""
_MAX_RUNS: Final = 20
_MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
_MAX_WORDS: Final = 2000
_LINE_CHARACTERS: Final = 4000
_ENVIRONMENT: Final = {
    "ADVISOR_PROGRESS": "json",
    "NO_COLOR": "1",
    "COLUMNS": "200",
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


class RunState(enum.StrEnum):
    """State of a run."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class Run:
    """One run.

    Attributes:
        since, changes: Values of ``--since`` and ``--set``.
        begun, ended: Epoch seconds.
        progress: Step to units done and all units.
        result: The command's JSON, when it has succeeded.
        exit_code, message: The command's exit code and error, when it has failed.
    """

    run_id: str
    since: str
    changes: tuple[str, ...]
    begun: float
    ended: float | None = None
    state: RunState = RunState.RUNNING
    progress: dict[str, tuple[int, int]] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    exit_code: int | None = None
    message: str = ""

    def as_data(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "run_id": self.run_id,
            "state": self.state.value,
            "since": self.since,
            "set": self.changes,
            "begun": self.begun,
            "ended": self.ended,
            "progress": [
                {"what": what, "done": done, "total": total}
                for what, (done, total) in list(self.progress.items())
            ],
            "exit_code": self.exit_code,
            "message": self.message,
            "result": self.result,
        }


class WhatIfRuns:
    """Starts runs, one at a time, and keeps the last 20.

    Args:
        command: Command line of ``advisor``.
        options: Further options, such as the settings file.
        niceness: Niceness of the process, from 0 to 19.
    """

    def __init__(self, command: Sequence[str], options: Sequence[str] = (), *, niceness: int = 19) -> None:
        self._niceness = niceness
        self._command = tuple(command)
        self._options = tuple(options)
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def all(self) -> list[Run]:
        """The last runs, newest first."""
        with self._lock:
            return list(self._runs.values())[::-1]

    def get(self, run_id: str) -> Run | None:
        """A run by its id; None if it is not kept."""
        with self._lock:
            return self._runs.get(run_id)

    def running(self) -> Run | None:
        """The run that has not ended; None if there is none."""
        return next((run for run in self.all() if run.state is RunState.RUNNING), None)

    def start(self, since: str, changes: Sequence[str], *, longest_seconds: float) -> Run:
        """Start a run, which is killed after ``longest_seconds``.

        Raises:
            RetryLater: Another one runs (``whatif.busy``).
            TellAdmin: The process cannot be started.
        """
        if self._thread is not None and self.running() is None:
            self._thread.join(5.0)  # one that was cancelled is about to end
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise RetryLater("another what-if runs: wait until it ends, or cancel it", code="whatif.busy")
            run = Run(secrets.token_urlsafe(9), since, tuple(changes), time.time())
            # option and value in one word, so that a value that begins with a dash is no option
            arguments = [f"--since={since}", *(f"--set={change}" for change in changes)]
            output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the thread that reads it
            try:
                self._process = self._spawn(arguments, output)
            except OSError as error:
                output.close()
                raise TellAdmin(
                    f"the what-if cannot be started: {self._command[0]} ({error.strerror}). "
                    "Check that this program is there and that memory is free",
                    code="whatif.start",
                ) from error
            self._runs[run.run_id] = run
            while len(self._runs) > _MAX_RUNS:
                self._runs.popitem(last=False)
            self._thread = threading.Thread(
                target=self._follow, args=(run, self._process, output, longest_seconds), name="whatif"
            )
            self._thread.start()
        log.info("web.whatif", run_id=run.run_id, since=since, changes=changes)
        return run

    def cancel(self, run_id: str) -> bool:
        """Cancel a run; False when it does not run."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or run.state is not RunState.RUNNING or self._process is None:
                return False
            run.state = RunState.CANCELLED
            _kill(self._process)
        return True

    def close(self) -> None:
        """Cancel the run that has not ended, and wait for its end."""
        run = self.running()
        if run is not None:
            self.cancel(run.run_id)
        if self._thread is not None:
            self._thread.join(5.0)

    def _spawn(self, arguments: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 - our own program, no shell, each value one word
            [*self._command, "whatif", "--format=json", *self._options, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            env={**os.environ, **_ENVIRONMENT},
            start_new_session=True,
        )
        with suppress(OSError):  # low priority, and the first to be killed when memory is short
            if self._niceness:
                os.setpriority(os.PRIO_PROCESS, process.pid, self._niceness)
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000", encoding="ascii")
        return process

    def _follow(
        self, run: Run, process: subprocess.Popen[bytes], output: IO[bytes], longest_seconds: float
    ) -> None:
        """Read progress and errors until the process ends, then its result."""
        words: list[str] = []
        deadline = threading.Timer(longest_seconds, _kill, (process,))
        deadline.daemon = True
        deadline.start()
        try:
            assert process.stderr is not None  # noqa: S101 - for the type checker: it is a pipe
            with process.stderr as said:
                while line := said.readline(_LINE_CHARACTERS):
                    _take(line.decode(errors="replace"), run, words)
            exit_code = process.wait()
            in_time = deadline.is_alive()
        finally:
            deadline.cancel()
        result = _result(output, exit_code)
        message = "" if result is not None else "".join(words)[-_MAX_WORDS:].strip()
        if not in_time and result is None:
            message = f"ended after {longest_seconds:g} s"
        with self._lock:
            run.ended = time.time()
            if run.state is RunState.CANCELLED:
                return
            run.exit_code, run.result, run.message = exit_code, result, message
            run.state = RunState.FAILED if result is None else RunState.DONE


def _take(line: str, run: Run, words: list[str]) -> None:
    """Take a line of standard error: progress, an error, or other text, of which the last lines are kept."""
    step: Any = None
    if line.startswith(('{"progress"', '{"error"')):
        with suppress(ValueError):
            step = json.loads(line)
    match step:
        case {"progress": str() as what, "done": int() as done, "total": int() as total}:
            run.progress[what] = (done, total)
        case {"error": {"what": str() as what, "where": str() as where, "mend": str() as mend}}:
            words.append(f"{_FIELDS.get(where.split()[0] if where else '', where)}: {what}. {mend}\n")
        case _:
            words.append(line)
            del words[:-50]


def _result(output: IO[bytes], exit_code: int) -> dict[str, Any] | None:
    with output:
        output.seek(0)
        text = output.read(_MAX_RESULT_BYTES + 1)
    if exit_code or len(text) > _MAX_RESULT_BYTES:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children; they write nothing that could stay incomplete."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
