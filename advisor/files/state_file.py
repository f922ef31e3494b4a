"""One small JSON file that survives crashes: written beside, flushed to disk, put in place by rename."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import structlog

from advisor.files.whole_file import read_plain_file, set_aside
from advisor.model.errors import BadInput, RetryLater

_MAX_BYTES: Final = 256 * 1024 * 1024

_log = structlog.get_logger("advisor.history")


class StateFile:
    """A JSON object on disk.

    Parameters
    ----------
    path : Path
        The file; its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """Return the object; an empty one where there is none.

        One that cannot be used is empty, too, never a crash: it is said, and set aside for people to look at.
        Whoever has to know calls `load`.
        """
        try:
            return self.load() or {}
        except RetryLater as error:
            _log.warning("state.not_read", file=str(self.path), why=str(error))
        except BadInput as error:
            self.set_aside(str(error))
        return {}

    def load(self) -> dict[str, Any] | None:
        """Return the object; None where there is none.

        Raises
        ------
        BadInput
            It is damaged or cannot be read (``state.damaged``, ``file.unusable``).
        RetryLater
            This process cannot open it for the moment.
        """
        try:
            content = json.loads(read_plain_file(self.path, _MAX_BYTES))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise self.damaged(str(error)) from None
        if not isinstance(content, dict):
            raise self.damaged("it is no JSON object")
        return content

    def damaged(self, why: str) -> BadInput:
        """The error that says what is wrong with the content."""
        mend = "It is kept beside, with the ending .bad"
        return BadInput(f"damaged ({why[:200]})", where=str(self.path), mend=mend, code="state.damaged")

    def set_aside(self, why: str) -> None:
        """Rename a file that cannot be used, and say so."""
        try:
            kept = str(set_aside(self.path))
        except OSError as error:
            kept = f"not possible ({error.strerror}): it is replaced"
        _log.error("state.damaged", file=str(self.path), why=why[:300], kept=kept)

    def write(self, content: dict[str, Any]) -> None:
        """Replace the object; after this returns it survives a power cut.

        Raises
        ------
        OSError
            The disk is full, the folder not there or not ours; the old object stays.
        """
        replace_durably(self.path, json.dumps(content, separators=(",", ":")))

    def write_after(self, previous: StateFile, content: dict[str, Any]) -> None:
        """The same; what was there until now stays as another file, should this one be damaged.

        Raises
        ------
        OSError
            As `write`.
        """
        new = previous.path.with_name(previous.path.name + ".new")
        try:
            new.unlink(missing_ok=True)
            new.hardlink_to(self.path)
            new.replace(previous.path)
        except FileNotFoundError:
            pass  # the first one
        except OSError:  # some file systems have no hard links: no copy is better than one that grows old
            previous.path.unlink(missing_ok=True)
        self.write(content)

    def keep(self, content: dict[str, Any], event: str) -> None:
        """The same for what its owner has in memory anyway: a disk that is full is logged as ``event``."""
        try:
            self.write(content)
        except OSError as error:
            _log.warning(event, file=str(self.path), error=error.strerror)


def replace_durably(path: Path, text: str) -> None:
    """Put a text in a file's place: whoever reads sees the old or the new one, also after a power cut."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
