"""Parts of error messages about settings: what a value must be, and which name was probably meant. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from advisor.config.definitions import RETIRED, Definition, by_key, variable_of

_WRONG: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bool_parsing": "is neither true nor false",
        "bool_type": "is neither true nor false",
        "dict_type": "is not a table",
        "enum": "is not one of the allowed words",
        "finite_number": "is not a finite number",
        "float_parsing": "is not a number",
        "float_type": "is not a number",
        "greater_than": "is too small",
        "greater_than_equal": "is too small",
        "int_from_float": "is not a whole number",
        "int_parsing": "is not a whole number",
        "int_type": "is not a whole number",
        "less_than": "is too large",
        "less_than_equal": "is too large",
        "literal_error": "is not one of the allowed words",
        "path_type": "is not a path",
        "string_pattern_mismatch": "does not have the allowed form",
        "string_too_long": "is too long",
        "string_too_short": "is too short",
        "string_type": "is not a text",
        "tuple_type": "is not a list",
    }
)
"""Pydantic's error type to the text of the error."""
_RETIRED: Final = {
    name: mend for key, mend in RETIRED.items() for name in (key, variable_of(*key.split(".")))
}


def describe(definition: Definition) -> str:
    """What a value must be, in words."""
    unit = f" in {definition.unit}" if definition.unit else ""
    limits = f", {definition.limits}" if definition.limits else ""
    return f"{definition.form or definition.kind}{unit}{limits}"


def what_is_wrong(error: Mapping[str, Any]) -> str:
    """What is wrong with a single value, from one of pydantic's errors."""
    if words := _WRONG.get(error["type"]):
        return f"{error['input']!r:.80} {words}"
    message = error["msg"].removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]}, got {error['input']!r:.80}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``Did you mean x?``, with the nearest known word; for a retired setting what has replaced it."""
    if word in _RETIRED:
        return _RETIRED[word]
    candidates = list(known)
    near = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    if not near and "." in word:  # the right name in the wrong section
        name = word.split(".", 1)[1]
        near = [key for key in candidates if key.endswith(f".{name}")][:1]
    if not near and "." not in word:  # a setting outside its section
        near = [key for key in by_key() if key.endswith(f".{word}")][:1]
    return f"Did you mean {near[0]}?" if near else "`advisor config show --expert` lists them all"
