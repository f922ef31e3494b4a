"""A record that notes which of its fields somebody looks at."""

from __future__ import annotations

from typing import Any


class Watched:
    """A record, and the names of those of its fields that were looked at."""

    def __init__(self, record: Any) -> None:
        self._record = record
        self.seen = set[str]()

    def __getattr__(self, name: str) -> Any:
        self.seen.add(name)
        return getattr(self._record, name)
