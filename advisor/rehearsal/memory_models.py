"""Models in memory: `advisor control` and `advisor serve` of a rehearsal share one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from advisor.history.models import ModelStore
from advisor.model.errors import UseFallback

_Saved = tuple[dict[str, NDArray[Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModels(ModelStore):
    """Keeps the newest version of each kind; nothing is packed, hashed or written."""

    kept: dict[str, tuple[str, _Saved]] = field(default_factory=dict)

    def save(self, kind: str, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> str:
        """See :class:`ModelStore`."""
        version = f"{int(self.current(kind) or 0) + 1:08d}"
        self.kept[kind] = version, ({name: array.copy() for name, array in arrays.items()}, dict(meta))
        return version

    def load(self, kind: str, version: str | None = None) -> _Saved:  # noqa: ARG002 -- there is one
        """See :class:`ModelStore`."""
        if kind not in self.kept:
            raise UseFallback(f"no {kind} model has been trained yet", code="models.none")
        return self.kept[kind][1]

    def current(self, kind: str) -> str | None:
        """See :class:`ModelStore`."""
        return self.kept[kind][0] if kind in self.kept else None

    def versions(self, kind: str) -> list[str]:
        """See :class:`ModelStore`."""
        return [self.kept[kind][0]] if kind in self.kept else []
