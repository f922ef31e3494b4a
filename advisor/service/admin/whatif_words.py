"""The table of what-if results, for the command and for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.decide.explanation.display import duration, money

Row = Mapping[str, Any]
CLAIRVOYANT = "clairvoyant"
"""Name of the row of decisions that knew all waits and run times: the best possible, no job is slower."""


def whatif_table(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and cells, the settings' names first; the column of hedged jobs only where there are any.

    "of the best" is the share of the saved turnaround that the clairvoyant saves.
    """
    columns = {
        "settings": [str(row["settings"]) for row in rows],
        "moved": [f"{row['cloud_jobs']:,}" for row in rows],
        "hedged": [f"{row['hedged_jobs']:,}" for row in rows],
        "slower": ["-" if row["settings"] == CLAIRVOYANT else f"{row['slower_jobs']:,}" for row in rows],
        "turnaround saved": [_time(row["saved_seconds"]) for row in rows],
        "of the best": [percent(row["fraction_of_optimal"]) for row in rows],
        "mean turnaround": [_time(row["mean_turnaround_seconds"]) for row in rows],
        "cost, USD": [money(row["cost_usd"]) for row in rows],
        "dearest day, USD": [money(row["dearest_day_usd"]) for row in rows],
    }
    if not any(row["hedged_jobs"] for row in rows):
        del columns["hedged"]
    return tuple(columns), list(zip(*columns.values(), strict=True))


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def percent(share: float | None) -> str:
    """A fraction as a whole percentage; a dash where it is unknown (None or NaN)."""
    return "-" if share is None or math.isnan(share) else f"{share:.0%}"
