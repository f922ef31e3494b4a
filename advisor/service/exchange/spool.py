"""Advice on its way to the ledger: files of records, written off the hot path.

The submit server appends to a file that ends in ``.open`` and renames it to ``.spool`` when it is complete
(every few seconds, or at a size). `advisor control` reads, stores and deletes complete files only. A file
that a killed server left ``.open`` is completed at the next start; the reader skips a truncated last record.

A record is its length (four bytes, big-endian) and MessagePack, which takes some ten microseconds to encode.
The thread that has made an advice does that once its answer is sent. A thread that encoded many at a time
would compete with answers for the interpreter: the slowest hundredth of them took half as long again (0005).

The hot path never waits: records go through a bounded queue. When that is full, they are dropped and counted.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec
import structlog

from advisor.history.records import AdviceRecord
from advisor.model.errors import BadInput

if TYPE_CHECKING:  # `advisor serve` needs no database
    from advisor.history.ledger import Ledger

_WRITE_SECONDS: Final = 0.25
"""Period of the writer: a killed server loses at most these seconds of records."""
_BUFFER_BYTES: Final = 128 * 1024
_OPEN: Final = ".open"
_COMPLETE: Final = ".spool"
_LENGTH: Final = struct.Struct(">I")
_MAX_RECORD_BYTES: Final = 1024 * 1024

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(AdviceRecord)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SpoolFile:
    """One complete file's records, and the number of records that could not be read."""

    path: Path
    records: tuple[AdviceRecord, ...]
    unreadable: int


class SpoolWriter:
    """A bounded queue and a thread that writes it to one file at a time.

    Args:
        capacity: Records that may wait for the disk.
        rotate_seconds, rotate_bytes: Age and size at which a file is complete.
    """

    def __init__(
        self,
        folder: Path,
        *,
        capacity: int = 20_000,
        rotate_seconds: float = 2.0,
        rotate_bytes: int = 4 * 1024 * 1024,
    ) -> None:
        self._folder = folder
        self._rotate_seconds = rotate_seconds
        self._rotate_bytes = rotate_bytes
        self._capacity = capacity
        self._waiting: deque[bytes] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._file: IO[bytes] | None = None
        self._opened = 0.0
        self._bytes = 0
        self._files = 0
        self._buffered = 0
        self._failures = 0
        self.written = 0
        self.dropped = 0

    def start(self) -> None:
        """Create the folder, complete the files of an earlier process, start the thread.

        Raises:
            BadInput: The folder cannot be created or written to.
        """
        self.prepare()
        self._thread.start()

    def prepare(self) -> None:
        """Do what `start` does, without the thread."""
        try:
            self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            complete_leftovers(self._folder)
            probe = self._folder / f".probe-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise BadInput(
                f"the spool folder cannot be used ({error.strerror})",
                where=str(self._folder),
                mend="Set paths.state to a folder the advisor's user owns (systemd: StateDirectory=advisor)",
                code="spool.folder",
            ) from None

    def append(self, record: AdviceRecord) -> bool:
        """Queue one record without waiting; False when it was dropped.

        The thread is not woken: it comes at fixed times, so that it never takes the interpreter when the next
        question arrives.
        """
        if len(self._waiting) >= self._capacity:
            self.dropped += 1
            return False
        try:
            self._waiting.append(frame(record))
        except Exception:  # one record that cannot be encoded must not end the caller's connection
            self.dropped += 1
            log.exception("spool.record_not_written", advice=record.advice.advice_id, dropped=self.dropped)
            return False
        return True

    @property
    def waiting(self) -> int:
        """Records not yet written."""
        return len(self._waiting)

    def stop(self, timeout: float = 5.0) -> None:
        """Write the queue, complete the file and end the thread; wait at most ``timeout`` seconds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopping.wait(_WRITE_SECONDS):
            self._write_waiting()
            if self._file is not None and time.monotonic() - self._opened >= self._rotate_seconds:
                self._rotate()
        self.complete()

    def complete(self) -> None:
        """Write the queue and complete the file; for the thread, and for a caller that has started none."""
        self._write_waiting()
        self._rotate()

    def _write_waiting(self) -> None:
        for _ in range(len(self._waiting)):
            self._write(self._waiting.popleft())
        if self._buffered and self._file is not None:
            try:
                self._flush(self._file)
            except OSError as error:
                self._give_up(error)

    def _write(self, content: bytes) -> None:
        try:
            self._buffered += 1
            if self._file is None:
                self._file = self._open()
            self._bytes += self._file.write(content)
            if self._bytes >= self._rotate_bytes:
                self._rotate()
        except OSError as error:
            self._give_up(error)

    def _flush(self, file: IO[bytes]) -> None:
        file.flush()
        self.written += self._buffered
        self._buffered = 0

    def _give_up(self, error: OSError) -> None:
        """On a full disk: drop and count the buffered records; the server goes on answering."""
        file, self._file = self._file, None
        if file is not None:
            path = Path(file.name)
            with suppress(OSError):  # the buffer cannot be flushed: the same full disk
                file.close()
            with suppress(OSError):  # the next start completes it
                if path.stat().st_size:  # records that were written before
                    path.rename(path.with_suffix(_COMPLETE))
                else:
                    path.unlink()
        self.dropped += self._buffered
        self._buffered = 0
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...: each submission fails
            log.warning("spool.write_failed", error=error.strerror, dropped=self.dropped)

    def _open(self) -> IO[bytes]:
        self._files += 1
        self._opened = time.monotonic()
        self._bytes = 0
        name = f"advice-{time.time_ns()}-{os.getpid()}-{self._files}.{os.uname().nodename}{_OPEN}"
        return (self._folder / name).open("xb", buffering=_BUFFER_BYTES)

    def _rotate(self) -> None:
        file = self._file
        if file is None:
            return
        try:
            self._flush(file)
            os.fsync(file.fileno())
            file.close()
            path = Path(file.name)
            path.rename(path.with_suffix(_COMPLETE))
        except OSError as error:
            self._give_up(error)
        self._file = None


def complete_leftovers(folder: Path) -> int:
    """Complete files that a killed server of this host left open; return their number."""
    host = os.uname().nodename  # another one may share the folder, and its server write there
    leftovers = sorted(p for p in folder.glob(f"*{_OPEN}") if p.stem.partition(".")[2] in {"", host})
    for path in leftovers:
        path.rename(path.with_suffix(_COMPLETE))
    return len(leftovers)


def frame(record: AdviceRecord) -> bytes:
    """A record's bytes in a file."""
    content = _encoder.encode(record)
    return _LENGTH.pack(len(content)) + content


