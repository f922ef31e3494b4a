"""Print results: text for people by default, or one JSON object for machines."""

from __future__ import annotations

import enum
import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.model.plain import plain


class Format(enum.StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[
    Format, typer.Option("--format", help="`text` for people, or `json`, one object on standard output.")
]

stderr = Console(stderr=True)


_is_wide: ContextVar[bool] = ContextVar("_is_wide", default=False)


def with_wide(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that takes ``--format`` the option ``--wide`` as well, once."""
    signature = inspect.signature(command, eval_str=True)
    if "output" not in signature.parameters or "wide" in signature.parameters:
        return command

    @functools.wraps(command)
    def run(*arguments: Any, wide: bool = False, **options: Any) -> Any:
        _is_wide.set(wide)
        return command(*arguments, **options)

    about = "Print each row on one line, as is always done where the output is no terminal."
    option = inspect.Parameter(
        "wide",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[bool, typer.Option("--wide", help=about)],
    )
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), option]
    )
    return run


def _console() -> Console:
    """Standard output; lines are wrapped on a terminal only, at blanks."""
    console = Console()
    return Console(soft_wrap=True) if _is_wide.get() or not console.is_terminal else console


def emit(result: Mapping[str, Any], output: Format, show: Callable[[Console], None]) -> None:
    """Print one result: ``show`` draws it for people, ``result`` itself is the JSON object."""
    if output is Format.JSON:
        sys.stdout.write(json.dumps(plain(result), allow_nan=False) + "\n")
        sys.stdout.flush()
    else:
        show(_console())
