"""Types of record fields, with the constraints that msgspec checks when it decodes a file."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

Amount: TypeAlias = Annotated[float, Meta(ge=0.0)]
"""Seconds, dollars or core-seconds: never negative; JSON knows neither NaN nor infinity."""
Count: TypeAlias = Annotated[int, Meta(ge=0)]
EpochSeconds: TypeAlias = Annotated[float, Meta(ge=0.0, lt=1e12)]
JobId: TypeAlias = Annotated[int, Meta(gt=0)]
