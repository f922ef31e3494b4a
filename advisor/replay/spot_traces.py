"""Spot traces (``--spot-trace``): how many instances of one kind were alive at each tick.

They were collected for "Can't Be Late". Also what the papers' replays read files with: text, rows of a CSV.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Sequence
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
    return spot_counts(text_of(path), path)


def spot_counts(text: str, path: Path | str) -> SpotCounts:
    """The same of a file's text."""
    try:
        document = json.loads(text)
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


def csv_rows(text: str, path: Path | str, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV that has these columns, with the number of their line; a short row ends with None.

    Raises:
        BadInput: It has other columns, or is no CSV.
    """
    rows = csv.DictReader(io.StringIO(text, newline=None))
    try:
        if not set(rows.fieldnames or ()) >= set(columns):
            raise malformed(path, "columns are missing", f"a CSV whose first line reads {','.join(columns)}")
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise malformed(path, f"line {rows.line_num}: {error}", "a CSV") from None


def malformed(path: Path | str, what: str, needed: str) -> BadInput:
    """The error of a trace that cannot be used."""
    return BadInput(what, where=str(path), mend=f"Give {needed}", code="rehearse.trace")
