"""One small JSON file that survives crashes: written beside, flushed to disk, put in place by rename."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import structlog

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
        """Return the object; a missing or unreadable file is an empty one, never a crash."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def write(self, content: dict[str, Any]) -> None:
        """Replace the object; after this returns it survives a power cut.

        Raises
        ------
        OSError
            The disk is full, the folder not there or not ours; the old object stays.
        """
        replace_durably(self.path, json.dumps(content, separators=(",", ":")))

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
