"""Hide passwords in the settings that commands show, and that the history of changes keeps. No I/O."""

from __future__ import annotations

import re
from typing import Any, Final

_PASSWORD: Final = re.compile(r"(?<=://)([^:/?#\s]*):([^/?#\s]*)@")
_IN_QUERY: Final = re.compile(r"(?<=[?&])(password|passwd|pwd)=[^&#\s]*", re.IGNORECASE)


def redacted(value: Any) -> Any:
    """The value of a setting as it may be shown: a password in a URL is three stars."""
    if not isinstance(value, str):
        return value
    return _IN_QUERY.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", value))


def has_password(url: str | None) -> bool:
    """Whether a URL has a password."""
    return url is not None and redacted(url) != url
