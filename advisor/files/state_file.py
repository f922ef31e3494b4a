"""One small JSON file that survives crashes, decoded and checked as one record type."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog

from advisor.files import fence
from advisor.files.whole_file import keeping_former, read_plain_file, replace_file, set_aside
from advisor.model.errors import AdvisorError, BadInput

_MAX_BYTES: Final = 256 * 1024 * 1024

_log = structlog.get_logger("advisor.files")

Record = TypeVar("Record")


class StateFile(Generic[Record]):
    """A record on disk.

    Args:
        path: The file; its folder must exist.
        record: A msgspec struct whose fields all have defaults, or a dict type: what the file holds, with the
            constraints that a value must meet. Called without arguments it is the record of a first start.
    """

    def __init__(self, path: Path, record: type[Record]) -> None:
        self.path = path
        self._record = record
        self._decoder = msgspec.json.Decoder(record)

    @property
    def former(self) -> StateFile[Record]:
        """The copy of the time before that `write_keeping_former` leaves."""
        return StateFile(self.path.with_name(self.path.name + ".old"), self._record)

    def read(self, *, sets_aside: bool = True) -> Record:
        """Return the record; that of a first start where there is no file, or none that can be used.

        A damaged file is logged and set aside. A caller to which the difference matters uses `load`.

        Args:
            sets_aside: False leaves a damaged file where it is: for who does not write it, and for dry runs.

        Raises:
            RetryLater: This process cannot open it for the moment; who writes it would replace it.
        """
        try:
            found = self.load()
        except AdvisorError as error:
            found = None
            if sets_aside and not isinstance(error, BadInput):
                raise
            if sets_aside:
                self.set_aside(str(error))
            else:
                _log.warning("state.not_read", file=str(self.path), why=str(error))
        return self._record() if found is None else found

    def load(self) -> Record | None:
        """Return the record; None where there is no file.

        Raises:
            BadInput: The file is damaged or cannot be read (``state.damaged``, ``file.unusable``).
            RetryLater: This process cannot open it for the moment.
        """
        try:
            return self._decoder.decode(read_plain_file(self.path, _MAX_BYTES))
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise self.damaged(str(error)) from None

    def damaged(self, why: str) -> BadInput:
        """The error that says what is wrong with the content."""
        mend = "The program that writes it renames it to .bad at its next start (docs/state-files.md)"
        return BadInput(f"damaged ({why[:200]})", where=str(self.path), mend=mend, code="state.damaged")

    def set_aside(self, why: str) -> None:
        """Rename a file that cannot be used, and log that."""
        try:
            kept = str(set_aside(self.path))
        except OSError as error:
            kept = f"not possible ({error.strerror}): it is replaced"
        _log.error("state.damaged", file=str(self.path), why=why[:300], kept=kept)

    def write(self, content: Record) -> None:
        """Replace the record; after this returns it survives a power cut.

        Raises:
            OSError: The disk is full, or the folder is missing or not writable; the old record stays.
            TellAdmin: Another process has the lease (`fence`); its record stays.
        """
        encoded = msgspec.json.encode(content, enc_hook=_plain)
        if (number := fence.number()) and isinstance(content, msgspec.Struct):
            separator = b"" if encoded == b"{}" else b","
            encoded = b'{"fence":%d%b%b' % (number, separator, encoded[1:])  # ignored by the decoder
        replace_file(self.path, encoded, durable=True, check=fence.check)

    def write_keeping_former(self, content: Record) -> None:
        """The same; the old record stays as `former`, should this one be damaged later.

        Raises:
            OSError: As `write`; `former` stays.
        """
        with keeping_former(self.path, self.former.path):
            self.write(content)

    def keep(self, content: Record, event: str) -> None:
        """The same for what the caller has in memory anyway: a full disk is logged as ``event``."""
        try:
            self.write(content)
        except OSError as error:
            _log.warning(event, file=str(self.path), error=error.strerror)


def _plain(value: object) -> float:
    """A plain number for one of numpy's, which msgspec does not know."""
    if isinstance(value, float):
        return float(value)
    raise NotImplementedError


def good_entries(entries: Iterable[msgspec.Raw], kind: type[Record], event: str) -> list[Record]:
    """Decode entries one by one; those that cannot be decoded are logged as ``event`` and left out."""
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
    found = []
    for entry in entries:
        try:
            found.append(decoder.decode(entry))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            _log.warning(event, error=str(error)[:200])
    return found
