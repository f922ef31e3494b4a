"""Our marked lines in the site's slurm.conf and job_submit.lua, which `advisor uninstall` takes out. Pure.

They stand between a line with ``BEGIN burst-advisor`` and one with ``END burst-advisor``, both comments.
"""

from __future__ import annotations

import re
from typing import Final

_BEGIN: Final = r"^[ \t]*(?:#|--)[ \t]*BEGIN burst-advisor\b"
_END: Final = r"^[ \t]*(?:#|--)[ \t]*END burst-advisor\b"
_BLOCK: Final = re.compile(rf"{_BEGIN}.*?{_END}[^\n]*(?:\n|\Z)", re.MULTILINE | re.DOTALL)
_MARK: Final = re.compile(rf"{_BEGIN}|{_END}", re.MULTILINE)


def without_marked_lines(text: str) -> str | None:
    """The text without our lines, all others as they are; None where it has none, or marks do not match."""
    marks = ["BEGIN" in mark for mark in _MARK.findall(text)]
    if not marks or marks != [True, False] * (len(marks) // 2):
        return None
    return _BLOCK.sub("", text)
