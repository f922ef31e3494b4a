"""The page of ``advisor replay classify``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from advisor.papers.plot_lines import lines
from advisor.service.admin.plots import styled, write_page


def write_classify(path: Path, result: dict[str, Any]) -> None:
    """Write the page of ``advisor replay classify``.

    Raises:
        BadInput: The file cannot be written.
    """
    weeks = result["weeks"]
    numbers = [week["week"] for week in weeks]

    def weekly(measure: str) -> go.Figure:
        return lines(
            {mode: (numbers, [week["modes"][mode][measure] for week in weeks]) for mode in result["modes"]}
        )

    figures = [
        styled(weekly("accuracy"), "Accuracy of each week, by the model of the weeks before", "accuracy"),
        styled(weekly("false_small_share"), "Large jobs classed small", "share of jobs"),
        styled(
            lines({"divider": (numbers, [week["divider_seconds"] for week in weeks])}),
            "Divider in force: median run time of the jobs finished before the week",
            "seconds",
        ),
    ]
    for figure in figures:
        figure.update_xaxes(title="week")
    about = f"{result['jobs_judged']:,} jobs judged; a job is small when it runs shorter than the divider."
    write_page(path, f"Small or large: {result['trace']}", about, figures)
