"""The one logging configuration of every process: JSON for the journal, plain lines for a terminal.

The journal gets each line's level as well, so that `journalctl -p warning` finds what an admin looks for.

structlog's own default prints the local variables of every frame of a traceback. Frames of botocore hold the
credentials that it has just fetched, and frames of ours hold users' jobs. Tracebacks here never show locals,
and the length of everything that is written is bounded.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final, TextIO

import structlog

MAX_TEXT_CHARACTERS: Final = 2_000
"""Longest value of one field; what is longer comes from outside, such as a user or an API."""
MAX_TRACEBACK_CHARACTERS: Final = 8_000
"""Longest traceback: about 80 frames without locals."""
_CUT: Final = " [...] "
_PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}


def configure(stream: TextIO | None = None, *, level: int = logging.INFO) -> None:
    """Send what this process logs to one stream: plain lines to a terminal, else one JSON object a line.

    Warnings that libraries log through the standard library, and what ends a thread, go the same way.

    Args:
        stream: The stream to write to; standard error by default, because standard output belongs to a
            command's result.
    """
    to = sys.stderr if stream is None else stream
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        bounded,
    ]
    structlog.configure(
        processors=[*shared, _renderer(is_terminal=to.isatty(), is_journal=_is_journal(to))],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _UnfailingLogger(to),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_ToStructlog(logging.WARNING)]
    root.setLevel(logging.WARNING)
    threading.excepthook = _thread_failed


def _is_journal(stream: TextIO) -> bool:
    """Whether systemd has connected this stream to its journal (``JOURNAL_STREAM``, systemd.exec(5))."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):  # it has no file
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _renderer(*, is_terminal: bool, is_journal: bool) -> structlog.typing.Processor:
    """How one event becomes a line: `event key=value` for a terminal, one JSON object for everything else."""
    if is_terminal:
        return structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    render = structlog.processors.JSONRenderer(default=str, ensure_ascii=False)
    if not is_journal:
        return render

    def with_priority(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        """Put the level before the line, as sd-daemon(3) has it; journald takes it off again."""
        return f"<{_PRIORITIES[event['level']]}>{render(logger, method, event)!s}"

    return with_priority


def bounded(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cut every value that is too long in its middle; a traceback's end is what says most."""
    for name, value in event.items():
        limit = MAX_TRACEBACK_CHARACTERS if name == "exception" else MAX_TEXT_CHARACTERS
        if isinstance(value, str):
            event[name] = cut(value, limit)
        elif not isinstance(value, int | float | None):
            text = str(value)
            if len(text) > limit:
                event[name] = cut(text, limit)
    return event


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of a text: its first quarter and its end."""
    if len(text) <= limit:
        return text
    head = limit // 4
    return text[:head] + _CUT + text[len(text) - (limit - head - len(_CUT)) :]


class _UnfailingLogger(structlog.PrintLogger):
    """Drops a line that cannot be written (a full disk, a closed pipe), so that its caller goes on."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    debug = info = warning = error = critical = msg


class _ToStructlog(logging.Handler):
    """Hands what libraries log through the standard library to structlog.

    What comes from one line of code again and again is told the first, second, fourth, eighth ... time.
    Tracebacks of botocore are left out: the text of its errors repeats what `credential_process` printed.
    """

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._times: Counter[tuple[str, int]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        place = (record.pathname, record.lineno)
        self._times[place] = times = self._times[place] + 1
        if times & (times - 1):
            return
        exc_info = None if record.name.startswith("botocore") else record.exc_info
        log = structlog.get_logger(record.name)
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):  # its arguments do not fit it
            text = str(record.msg)
        log.log(
            record.levelno, "library.message", library=record.name, text=text, times=times, exc_info=exc_info
        )


def _thread_failed(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_type is SystemExit:
        return
    name = arguments.thread.name if arguments.thread is not None else ""
    error = arguments.exc_value
    structlog.get_logger(__name__).error("thread.ended", thread=name, exc_info=error)
