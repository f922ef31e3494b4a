"""Spot traces: how many instances of one kind were alive at each tick, as collected for "Can't Be Late"."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.model.errors import BadInput

_MAX_BYTES: Final = 200_000_000


class SpotCounts(NamedTuple):
    """Instances alive, or to be had, at ticks ``gap_seconds`` apart; counts of shape (ticks,)."""

    gap_seconds: float
    counts: NDArray[np.float64]


def read_spot_counts(path: Path) -> SpotCounts:
    """Read JSON with ``metadata.gap_seconds`` and ``data``, plain or gzip.

    Raises:
        BadInput: The file cannot be read, or is no such trace.
    """
    try:
        document = json.loads(text_of(path))
        gap, alive = float(document["metadata"]["gap_seconds"]), np.array(document["data"], np.float64)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise malformed(path, f"not a spot trace ({error})", "metadata.gap_seconds and data") from None
    is_count = alive.ndim == 1 and alive.size > 0 and bool(np.all((alive >= 0.0) & (alive < np.inf)))
    if not is_count or not 0.0 < gap < np.inf or not alive.max() > 0.0:
        raise malformed(path, "its data are no counts of instances", "counts from 0 on, not all 0, and a gap")
    return SpotCounts(gap, alive)


def text_of(path: Path) -> str:
    """The text of a file, plain or gzip.

    Raises:
        BadInput: It cannot be read.
    """
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(raw)) as packed:
                raw = packed.read(_MAX_BYTES)
        return raw.decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text or gzip file"
        raise malformed(path, f"cannot read it ({reason})", "a readable file") from None


def malformed(path: Path, what: str, needed: str) -> BadInput:
    """The error of a trace that cannot be used."""
    return BadInput(what, where=str(path), mend=f"Give {needed}", code="rehearse.trace")
