"""The plan of `advisor plan`, the cluster's size, in words."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from advisor.decide.explanation.display import duration

Point = Mapping[str, Any]


def plan_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]], list[int]]:
    """Headings, cells, and the row of the cheapest size.

    Each size has the cheapest budget that meets the target, or the one with the shortest wait if none does.
    """
    points = [
        _of_size(list(group)) for _, group in groupby(result["curve"], key=lambda point: point["cores"])
    ]
    headings = ["nodes", "cores", "owned", "cloud", "total USD a year", "mean wait", "bounded slowdown"]
    cells = [
        [
            f"{point['nodes']:,}",
            f"{point['cores']:,}",
            f"{point['own_usd_a_year']:,.0f}",
            f"{point['cloud_usd_a_year']:,.0f}",
            f"{point['cost_usd_a_year']:,.0f}",
            duration(point["mean_wait_seconds"]) + ("" if point["meets_target"] else " (too long)"),
            f"{point['mean_bounded_slowdown']:,.2f}",
        ]
        for point in points
    ]
    return headings, cells, [at for at, point in enumerate(points) if point == result["optimum"]]


def _of_size(points: list[Point]) -> Point:
    enough = [point for point in points if point["meets_target"]]
    if enough:
        return min(enough, key=lambda point: float(point["cost_usd_a_year"]))
    return min(points, key=lambda point: float(point["mean_wait_seconds"]))


def plan_words(result: Mapping[str, Any]) -> tuple[str, str]:
    """The text above the table (what was simulated), and the text below it (the answer)."""
    target = duration(result["target_wait_seconds"])
    first = (
        f"{result['jobs']:,} jobs of {result['days']:,.0f} days, simulated on {result['processors']:,} "
        "processors and on other sizes. "
        f"An owned core-hour costs {result['own_usd_per_core_hour']:.3g} USD, one in the "
        f"cloud {result['usd_per_core_hour']:.3g} USD. The mean wait may be {target}."
    )
    best = result["optimum"]
    if best is None:
        return first, f"No size and budget shown keeps the mean wait within {target}."
    return first, (
        f"Cheapest: {best['nodes']:,} nodes ({best['cores']:,} cores) and a budget of "
        f"{best['budget_usd_a_year'] / 12.0:,.0f} USD a month, together {best['cost_usd_a_year']:,.0f} USD a "
        "year. Sizes whose costs differ by less than a tenth are as good: one simulation varies by about 5 %."
    )
