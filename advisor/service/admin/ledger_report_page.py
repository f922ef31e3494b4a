"""The report as a page: one file with its plots inside, nothing fetched."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go

from advisor.decide.explanation.display import duration, usd
from advisor.service.admin.ledger_report import LedgerReport
from advisor.service.admin.money import IDLE, NO_ACCOUNT, money_in_words, money_rows
from advisor.service.admin.plots import COLOURS, styled, write_page

_MAX_REASONS: Final = 12
_MIN_DAYS: Final = 7
"""An axis of days is at least so wide: the first day's bar would else fill the plot."""
_MAX_TICKS: Final = 12
_DAY_MILLISECONDS: Final = 86_400_000
_KEPT, _MOVED, _SHADOW = COLOURS[4], COLOURS[0], COLOURS[1]


def write_report(path: Path, report: LedgerReport, title: str) -> None:
    """Write the page of ``advisor report``; raises BadInput when the file cannot be written."""
    summary = report.summary()
    write_page(
        path, title, about(summary), [*figures(report, summary), _accounts(summary), *_rows(summary["money"])]
    )


def figures(report: LedgerReport, summary: Mapping[str, Any]) -> list[go.Figure]:
    """Draw submissions and money by day, predicted against actual, and reasons; leave out empty figures."""
    waits, runs = report.waits.drawn(), report.runs.drawn()
    return [
        *([_decisions(summary["days"])] if summary["decisions"] else []),
        *_money(summary),
        *([_predicted(waits, "Waits of jobs that stayed: predicted and actual")] if waits else []),
        *([_predicted(runs, "Run times of jobs that stayed: predicted and actual")] if runs else []),
        *([_reasons(summary["reasons"])] if summary["reasons"] else []),
    ]


def about(summary: Mapping[str, Any]) -> str:
    """The report in a few sentences."""
    if not summary["decisions"] and not summary["money"].get("spent_usd"):
        return (
            "No submission got advice in this time. The first figures appear with the first job that is "
            "submitted, also in shadow mode; waits and run times are compared when jobs have ended."
        )
    said = [
        f"{summary['decisions']:,} submissions got advice: {summary['kept']:,} stayed on-premise, "
        f"{summary['moved']:,} were moved to the cloud"
        + (f", {summary['would_move']:,} would have been (shadow mode)." if summary["would_move"] else ".")
    ]
    if summary["moved"]:
        said.append(
            f"Those that have ended avoided an estimated {duration(summary['saved_seconds_estimate'])} of "
            f"waiting and cost {usd(summary['cost_usd'])}."
        )
    if summary["placed_by_users"]:
        said.append(
            f"{summary['placed_by_users']:,} more were put into the cloud by their users, for "
            f"{usd(summary['users_cost_usd'])}."
        )
    if money := money_in_words(summary["money"]):
        said.append(money)
    for name, key in (("Waits", "waits"), ("Run times", "runs")):
        error = summary[key]["mean_absolute_error_seconds"]
        if error is not None:
            said.append(f"The mean error of the others' predicted {name.lower()} is {duration(error)}.")
    return " ".join(said)


def _decisions(days: Sequence[Mapping[str, Any]]) -> go.Figure:
    figure = go.Figure()
    dates = [day["date"] for day in days]
    for name, key, colour in (
        ("stayed", "kept", _KEPT),
        ("moved", "moved", _MOVED),
        ("would have moved (shadow)", "would_move", _SHADOW),
    ):
        values = [day[key] for day in days]
        if any(values) or key != "would_move":
            figure.add_bar(name=name, x=dates, y=values, marker_color=colour)
    figure.update_layout(barmode="stack")
    return _by_day(styled(figure, "Submissions a day", "jobs"), dates)


