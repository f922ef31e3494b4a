"""One logging configuration: no locals in tracebacks, bounded lines, JSON or plain text."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
import structlog

from advisor.service.running import logs
from advisor.service.running.clock import Clock
from advisor.service.running.loops import LoopRunner, Step

SECRET = "TOPSECRETKEY1234567890"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root, hook = logging.getLogger(), threading.excepthook
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:], threading.excepthook = handlers, hook
    root.setLevel(level)


def fail(message: str = "") -> None:
    """A frame that holds a secret, as botocore's do."""
    secret_key = SECRET
    raise RuntimeError(f"{message}refused after {len(secret_key)} characters")


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_d1_no_traceback_shows_local_variables(stream: type[io.StringIO]) -> None:
    output = stream()
    logs.configure(output)
    try:
        fail()
    except RuntimeError:
        structlog.get_logger("test").exception("round.failed")
        logging.getLogger("uvicorn").exception("a library's words")
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    text = output.getvalue()
    assert text.count("RuntimeError: refused after 22 characters") == 3
    assert "library.message" in text
    assert "thread.ended" in text
    assert SECRET not in text


def test_d1_everything_written_has_a_bounded_length() -> None:
    output = io.StringIO()
    logs.configure(output)
    try:
        fail("x" * 100_000)
    except RuntimeError:
        structlog.get_logger("test").exception("round.failed", name="x" * 100_000, rows=["y" * 100] * 10_000)
    (line,) = output.getvalue().splitlines()
    event = json.loads(line)
    assert len(event["exception"]) == logs.MAX_TRACEBACK_CHARACTERS
    assert event["exception"].endswith("refused after 22 characters")
    assert len(event["name"]) == len(event["rows"]) == logs.MAX_TEXT_CHARACTERS


def test_d1_a_librarys_message_is_told_once_and_botocores_errors_without_their_text() -> None:
    output = io.StringIO()
    logs.configure(output)
    for _ in range(100):
        try:
            fail(SECRET)
        except RuntimeError:
            logging.getLogger("botocore.credentials").warning("Refreshing failed", exc_info=True)
    events = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [event["times"] for event in events] == [1, 2, 4, 8, 16, 32, 64]
    assert {event["text"] for event in events} == {"Refreshing failed"}
    assert SECRET not in output.getvalue()


def test_a_terminal_reads_plain_lines_and_a_journal_json() -> None:
    shown, kept = Terminal(), io.StringIO()
    for output in (shown, kept):
        logs.configure(output)
        structlog.get_logger("test").warning("prices.old", hours=7, pool=None)
    assert "prices.old" in shown.getvalue()
    assert "hours=7" in shown.getvalue()
    event = json.loads(kept.getvalue())
    assert (event["event"], event["level"], event["hours"], event["pool"]) == (
        "prices.old",
        "warning",
        7,
        None,
    )


def test_f03_a_log_that_cannot_be_written_ends_no_loop() -> None:
    """Standard error may be a file on the disk that is full."""

    def crash() -> None:
        raise ValueError("a defect")

    loop = Mock(period_seconds=60.0, steps=lambda: (Step("plan", crash),))
    loop.name = "cloud"
    runner = LoopRunner(loop, Clock())
    with suppress(OSError), Path("/dev/full").open("w") as full:
        logs.configure(full)
        runner.run_once()
    assert runner.health.open_failures["plan"].message == "ValueError: a defect"


def test_a_library_that_logs_wrongly_goes_on_all_the_same() -> None:
    output = io.StringIO()
    logs.configure(output)
    logging.getLogger("paramiko").warning("%d hosts", "no number")
    assert json.loads(output.getvalue())["text"] == "%d hosts"


def test_the_journal_gets_the_level_of_each_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`journalctl -p warning` finds nothing otherwise; seen under a real systemd."""
    with (tmp_path / "journal").open("w") as journal, (tmp_path / "file").open("w") as file:
        found = (tmp_path / "journal").stat()
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        for stream in (journal, file):
            logs.configure(stream)
            structlog.get_logger("test").info("one")
            structlog.get_logger("test").warning("two")
            structlog.get_logger("test").exception("three", exc_info=ValueError("no"))
            logging.getLogger("library").critical("four")
    lines = (tmp_path / "journal").read_text().splitlines()
    others = (tmp_path / "file").read_text().splitlines()
    assert [line[:3] for line in lines] == ["<6>", "<4>", "<3>", "<2>"]
    assert [json.loads(line[3:])["event"] for line in lines] == ["one", "two", "three", "library.message"]
    assert [json.loads(line)["event"] for line in others] == ["one", "two", "three", "library.message"]
