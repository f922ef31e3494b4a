"""A job as the experts of `advisor.predict.run_times._histograms` know it: by numbers."""

from __future__ import annotations

from typing import NamedTuple


class JobNumbers(NamedTuple):
    """The properties of a job at its submission; names are numbers, -1 if unknown.

    Attributes:
        requested_seconds: Time limit; NaN where there is none.
    """

    user: int
    account: int
    executable: int
    queue: int
    processors: int
    requested_seconds: float
