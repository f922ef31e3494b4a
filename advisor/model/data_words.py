"""The data that a job brings to the cloud and takes back: ``--comment=data=20GB``. Pure."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

_WORD: Final = re.compile(r"(?:^|[\s,;])data(-out)?=([^\s,;]{0,32})", re.IGNORECASE)
_SIZE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s?([KMGTP])(i?)B?", re.IGNORECASE | re.ASCII)
_POWER: Final = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_GB: Final = 1e9
HOW_TO_WRITE: Final = "data=20GB, data-out=5GB"


class DataNeed(NamedTuple):
    """The data that one job copies to and from the cloud, GB of 1e9 bytes; NaN: the text is not a size."""

    gb_in: float
    gb_out: float

    @property
    def is_known(self) -> bool:
        """Whether both are sizes."""
        return math.isfinite(self.gb_in) and math.isfinite(self.gb_out)


def size_gb(text: str) -> float:
    """A size such as ``20GB``, ``1.5T`` or ``512MiB`` in GB of 1e9 bytes; NaN where it is none."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return math.nan
    base = 1024.0 if found[3] else 1000.0
    return float(found[1]) * base ** _POWER[found[2].upper()] / _GB


def data_of(comment: str | None) -> DataNeed | None:
    """The data that a comment names after ``data=`` and ``data-out=``; None if it has neither.

    The last of several words of one kind counts.
    """
    if not comment or "=" not in comment:
        return None
    said = {bool(out): size_gb(size) for out, size in _WORD.findall(comment)}
    return DataNeed(said.get(False, 0.0), said.get(True, 0.0)) if said else None
