"""Logs that were read before: parsed once, then taken from `joblib.Memory` in the user's cache folder.

A log is known by the hash of its bytes, and by that of the code that reads it. The folder is
``$XDG_CACHE_HOME/burst-advisor``, else ``~/.cache/burst-advisor``; what lies there is executed when it is
loaded (pickle), so the folder is used only where it belongs to this user and no other user can write it.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any, Final

from advisor.history import _swf_header, _swf_rows, swf
from advisor.model import table as table_module
from advisor.model.table import JobTable

_FOLDER: Final = "burst-advisor"
_MAX_BYTES: Final = 1 << 30
_SMALLEST_LOG: Final = 100_000  # bytes; a smaller one is read as fast as it is looked up


def read(path: Path, *, keep: swf.Keep, progress: swf.Progress | None) -> JobTable:
    """See :func:`advisor.history.swf.read_table`; a log that was read before comes from the cache."""
    memory = _memory()
    if memory is None or not path.is_file() or path.stat().st_size < _SMALLEST_LOG:
        return swf.read_table(path, keep=keep, progress=progress)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    parse = memory.cache(_parse, ignore=["path", "progress"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joblib warns of a damaged entry, and reads the log anew
        found: JobTable = parse(path, progress, digest=digest, code=_code(), keep=keep, name=path.name)
    memory.reduce_size(bytes_limit=_MAX_BYTES)
    return found


def _parse(
    path: Path, progress: swf.Progress | None, *, digest: str, code: str, keep: swf.Keep, name: str
) -> JobTable:
    """Read a log; the arguments behind the star are what it is known by."""
    del digest, code, name
    return swf.read_table(path, keep=keep, progress=progress)


@cache
def _code() -> str:
    """Hash of the modules that make a table of a log."""
    modules = (swf, _swf_rows, _swf_header, table_module)
    sources = b"".join(Path(str(module.__file__)).read_bytes() for module in modules)
    return hashlib.sha256(sources).hexdigest()


def _memory() -> Any | None:
    """The cache; None where there is no folder that this user alone can write."""
    from joblib import Memory  # noqa: PLC0415 (only where a log is read)

    home = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(home) if home else Path.home() / ".cache") / _FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):  # no home
        return None
    if status.st_uid != os.geteuid() or status.st_mode & 0o022 or not os.access(folder, os.W_OK):
        return None
    return Memory(folder, verbose=0)
