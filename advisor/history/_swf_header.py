"""What a log in Standard Workload Format says about itself, in the comments before its first job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from advisor.files.log_file import MAX_LINE_BYTES, iter_bytes, unreadable, whole_lines
from advisor.model.errors import BadInput

_FIELD = re.compile(r"\s*(\w+)\s*:\s*(.*)")
_FIRST_NUMBER = re.compile(r"[+-]?\d{1,15}")
_NAMED_NUMBER = re.compile(r"(-?\d{1,9})\s+(.*)")
_MAX_COMMENTS = 10_000
_MAX_HEADER_BYTES = 16 * 1024 * 1024  # a longer one is none: blank lines, or a text without line ends
MAX_COMMENT_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfHeader:
    """What a log says about itself.

    Attributes
    ----------
    unix_start_time : float
        Epoch seconds of time 0; 0 when unknown.
    utc_offset_seconds : float
        The site's offset from UTC in winter (``TimeZone``, else ``TimeZoneString``); 0 when unknown.
    time_zone : str or None
        ``TimeZoneString``, e.g. ``Europe/Stockholm``.
    max_processors, max_nodes : int
        Size of the machine; 0 when unknown. ``1664 (72, 1368, 224)`` counts as its first number.
    computer : str or None
        As written.
    queues, partitions : dict of int to str
        Names of the queue and partition numbers.
    comments : tuple of str
        Every comment line before the first job, without its ``;``.
    """

    unix_start_time: float = 0.0
    utc_offset_seconds: float = 0.0
    time_zone: str | None = None
    max_processors: int = 0
    max_nodes: int = 0
    computer: str | None = None
    queues: dict[int, str] = field(default_factory=dict)
    partitions: dict[int, str] = field(default_factory=dict)
    comments: tuple[str, ...] = ()


def read_header(path: str | Path) -> SwfHeader:
    """Read the comments before the first job.

    Raises
    ------
    BadInput
        The file cannot be read or is compressed in a way that is not gzip.
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
    """As much of a file as may be its header."""
    bytes_left = _MAX_HEADER_BYTES
    for block in blocks:
        yield block
        bytes_left -= len(block)
        if bytes_left <= 0:
            return


def _refuse_what_cannot_be_read_twice(path: Path) -> None:
    """A log is read once for its header and once for its jobs; a pipe would wait, or begin in the middle."""
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
    text = line.decode("utf-8", "replace").strip()
    if not text.startswith(";") or len(comments) >= _MAX_COMMENTS:
        return False
    comments.append(text.lstrip(";").rstrip()[:MAX_COMMENT_CHARACTERS])
    return True


def _header_of(comments: list[str]) -> SwfHeader:
    fields: dict[str, str] = {}
    names: dict[str, dict[int, str]] = {"Queue": {}, "Partition": {}}
    for comment in comments:
        match = _FIELD.match(comment)
        if not match:
            continue
        key, value = match[1], match[2].strip()
        if key in names and (named := _NAMED_NUMBER.match(value)):
            names[key].setdefault(int(named[1]), named[2].strip())
        else:
            fields.setdefault(key, value)
    start = _number(fields.get("UnixStartTime"))
    return SwfHeader(
        unix_start_time=float(start) if 0 < start < 1e11 else 0.0,
        utc_offset_seconds=_utc_offset(fields, start),
        time_zone=fields.get("TimeZoneString") or None,
        max_processors=max(0, _number(fields.get("MaxProcs"))),
        max_nodes=max(0, _number(fields.get("MaxNodes"))),
        computer=fields.get("Computer") or None,
        queues=names["Queue"],
        partitions=names["Partition"],
        comments=tuple(comments),
    )


def _number(text: str | None) -> int:
    """The first whole number in a header value; 0 without one."""
    match = _FIRST_NUMBER.search(text or "")
    return int(match[0]) if match else 0


def _utc_offset(fields: dict[str, str], start: int) -> float:
    """Offset from UTC in winter.

    ``TimeZone`` first although the archive calls it deprecated: the number is in the file, while a zone's
    name means what this machine's zone data say, and a replay must give the same result everywhere.
    """
    if "TimeZone" in fields:
        offset = _number(fields["TimeZone"])
        return float(offset) if abs(offset) <= 50400 else 0.0
    try:
        zone = ZoneInfo(fields.get("TimeZoneString", ""))
        now = datetime.fromtimestamp(max(0, min(start, 4_000_000_000)), UTC).astimezone(zone)
    except (ValueError, OSError):  # an unknown name is a ZoneInfoNotFoundError, which is a KeyError
        return 0.0
    except KeyError:
        return 0.0
    return ((now.utcoffset() or timedelta()) - (now.dst() or timedelta())).total_seconds()
