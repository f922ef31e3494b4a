"""What a setting is made of: type, default, unit, range and reason in one place."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


def setting(default: Any, reason: str, *, unit: str = "", **limits: Any) -> Any:
    """A field with its unit and the reason for its default."""
    return Field(default=default, description=reason, json_schema_extra={"unit": unit}, **limits)


class Section(BaseModel):
    """A group of settings: frozen, and a mistyped name is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
