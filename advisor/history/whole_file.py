"""Files that others read while they are written: there is the old one or the new one, never half."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Put a new file in place of an old one.

    Not synced to the disk: after a power cut the old file, or none, is as good.

    Raises
    ------
    OSError
        The folder is missing, full or not writable; the old file stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
