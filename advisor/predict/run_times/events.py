"""The order in which run times are learned from a history: as jobs are submitted and end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike


def submissions_and_ends(submits: ArrayLike, ends: ArrayLike) -> Iterator[tuple[int, bool]]:
    """Job and whether it ends, by time; at one moment ends come first, and earlier jobs before later ones.

    Args:
        submits, ends: Times of each job, seconds.
    """
    ended = np.asarray(ends)
    moments = np.concatenate([ended, np.asarray(submits)])
    for event in np.argsort(moments, kind="stable").tolist():
        yield event % len(ended), event < len(ended)
