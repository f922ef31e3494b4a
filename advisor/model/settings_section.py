"""The definition of a setting: type, default, unit, range and reason in one place."""

from __future__ import annotations

from functools import lru_cache
from types import FunctionType
from typing import Annotated, Any, TypeVar, cast

import msgspec
from pydantic import BaseModel, ConfigDict, Field, JsonValue


def setting(
    default: Any,
    meaning: str,
    *,
    why: str,
    unit: str = "",
    form: str = "",
    expert: bool = False,
    **limits: Any,
) -> Any:
    """Define a setting.

    Args:
        meaning, why: What the setting does, and why its default is what it is, in whole sentences.
        form: What ``pattern`` allows, in words for an error message.
        expert: True where few sites change it: it is not in the sample, and in the expert table of
            docs/settings.md.
        limits: What pydantic checks: ``ge``, ``gt``, ``le``, ``pattern`` and the like.
    """
    extra: dict[str, JsonValue] = {"why": why, "unit": unit, "form": form, "expert": expert}
    return Field(default=default, description=meaning, json_schema_extra=extra, **limits)


class Section(BaseModel):
    """A group of settings: frozen, and a mistyped name is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


Dollars = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
"""An amount of money; infinity would read as a limit and be none."""
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]

AnySection = TypeVar("AnySection", bound=Section)


def for_reading(section: AnySection) -> AnySection:
    """The same settings, read ten times as fast: for code that runs inside ``sbatch``.

    pydantic's models have a ``__getattr__``, which keeps Python from remembering where an attribute is: 50 ns
    instead of 3 with warm caches, over a hundred times an answer. The values and the sections' own methods
    are the same, and properties are worked out here, once; copying, dumping and checking are left to the
    original.
    """
    values = {name: for_reading(value) if isinstance(value, Section) else value for name, value in section}
    values |= {name: getattr(section, name) for name in _own(type(section), property)}
    return cast("AnySection", _reading(type(section))(**values))


@lru_cache
def _reading(section: type[Section]) -> type[msgspec.Struct]:
    fields = [*section.model_fields, *_own(section, property)]
    return msgspec.defstruct(section.__name__, fields, namespace=_own(section, FunctionType), frozen=True)


def _own(section: type[Section], kind: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(section).items()
        if isinstance(value, kind) and not name.startswith("_")
    }
