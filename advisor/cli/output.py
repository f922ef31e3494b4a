"""Printing: for people by default, one JSON object for machines."""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.model.plain import plain


class Format(enum.StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[
    Format, typer.Option("--format", help="`text` for people, `json`: one object on standard output.")
]

stdout = Console()
stderr = Console(stderr=True)


def emit(result: Mapping[str, Any], output: Format, show: Callable[[Console], None]) -> None:
    """Print one result: ``show`` draws it for people, ``result`` itself is the JSON object."""
    if output is Format.JSON:
        sys.stdout.write(json.dumps(plain(result), allow_nan=False) + "\n")
        sys.stdout.flush()
    else:
        show(stdout)


@contextmanager
def ticking() -> Iterator[Callable[[str, int, int], None]]:
    """Bars on standard error, on a terminal only; yields ``tick(what, done, total)``, a bar for each.

    With ``ADVISOR_PROGRESS=json`` in the environment each step of a hundredth is a line of JSON on standard
    error instead, for the program that started this one.
    """
    if os.environ.get("ADVISOR_PROGRESS") == "json":
        yield _tell_steps()
        return
    from rich.progress import Progress, TaskID

    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        bars: dict[str, TaskID] = {}

        def tick(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done, total=total)

        yield tick


def _tell_steps() -> Callable[[str, int, int], None]:
    told: dict[str, int] = {}

    def tick(what: str, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        if told.get(what) != percent:
            told[what] = percent
            stderr.file.write(json.dumps({"progress": what, "done": done, "total": total}) + "\n")
            stderr.file.flush()

    return tick
