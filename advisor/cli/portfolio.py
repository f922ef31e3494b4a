"""``advisor portfolio``: the policy that leads the burst partition, what it has set, and how to undo it."""

from __future__ import annotations

import time
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.tables import print_facts

group = typer.Typer(no_args_is_help=True, help="Show or undo the policy that leads the burst partition.")


@group.command("show")
def show(config: ConfigOption = None, output: FormatOption = Format.TEXT) -> None:
    """Show the leading policy, its reasons and scores, and everything it has set in Slurm.

    Reads what `advisor control` wrote last, without asking Slurm.
    """
    from advisor.service.admin.cloud_written import known_so_far, portfolio_written

    settings = settings_of(config)
    result = known_so_far(
        lambda: portfolio_written(settings, time.time()), enabled=settings.portfolio.enabled
    )
    emit(result, output, lambda console: _draw(console, result))


@group.command("undo")
def undo(config: ConfigOption = None, output: FormatOption = Format.TEXT) -> None:
    """Undo all that the portfolio has set in Slurm: closed nodes, the order of jobs, weights of nodes.

    Stop `advisor control` first: while `portfolio.enabled` is true, it sets all of this again.
    """
    from advisor.service.observation.site_view import burst_nodes
    from advisor.service.portfolio.actuators import PortfolioActuators
    from advisor.service.running.clock import Clock
    from advisor.slurm.cli import CliBackend
    from advisor.slurm.commands import Commands
    from advisor.slurm.steering import BurstSteering

    settings = settings_of(config)
    slurm = CliBackend.of(settings)
    steering = BurstSteering(Commands(settings.paths.slurm_bin, settings.paths.slurm_conf))
    actuators = PortfolioActuators.of(settings, slurm=slurm, steering=steering)
    closed, ordered = steering.closed(), len(actuators.order)
    actuators.restore(lambda: burst_nodes(slurm.snapshot(Clock().wall()), settings))
    result = {"opened_nodes": sorted(closed.nodes) if closed else [], "jobs_reordered": ordered}
    emit(result, output, lambda console: _tell(console, result))


def _tell(console: Console, result: dict[str, Any]) -> None:
    opened, ordered = len(result["opened_nodes"]), result["jobs_reordered"]
    console.print(Text(f"{opened:,} nodes opened, the order of {ordered:,} jobs restored"))


def _draw(console: Console, report: dict[str, Any]) -> None:
    from advisor.service.admin.status_words import portfolio_rows

    if report.get("note") and report["enabled"]:
        console.print(Text(report["note"]))
    else:
        print_facts(console, portfolio_rows(report))
