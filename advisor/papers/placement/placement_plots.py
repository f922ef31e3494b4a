"""The page of ``advisor replay placement``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from advisor.papers.plot_lines import lines
from advisor.service.admin.plots import styled, write_page


def write_placement(path: Path, result: dict[str, Any]) -> None:
    """Write the page of ``advisor replay placement``.

    Raises:
        BadInput: The file cannot be written.
    """
    rows = result["rows"]
    factors = [row["factor"] for row in rows]
    ways = [way for way in ("optimal", "without_cutoff", "with_cutoff", "advisor") if way in rows[0]]
    share = {
        way: (factors, [row[way]["fraction_of_optimal"] for row in rows]) for way in ways if way != "optimal"
    }
    jobs = {way: (factors, [row[way]["cloud_jobs"] for row in rows]) for way in ways}
    figures = [
        styled(lines(share), "Share of the clairvoyant's saved time", "fraction of optimal"),
        styled(lines(jobs), "Jobs sent to the cloud", "jobs"),
    ]
    for figure in figures:
        figure.update_xaxes(title="overhead factor o of s(c) = o c + i", type="log")
    figures += _hedge_figures(rows, factors, result.get("hedge_curve", ()))
    about = f"{result['jobs']:,} jobs advised one by one from what was known at their submission."
    write_page(path, f"Placement on {result['trace']}", about, figures)


def _hedge_figures(
    rows: Sequence[Mapping[str, Any]], factors: Sequence[float], curve: Sequence[Mapping[str, float]]
) -> list[go.Figure]:
    """Hedged starts by overhead, and what core-hours buy with and without forecasts; none if not replayed."""
    if not curve:
        return []
    by_budget = {
        f"budget {one['budget']:g}": (factors, [row["hedged"][number]["fraction_of_optimal"] for row in rows])
        for number, one in enumerate(rows[0]["hedged"])
    }
    shares = styled(lines(by_budget), "Hedged starts: share of the clairvoyant's saved time", "fraction")
    shares.update_xaxes(title="overhead factor o of s(c) = o c + i", type="log")
    ways = {
        name: ([point[f"core_hours_{key}"] for point in curve], [point[key] for point in curve])
        for name, key in (("with forecasts", "with_forecasts"), ("one stop-loss", "without_forecasts"))
    }
    bought = styled(lines(ways), "What cloud core-hours buy, mean over the overheads", "fraction of optimal")
    bought.update_xaxes(title="core-hours spent, as a multiple of the clairvoyant's", type="log")
    return [shares, bought]
