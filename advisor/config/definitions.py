"""The definitions of all settings as data, for the loader, `config show` and the reference."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from advisor.model.settings import Settings

_KIND: dict[Any, str] = {
    float: "number",
    int: "whole number",
    bool: "true or false",
    str: "text",
    Path: "path",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One setting.

    Attributes:
        section, name: ``placement`` and ``boot_seconds`` of ``placement.boot_seconds``.
        choices: Allowed words; empty if any value of the kind is allowed.
        limits: Range in words, such as ``at least 0``; empty without one.
        form: The form of a text in words, such as ``one word``; empty without one.
        unit: Empty for a plain number or a text.
        default: The default value, of the setting's type.
        meaning, why: What the setting does, and why its default is what it is, in whole sentences.
        expert: True where few sites change it: it is shown in the expert table, and not in the sample.
        is_text: True if the value of an environment variable is taken as it is, False if it is read as TOML.
    """

    section: str
    name: str
    kind: str
    choices: tuple[str, ...]
    limits: str
    form: str
    unit: str
    default: Any
    meaning: str
    why: str
    expert: bool
    is_text: bool

    @property
    def key(self) -> str:
        """``section.name``."""
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """Environment variable that overrides it."""
        return variable_of(self.section, self.name)


def variable_of(section: str, name: str) -> str:
    """Environment variable that overrides a setting."""
    return f"ADVISOR_{section.upper()}__{name.upper()}"


RETIRED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "acquirer.rank": "It is the constant survival now; agarwal2023 ranks by the last change. Delete the "
        "line",
        "capacity.spot_interruptions": "It is the constant 2 now. Delete the line",
        "matching.horizon_seconds": "It is the constant 3600 s now. Delete the line",
        "placement.max_time_limit_factor": "It is the constant 4 now. Delete the line",
        "portfolio.judged_jobs": "It is the constant 1,000 jobs now. Delete the line",
        "size.trees": "It is the constant 80 now. Delete the line",
        "web.whatif_seconds": "It is the constant 1800 s now. Delete the line",
    }
)
"""Settings of 0.2.0 that no longer exist, by ``section.name``, and how to mend a file that still has them."""


def section_models() -> dict[str, type[BaseModel]]:
    """The sections in the order they are defined."""
    return {
        name: info.annotation
        for name, info in Settings.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
    }


@cache
def definitions() -> tuple[Definition, ...]:
    """Every setting, in the order of definition."""
    return tuple(_all())


@cache
def by_key() -> dict[str, Definition]:
    """Every setting by ``section.name``."""
    return {definition.key: definition for definition in definitions()}


def _all() -> Iterator[Definition]:
    for section, model in section_models().items():
        for name, info in model.model_fields.items():
            extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
            yield Definition(
                section=section,
                name=name,
                kind=_kind_of(info.annotation),
                choices=_choices_of(info.annotation),
                limits=_limits_of(info),
                form=str(extra.get("form", "")),
                unit=str(extra.get("unit", "")),
                default=info.get_default(call_default_factory=True),
                meaning=info.description or "",
                why=str(extra.get("why", "")),
                expert=bool(extra.get("expert", False)),
                is_text=_bare(info.annotation) not in (tuple, dict),
            )


def _optional(annotation: Any) -> Any:
    """``T`` of ``T | None``; anything else unchanged."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        parts = [part for part in typing.get_args(annotation) if part is not type(None)]
        return parts[0] if len(parts) == 1 else annotation
    return annotation


def _bare(annotation: Any) -> Any:
    inner = _optional(annotation)
    return typing.get_origin(inner) or inner


def _choices_of(annotation: Any) -> tuple[str, ...]:
    inner = _optional(annotation)
    if typing.get_origin(inner) is Literal:
        return tuple(str(choice) for choice in typing.get_args(inner))
    if isinstance(inner, type) and issubclass(inner, enum.Enum):
        return tuple(str(member.value) for member in inner)
    return ()


def _kind_of(annotation: Any) -> str:
    inner = _optional(annotation)
    optional = " or nothing" if inner is not annotation else ""
    if choices := _choices_of(inner):
        return " or ".join(f"`{choice}`" for choice in choices) + optional
    arguments = typing.get_args(inner)
    match typing.get_origin(inner):
        case builtin if builtin is tuple:
            return f"list of {_kind_of(arguments[0])}" + optional
        case builtin if builtin is dict:
            return f"table of name = {_kind_of(arguments[1])}" + optional
        case builtin if builtin is Annotated:
            return _kind_of(arguments[0]) + optional
    return _KIND.get(inner, "table") + optional


def _limits_of(info: FieldInfo) -> str:
    words = []
    for limit in info.metadata:
        match limit:
            case annotated_types.Ge(ge=value):
                words.append(f"at least {value:g}")
            case annotated_types.Gt(gt=value):
                words.append(f"more than {value:g}")
            case annotated_types.Le(le=value):
                words.append(f"at most {_number(value)}")
            case annotated_types.Lt(lt=value):
                words.append(f"less than {_number(value)}")
            case annotated_types.MinLen(min_length=value):
                words.append("not empty" if value == 1 else f"at least {value} characters")
    return ", ".join(words)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"
