"""Lines of a log."""

from __future__ import annotations

from pathlib import Path

LINE = "1 10 5 100 4 -1 -1 8 3600 -1 1 7 3 2 1 0 -1 -1"


def log(tmp_path: Path, *lines: str, name: str = "log.swf") -> Path:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path