def _by_day(figure: go.Figure, dates: Sequence[str]) -> go.Figure:
    """Give a figure of days an axis of days: at least a week wide, ticks at days only, nothing below 0."""
    if not dates:
        return figure
    first, last = date.fromisoformat(min(dates)), date.fromisoformat(max(dates))
    missing = max(0, _MIN_DAYS - 1 - (last - first).days)
    begin = datetime.combine(first, time(), UTC) - timedelta(days=missing / 2 + 0.5)
    end = datetime.combine(last, time(), UTC) + timedelta(days=missing / 2 + 0.5)
    every = max(1, ((last - first).days + missing) // _MAX_TICKS + 1)
    figure.update_xaxes(
        type="date",
        range=[begin.strftime("%Y-%m-%d %H:%M"), end.strftime("%Y-%m-%d %H:%M")],
        tick0=first.isoformat(),
        dtick=every * _DAY_MILLISECONDS,
        tickformat="%d %b",
    )
    figure.update_traces(width=0.8 * _DAY_MILLISECONDS, selector={"type": "bar"})
    figure.update_yaxes(rangemode="nonnegative")
    return figure


def _money(summary: Mapping[str, Any]) -> list[go.Figure]:
    days, paid = summary["days"], summary["money"].get("days", [])
    saved, spent = go.Figure(), go.Figure()
    saved.add_bar(
        x=[day["date"] for day in days],
        y=[day["saved_seconds_estimate"] / 3600.0 for day in days],
        marker_color=_MOVED,
    )
    rows = {
        "accounts": [math.fsum(day["by_account"].values()) for day in paid],
        NO_ACCOUNT: [day["no_account_usd"] for day in paid],
        IDLE: [day["idle_usd"] for day in paid],
    }
    for (name, amounts), colour in zip(rows.items(), (COLOURS[3], COLOURS[2], _KEPT), strict=True):
        spent.add_bar(name=name, x=[day["day"] for day in paid], y=amounts, marker_color=colour)
    spent.update_layout(barmode="stack")
    styled(saved, "Waiting avoided by the jobs of each day (an estimate)", "hours")
    styled(spent, "Spent on cloud nodes, by day of UTC", "US dollars")
    return [
        *([_by_day(saved, [day["date"] for day in days])] if summary["moved"] else []),
        *([_by_day(spent, [day["day"] for day in paid])] if summary["money"].get("spent_usd") else []),
    ]


def _predicted(pairs: Sequence[tuple[float, float]], title: str) -> go.Figure:
    """On logarithmic axes; what lasted less than a second counts as one."""
    figure = go.Figure()
    across, up = ([max(1.0, pair[side]) for pair in pairs] for side in (0, 1))
    figure.add_scatter(
        x=across, y=up, mode="markers", marker={"size": 6, "opacity": 0.7, "color": _MOVED}, name="jobs"
    )
    most = max((*across, *up, 60.0))
    figure.add_scatter(
        x=[1.0, most], y=[1.0, most], mode="lines", line={"color": _KEPT, "dash": "dash"}, name="as predicted"
    )
    top = math.log10(most) + 0.1
    ticks = {
        "type": "log",
        "range": [-0.1, top],
        "tickvals": [1, 10, 60, 600, 3600, 21_600, 86_400, 604_800],
        "ticktext": ["1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d", "1 w"],
    }
    figure.update_xaxes(title="predicted", **ticks)
    styled(figure, title, "actual")
    figure.update_yaxes(**ticks)
    return figure


def _reasons(reasons: Mapping[str, int]) -> go.Figure:
    most = list(reasons.items())[:_MAX_REASONS][::-1]
    figure = go.Figure()
    figure.add_bar(
        x=[count for _, count in most],
        y=[html.escape(name) for name, _ in most],
        orientation="h",
        marker_color=COLOURS[6],
    )
    styled(figure, "What decided", "")
    figure.update_layout(margin={"t": 60, "l": 220, "r": 20})
    figure.update_xaxes(title="jobs")
    return figure


def _accounts(summary: Mapping[str, Any]) -> go.Figure:
    accounts = summary["accounts"]
    columns = (
        [html.escape(one["account"]) if one["account"] != "-" else NO_ACCOUNT for one in accounts],
        [f"{one['jobs']:,}" for one in accounts],
        [f"{one['moved']:,}" for one in accounts],
        [f"{one['saved_seconds_estimate'] / 3600.0:,.1f} h" for one in accounts],
        [usd(one["cost_usd"]) for one in accounts],
    )
    headings = ["account", "jobs", "moved, ended", "avoided", "cost of those that ended"]
    return _table("Accounts, as named at submission", headings, columns)


def _rows(money: Mapping[str, Any]) -> list[go.Figure]:
    """The table of money by account; none where no node was paid for."""
    if not money.get("spent_usd"):
        return []
    rows = money_rows(money)
    columns = ([html.escape(name) for name, _ in rows], [usd(amount) for _, amount in rows])
    return [_table("Spent on cloud nodes, by who used them", ["account", "spent"], columns)]


def _table(title: str, headings: list[str], columns: Sequence[Sequence[str]]) -> go.Figure:
    align = ["left", *["right"] * (len(headings) - 1)]
    figure = go.Figure(
        go.Table(
            header={"values": headings, "align": align},
            cells={"values": columns, "align": align, "height": 24},
        )
    )
    styled(figure, title, "")
    figure.update_layout(height=220 + 24 * max(1, len(columns[0])))
    return figure
