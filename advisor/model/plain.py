"""Conversion of records, arrays and enums to JSON types, for ``--format json`` and the pages."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """Convert to JSON types; NaN and infinities become null."""
    match value:
        case None | bool() | int() | str():
            return value.value if isinstance(value, enum.Enum) else value
        case float():
            return value if math.isfinite(value) else None
        case Path():
            return str(value)
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case msgspec.Struct():
            return plain(msgspec.structs.asdict(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)
