"""The page of `advisor replay portfolio`: every policy is there and told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from advisor.papers.portfolio import portfolio_plots

FIGURES = {"utility": 1.0, "mean_bounded_slowdown": 2.0, "charged_vm_hours": 10.0, "utilisation": 0.5}


def drawn(
    monkeypatch: pytest.MonkeyPatch, share: dict[str, list[float]], *billings: str
) -> tuple[str, list[go.Figure]]:
    """The words above and the figures of a replay's page."""
    seen: list[Any] = []
    monkeypatch.setattr(portfolio_plots, "write_page", lambda *given: seen.extend(given))
    portfolio_plots.write_portfolio(
        Path("page.html"),
        [
            {
                "trace": "log",
                "jobs": 9,
                "billing": billing,
                "release_rule": "charged by the second",
                "runtimes": "actual",
                "portfolio": FIGURES,
                "gain_over_best_constituent": 0.5,
                "gain_over_best_of_all": -0.25,
                "constituents": [{"policy": "ODA-FCFS-FirstFit", **FIGURES}],
                "beyond_the_paper": [{"policy": "ODA-WSPT-WorstFit+h4+bf", **FIGURES}],
                "invocations": {"ODA-FCFS-FirstFit": 1},
                "use": {"day": [0.0, 1.0], "share": share},
            }
            for billing in billings or ("second",)
        ],
    )
    return seen[2], seen[3]


def test_no_two_kinds_have_one_colour_and_shares_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least used of many kinds are drawn together."""
    share = {f"kind {n}": [n / 210.0, n / 210.0] for n in range(1, 21)}
    use = drawn(monkeypatch, share)[1][0].data
    assert len({scatter.line.color for scatter in use}) == len(use)
    assert use[0].name == "kind 20"
    assert use[-1].name == "others"
    assert sum(scatter.y[0] for scatter in use) == pytest.approx(1.0)


def test_a_single_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (use,) = drawn(monkeypatch, {"ODA-WSPT+h4+bf": [1.0, 1.0]})[1][0].data
    assert (use.name, use.showlegend) == ("ODA-WSPT+h4+bf", True)


def test_policies_beyond_the_paper_are_dots_too_and_both_gains_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    about, figures = drawn(monkeypatch, {"ODA-FCFS": [1.0, 1.0]})
    assert [dots.name for dots in figures[2].data] == ["ODA", "beyond the paper", "portfolio"]
    assert "+50.0 %" in about
    assert "-25.0 %" in about
    assert "Billing 'second': charged by the second" in about


def test_each_billing_has_its_figures_and_is_named_over_them(monkeypatch: pytest.MonkeyPatch) -> None:
    about, figures = drawn(monkeypatch, {"ODA-FCFS": [1.0, 1.0]}, "hour", "second")
    titles = [figure.layout.title.text for figure in figures]
    assert ["billing hour" in title for title in titles] == [True] * 3 + [False] * 3
    assert ["billing second" in title for title in titles] == [False] * 3 + [True] * 3
    assert "Billing 'hour'" in about
    assert "Billing 'second'" in about
