"""Logs of jobs (SWF, lsb.acct, lsb.events) as files: blocks of plain and gzip text, and malformed lines."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, TypeAlias

from advisor.model.errors import BadInput

_BLOCK_BYTES = 4 * 1024 * 1024
MAX_LINE_BYTES = 8192  # real lines have under 150, comments under 500
_OTHER_FORMATS = {b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip", b"(\xb5/\xfd": "zstd"}

Malformed: TypeAlias = Literal["skip", "refuse"]
Progress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes read, bytes in the file); the latter is 0 for a pipe."""


@dataclass(frozen=True, slots=True)
class MalformedLine:
    """A line that is no job: its number (from 1), why, and its first bytes (escaped)."""

    number: int
    reason: str
    text: str


Report: TypeAlias = Callable[[MalformedLine], None]


@dataclass(slots=True)
class MalformedLines:
    """A report to pass to the readers: counts malformed lines and keeps the first ones.

    Attributes:
        first: The first ``keep`` of them.
    """

    keep: int = 20
    count: int = 0
    first: list[MalformedLine] = field(default_factory=list)

    def __call__(self, line: MalformedLine) -> None:
        """Take one report."""
        self.count += 1
        if len(self.first) < self.keep:
            self.first.append(line)


def unreadable(path: Path, error: OSError) -> BadInput:
    """Say why a file cannot be opened or written."""
    return BadInput(
        error.strerror or type(error).__name__,
        where=str(path),
        mend="Check the path and its permissions",
        code="trace.unreadable",
    )


def iter_bytes(path: Path, progress: Progress | None = None, *, skip: int = 0) -> Iterator[bytes]:
    """Blocks of the file's text, decompressed when its first bytes say gzip (whatever its name).

    The first ``skip`` bytes of the text are left out.

    Raises:
        BadInput: The file cannot be read, is compressed otherwise, or its gzip data are damaged or end too
            early.
    """
    try:
        with path.open("rb") as raw:
            total = os.fstat(raw.fileno()).st_size
            magic = raw.peek(8)[:8]
            for start, name in _OTHER_FORMATS.items():
                if magic.startswith(start):
                    raise BadInput(
                        f"this is a {name} file, which is not read directly",
                        where=str(path),
                        mend="Unpack it; plain text and gzip are read directly",
                        code="trace.compression",
                    )
            packed = magic.startswith(b"\x1f\x8b")
            stream: IO[bytes] = io.BufferedReader(gzip.GzipFile(fileobj=raw)) if packed else raw
            if skip:
                stream.seek(skip)
            while block := stream.read(_BLOCK_BYTES):
                if progress is not None:
                    progress(raw.tell() if total else 0, total)
                yield block
    except EOFError:
        raise BadInput(
            "the compressed data end in the middle",
            where=str(path),
            mend="The file was cut off: fetch or copy it again",
            code="trace.truncated",
        ) from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(
            f"the compressed data are damaged ({error})",
            where=str(path),
            mend="Fetch or copy the file again",
            code="trace.damaged",
        ) from None
    except OSError as error:
        raise unreadable(path, error) from None


def whole_lines(blocks: Iterator[bytes], max_line_bytes: int) -> Iterator[bytes]:
    """Cut blocks at line ends, so that each has whole lines only.

    A line without end is never held in memory: one byte more than `max_line_bytes` of it stays, by which it
    is found too long later.
    """
    held = b""
    for block in blocks:
        end = block.rfind(b"\n")
        if end < 0:
            held = (held + block)[: max_line_bytes + 1]
            continue
        yield held + block[: end + 1]
        held = block[end + 1 :][: max_line_bytes + 1]
    if held:
        yield held + b"\n"
