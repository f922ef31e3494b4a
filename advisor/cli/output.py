"""Printing: for people by default, one JSON object for machines."""

from __future__ import annotations

import enum
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console


class Format(enum.StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[
    Format, typer.Option("--format", help="`text` for people, `json`: one object on standard output.")
]

stdout = Console()
stderr = Console(stderr=True)


def plain(value: Any) -> Any:
    """Turn records, arrays and enums into what JSON knows; NaN and infinities become null."""
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


def emit(result: Mapping[str, Any], output: Format, show: Callable[[Console], None]) -> None:
    """Print one result: ``show`` draws it for people, ``result`` itself is the JSON object."""
    if output is Format.JSON:
        sys.stdout.write(json.dumps(plain(result), allow_nan=False) + "\n")
        sys.stdout.flush()
    else:
        show(stdout)


@contextmanager
def ticking() -> Iterator[Callable[[str, int, int], None]]:
    """Bars on standard error, on a terminal only; yields ``tick(what, done, total)``, a bar for each."""
    from rich.progress import Progress, TaskID

    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        bars: dict[str, TaskID] = {}

        def tick(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done, total=total)

        yield tick
