"""A what-if in words and as a table, for the command and for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.decide.explanation.display import duration, money
from advisor.service.admin.since import clock_text

Row = Mapping[str, Any]


def window_words(result: Mapping[str, Any]) -> str:
    """Which jobs are simulated, in a sentence or two."""
    begin = clock_text(result["since"])
    cloud = result["cloud_jobs"]
    words = f"{result['jobs']:,} jobs of {result['history']} since {begin}"
    words += f", simulated on {result['processors']:,} processors."
    if result["is_whole_history"]:
        words += f" The history is shorter than was asked for, since {clock_text(result['asked_since'])}."
    if cloud:
        words += (
            f" {cloud:,} of them ran in the cloud; they are simulated with the run time that they would "
            "have had on-premise."
        )
    return words


def whatif_table(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and cells, the settings' names first; the policies' only where they differ."""
    columns = {
        "settings": [str(row["settings"]) for row in rows],
        "policy": [str(row["policy"]) for row in rows],
        "budget, USD": ["no limit" if (usd := row["budget_usd"]) is None else money(usd) for row in rows],
        "cost, USD": [money(row["cost_usd"]) for row in rows],
        "saved": [duration(3600.0 * row["saved_hours"]) for row in rows],
        "mean wait": [duration(row["mean_wait_seconds"]) for row in rows],
        "95 % wait": [duration(row["p95_wait_seconds"]) for row in rows],
        "bounded slowdown": [f"{row['mean_bounded_slowdown']:,.2f}" for row in rows],
        "moved": [f"{row['moved_jobs']:,}" for row in rows],
        "later": [f"{row['later_share']:.1%}" for row in rows],
    }
    if len({row["policy"] for row in rows[1:]}) <= 1:
        del columns["policy"]
    return tuple(columns), list(zip(*columns.values(), strict=True))


def percent(share: float | None) -> str:
    """A fraction as a whole percentage; a dash where it is unknown (None or NaN)."""
    return "-" if share is None or math.isnan(share) else f"{share:.0%}"
