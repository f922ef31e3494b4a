"""``advisor portfolio``: which policy runs the burst partition and why, what it has set, how to undo it."""

from __future__ import annotations

import sys
import time
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit

_app = typer.Typer(no_args_is_help=True, help="The policy in charge of the burst partition.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(_app, name="portfolio")


@_app.command("show")
def show(config: ConfigOption = None, output: FormatOption = Format.TEXT) -> None:
    """Show policy, reasons and scores, and everything that is set in Slurm now.

    Reads what the control process wrote last; Slurm is not asked.
    """
    from advisor.model.errors import UseFallback
    from advisor.service.status_file import read

    content = read(settings_of(config).paths.run)
    report, written = content.get("portfolio"), content.get("time")
    if not isinstance(report, dict) or not report or not isinstance(written, int | float):
        raise UseFallback(
            "the portfolio is not in charge (portfolio.enabled, and advisor control must run)",
            code="portfolio.off",
        )
    result = {"time": written, "age_seconds": time.time() - written, **report}
    emit(result, output, lambda console: _draw(console, result))


@_app.command("undo")
def undo(config: ConfigOption = None, output: FormatOption = Format.TEXT) -> None:
    """Give Slurm back all that the portfolio has set: closed nodes, the order of jobs, weights of nodes.

    For when `advisor control` is gone for good; one that runs with `portfolio.enabled` sets it all again.
    """
    import structlog

    from advisor.service.clock import Clock
    from advisor.service.portfolio_means import Means
    from advisor.service.site_view import burst_nodes
    from advisor.slurm.cli import CliBackend
    from advisor.slurm.commands import Commands
    from advisor.slurm.steering import Steering

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # JSON alone on stdout
    settings = settings_of(config)
    slurm = CliBackend.of(settings)
    steering = Steering(Commands(settings.paths.slurm_bin, settings.paths.slurm_conf))
    means = Means.of(settings, slurm=slurm, steering=steering)
    closed, ordered = steering.closed(), len(means.order)
    means.let_go(lambda: burst_nodes(slurm.snapshot(Clock().wall()), settings))
    result = {"opened_nodes": sorted(closed.nodes) if closed else [], "jobs_reordered": ordered}
    emit(result, output, lambda console: _tell(console, result))


def _tell(console: Console, result: dict[str, Any]) -> None:
    opened, ordered = len(result["opened_nodes"]), result["jobs_reordered"]
    console.print(Text(f"{opened:,} nodes opened, {ordered:,} jobs have their own place again"))


def _draw(console: Console, report: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(report):
        table.add_row(name, Text(value))
    console.print(table)


def _rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    from advisor.slurm.steering import RESERVATION

    since = report["since"]
    age = "" if since is None else f", for {max(0.0, report['time'] - since):,.0f} s"
    rows = [
        ("policy", (report["policy"] or "none: Slurm's own behaviour") + age),
        ("why", report["why"]),
        ("champion", f"{report['champion'] or 'not known yet'}, judged on {report['judged_jobs']:,} jobs"),
        ("billing", report["billing"]),
        ("nodes", nodes_in_words(report)),
    ]
    if report["closed_nodes"]:
        rows.append(("closed", ", ".join(report["closed_nodes"])))
    rows.append(
        ("jobs", f"{report['jobs_waiting'] or 0:,} wait, {report['jobs_ordered']:,} of them put first")
    )
    for name, score in report["scores"].items():
        rows.append(("score", f"{score:.3f} {name}"))
    for name, loss in report["losses"].items():
        rows.append(("loss", f"{loss:.2%} {name}"))
    for name, times in report["chosen"].items():
        rows.append(("chosen", f"{times:,} times {name}"))
    rows.append(("undo", f"{report['undo']} (or scontrol delete reservationname={RESERVATION})"))
    return rows


def nodes_in_words(report: dict[str, Any]) -> str:
    """How many nodes may be up."""
    rented, allowed = report["nodes_rented"], report["nodes_allowed"]
    limit = "as many as the jobs take" if allowed is None else f"{allowed:,} allowed"
    words = f"{rented or 0:,} up, {limit}"
    if report["closed_nodes"]:
        words += f", {len(report['closed_nodes']):,} closed by the reservation {report['reservation']}"
    if report["nodes_kept"]:
        words += f", {len(report['nodes_kept']):,} kept warm"
    if report["no_more_because"]:
        words += f"; no more: {report['no_more_because']}"
    return words
