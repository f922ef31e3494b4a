"""The header of a log in Standard Workload Format: the comments before its first job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from advisor.files.log_file import MAX_LINE_BYTES, iter_bytes, unreadable, whole_lines
from advisor.model.errors import BadInput

_FIELD = re.compile(r"\s*(\w+)\s*:\s*(.*)")
_FIRST_NUMBER = re.compile(r"[+-]?\d{1,15}")
_MAX_COMMENTS = 10_000
_MAX_HEADER_BYTES = 16 * 1024 * 1024
_MAX_COMMENT_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfHeader:
    """The fields of the header that are used, whatever the case of their names; 0 means unknown.

    Attributes:
        unix_start_time: Epoch seconds of the log's time 0.
        utc_offset_seconds: The site's offset from UTC in winter, from ``TimeZone``, else ``TimeZoneString``.
        max_processors: Size of the machine; ``1664 (72, 1368, 224)`` counts as its first number. The format
            has ``MaxProcs`` only where it differs from ``MaxNodes``, which counts without it.
    """

    unix_start_time: float = 0.0
    utc_offset_seconds: float = 0.0
    max_processors: int = 0


def read_header(path: str | Path) -> SwfHeader:
    """Read the comments before the first job.

    Raises:
        BadInput: The file cannot be read, or is compressed but not with gzip.
    """
    path = Path(path)
    _refuse_what_cannot_be_read_twice(path)
    comments: list[str] = []
    for block in whole_lines(_beginning(iter_bytes(path)), MAX_LINE_BYTES):
        for line in block.split(b"\n"):
            if line.strip() and not _take_comment(line, comments):
                return _header_of(comments)
    return _header_of(comments)


def _beginning(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The first 16 MiB of a file, in which its header must be."""
    bytes_left = _MAX_HEADER_BYTES
    for block in blocks:
        yield block
        bytes_left -= len(block)
        if bytes_left <= 0:
            return


def _refuse_what_cannot_be_read_twice(path: Path) -> None:
    """A log is read once for its header and once for its jobs, which a pipe does not allow."""
    try:
        is_plain = path.is_file() or not path.exists()
    except OSError as error:
        raise unreadable(path, error) from None
    if not is_plain and not path.is_dir():
        raise BadInput(
            "not a plain file, but a pipe or a device",
            where=str(path),
            mend="Write it into a file first: a log is read twice",
            code="trace.unreadable",
        )


def _take_comment(line: bytes, comments: list[str]) -> bool:
    """Keep a comment line; False when the line is not a comment or there are too many."""
    text = line.decode("utf-8", "replace").lstrip("\ufeff").strip()  # an editor's mark of its encoding
    if not text.startswith(";") or len(comments) >= _MAX_COMMENTS:
        return False
    comments.append(text.lstrip(";").rstrip()[:_MAX_COMMENT_CHARACTERS])
    return True


def _header_of(comments: list[str]) -> SwfHeader:
    fields: dict[str, str] = {}
    for comment in comments:
        if match := _FIELD.match(comment):
            fields.setdefault(match[1].lower(), match[2].strip())
    start = _number(fields.get("unixstarttime"))
    return SwfHeader(
        unix_start_time=float(start) if 0 < start < 1e11 else 0.0,
        utc_offset_seconds=_utc_offset(fields, start),
        max_processors=max(0, _number(fields.get("maxprocs"))) or max(0, _number(fields.get("maxnodes"))),
    )


def _number(text: str | None) -> int:
    """The first whole number in a header value; 0 without one."""
    match = _FIRST_NUMBER.search(text or "")
    return int(match[0]) if match else 0


def _utc_offset(fields: dict[str, str], start: int) -> float:
    """Offset from UTC in winter, seconds.

    The archive calls ``TimeZone`` deprecated, but it comes first here: it is a number, while the meaning of a
    zone's name depends on this machine's zone data, and a replay must give the same result everywhere.
    """
    if "timezone" in fields:
        offset = _number(fields["timezone"])
        return float(offset) if abs(offset) <= 50400 else 0.0
    try:
        zone = ZoneInfo(fields.get("timezonestring", ""))
        now = datetime.fromtimestamp(max(0, min(start, 4_000_000_000)), UTC).astimezone(zone)
    except (ValueError, OSError, KeyError):  # an unknown name is a ZoneInfoNotFoundError, which is a KeyError
        return 0.0
    return ((now.utcoffset() or timedelta()) - (now.dst() or timedelta())).total_seconds()