def collect(folder: Path, store: Ledger) -> None:
    """Move complete files into the ledger; a stored file is deleted. Two threads may do it at once."""
    for file in complete_files(folder):
        store.add_advice(file.records)
        file.path.unlink(missing_ok=True)
        if file.unreadable:
            log.warning("spool.unreadable_lines", file=file.path.name, lines=file.unreadable)


def complete_files(folder: Path) -> Iterator[SpoolFile]:
    """Complete files, oldest first, each read as a whole. The caller deletes a file once it is stored.

    A record that cannot be read is counted and skipped.

    Raises:
        OSError: After all others: a file cannot be read.
    """
    unread: OSError | None = None
    for path in sorted(folder.glob(f"*{_COMPLETE}")):
        records: list[AdviceRecord] = []
        unreadable = 0
        try:
            stored = path.read_bytes()
        except FileNotFoundError:
            continue  # another thread has stored it
        except OSError as error:
            unread = error
            continue
        for content in _frames(stored):
            try:
                records.append(_decoder.decode(content))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                unreadable += 1
        yield SpoolFile(path, tuple(records), unreadable)
    if unread is not None:
        raise unread


def _frames(content: bytes) -> Iterator[bytes]:
    """Each record's bytes; everything after a wrong length is one unreadable record."""
    position = 0
    while position < len(content):
        begin = position + _LENGTH.size
        length = _LENGTH.unpack_from(content, position)[0] if begin <= len(content) else 0
        if not 0 < length <= min(_MAX_RECORD_BYTES, len(content) - begin):
            yield b""
            return
        position = begin + length
        yield content[begin:position]
