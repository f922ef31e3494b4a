"""Find ``lsb.acct`` and its archives, and read them line by line from a position on.

mbatchd renames ``lsb.acct`` to ``lsb.acct.1``, and so on, when it begins a new file. So a file is identified
by its first record and not by its name.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from advisor.files.log_file import Malformed, Progress, iter_bytes, unreadable
from advisor.history.ingest_report import IngestReport
from advisor.history.sacct import EndedRun
from advisor.lsf.fields import Fields, MalformedRecord
from advisor.lsf.job_finish import (
    RECORD_TYPE,
    USUAL_TERMS,
    JobFinish,
    SiteTerms,
    read_job_finish,
    record_type,
)
from advisor.lsf.outcomes import has_ended, run_of
from advisor.model.errors import BadInput

_NAME: Final = "lsb.acct"
_MAX_LINE_BYTES: Final = 8 * 1024 * 1024  # a host name for each of 100,000 slots, twice
_NOT_LSB_ACCT_AFTER: Final = 1000  # after so many malformed lines without a good one the file is refused
_ONLY_IN_LSB_EVENTS: Final = "JOB_NEW"


class Place(NamedTuple):
    """How far a file has been read: bytes of its text, lines."""

    offset: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class AcctFile:
    """A file with at least one whole line.

    Attributes:
        fingerprint: Start of the SHA-256 of its first record; it identifies the file after mbatchd has
            renamed it.
        time: Time of its first record, epoch seconds; 0 where that line has none.
    """

    path: Path
    fingerprint: str
    time: int


def find_files(paths: Sequence[Path]) -> list[AcctFile]:
    """These files, and all ``lsb.acct*`` in these folders, oldest first.

    Files without a whole record, such as one that mbatchd has just begun, are left out.

    Raises:
        BadInput: A file cannot be read, or a folder has no ``lsb.acct``.
    """
    found: list[AcctFile] = []
    for path in paths:
        for file in _files_of(path):
            identity = _identify(file)
            if identity is not None:
                found.append(identity)
    return sorted(found, key=lambda file: file.time)


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        files = sorted(
            file
            for file in path.iterdir()
            if file.name.startswith(_NAME)
            and not file.name.endswith((".index", ".swp", "~"))
            and file.is_file()
        )
    except OSError as error:
        raise unreadable(path, error) from None
    if not files:
        raise BadInput(
            f"no file {_NAME} in the folder",
            where=str(path),
            mend="Give LSB_SHAREDIR/cluster_name/logdir, or the files themselves",
            code="lsf.no_files",
        )
    return files


def _identify(path: Path) -> AcctFile | None:
    for line in _lines(iter_bytes(path)):
        if line.text.startswith(b'"'):
            if not line.is_ended:
                return None
            return AcctFile(path, hashlib.sha256(line.text).hexdigest()[:20], _time_of(line.text))
        if line.text.strip() and not line.text.startswith(b"#"):
            # no record: the reader reports the line
            return AcctFile(path, hashlib.sha256(line.text).hexdigest()[:20], 0)
    return None


def _time_of(line: bytes) -> int:
    words = line.split(maxsplit=3)
    return int(words[2]) if len(words) > 2 and words[2].isdigit() and len(words[2]) < 16 else 0


class AcctReader:
    """Iterates over the ended runs of one file, from a place on.

    Args:
        place: The position from which to read. If no line ends just before this place, the file is not the
            one that was read before, and is read from its beginning.
        terms: The site's configuration.
        progress: Called with (bytes read, bytes in the file).

    Attributes:
        place: End of the line of the last run; at the end, the end of the last whole line.

    Raises:
        BadInput: While reading: the file cannot be read, is no ``lsb.acct``, or (``malformed="refuse"``) has
            a malformed line.
    """

    def __init__(
        self,
        file: AcctFile,
        *,
        report: IngestReport,
        place: Place = Place(),  # noqa: B008 - a tuple
        malformed: Malformed = "skip",
        terms: SiteTerms = USUAL_TERMS,
        progress: Progress | None = None,
    ) -> None:
        self.place = place
        self._path = file.path
        self._report = report
        self._malformed = malformed
        self._terms = terms
        self._progress = progress
        self._good = 0
        self._rejected = 0
        self._first_rejected = ""
        self._types: Counter[str] = Counter()

    def __iter__(self) -> Iterator[EndedRun]:
        for line in self._lines_from_place():
            if not line.is_ended:
                self._report.unended += 1
                break
            self.place = Place(self.place.offset + line.bytes, self.place.line + 1)
            run = self._run_in(line)
            if run is not None:
                yield run
        self._refuse_other_files()

    def _lines_from_place(self) -> Iterator[_Line]:
        if self.place.offset:
            # the byte before is a line end, unless this is not the file that was read
            blocks = iter_bytes(self._path, self._progress, skip=self.place.offset - 1)
            first = next(blocks, b"")
            if first.startswith(b"\n"):
                self._good = 1  # the part that was read before had good lines
                return _lines(_chain(first[1:], blocks))
            self.place = Place()
        return _lines(iter_bytes(self._path, self._progress))

    def _run_in(self, line: _Line) -> EndedRun | None:
        if not line.text.strip() or line.text.startswith(b"#"):
            return None
        text = line.text.decode("utf-8", "replace").rstrip("\r")
        try:
            record = self._record_in(text)
        except MalformedRecord as error:
            self._reject(str(error), text)
            return None
        if record is None:
            return None
        self._good += 1
        run = run_of(record, self._terms)
        if run is None:
            self._report.never_started += 1
        return run

    def _record_in(self, text: str) -> JobFinish | None:
        if len(text) > _MAX_LINE_BYTES:
            raise MalformedRecord(f"longer than {_MAX_LINE_BYTES:,} bytes")
        found = Fields(text)
        kind = record_type(found)
        self._types[kind] += 1
        if kind != RECORD_TYPE:
            self._report.other_records += 1
            return None
        record = read_job_finish(found)
        if not has_ended(record):
            raise MalformedRecord(f"status {record.status} is neither done nor exit")
        return record

    def _reject(self, reason: str, text: str) -> None:
        said = f"{reason}: {ascii(text[:80])[1:-1]}"
        self._first_rejected = self._first_rejected or f"line {self.place.line}: {said}"
        self._rejected += 1
        if self._malformed == "refuse":
            raise BadInput(
                f"malformed line ({said})",
                where=f"{self._path}, line {self.place.line}",
                mend="Correct or remove the line, or leave out --refuse-malformed, which skips such lines",
                code="lsf.malformed",
            )
        self._report.malformed_record(f"{self._path.name}, line {self.place.line}: {said}")
        if not self._good and self._rejected >= _NOT_LSB_ACCT_AFTER:
            self._refuse_other_files()

    def _refuse_other_files(self) -> None:
        if self._good or not (self._rejected or self._types[_ONLY_IN_LSB_EVENTS]):
            return
        if not self._rejected:
            what, mend = "this is lsb.events", "Give lsb.acct, which is in the same folder"
        elif self._types.total() > self._rejected:
            return  # records of other types, and a few malformed lines
        else:
            what = f"this has no record of lsb.acct ({self._first_rejected})"
            mend = 'Give LSF\'s lsb.acct: its lines begin with "JOB_FINISH"'
        raise BadInput(what, where=str(self._path), mend=mend, code="lsf.not_lsb_acct")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line without its line end (cut if it is too long), its full length, and whether it has a line end."""

    text: bytes
    bytes: int
    is_ended: bool


def _lines(blocks: Iterable[bytes]) -> Iterator[_Line]:
    """Split blocks at line ends; an endless line does not fill the memory."""
    held, dropped = b"", 0
    for block in blocks:
        *whole, rest = (held + block).split(b"\n")
        for text in whole:
            yield _Line(text, len(text) + 1 + dropped, is_ended=True)
            dropped = 0
        held = rest[: _MAX_LINE_BYTES + 1]
        dropped += len(rest) - len(held)
    if held:
        yield _Line(held, len(held) + dropped, is_ended=False)


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
