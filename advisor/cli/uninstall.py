"""``advisor uninstall``: list the parts of the advisor on this site, and undo those that are safe to undo."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, loaded_settings
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import working
from advisor.model.errors import AdvisorError, TellAdmin

if TYPE_CHECKING:
    from advisor.model.settings import Settings
    from advisor.service.admin.remnants import Remnant, Remnants

_SECONDS = 120.0


def uninstall(
    *,
    config: ConfigOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List everything; change nothing.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """List the parts of the advisor on this host and in its cluster; undo those that are safe to undo.

    It stops the services, cancels placeholders, returns pending jobs that the advisor moved, and removes the
    advisor's marked lines and unused files. For running jobs, EC2 instances, the history and a site's own
    text it prints what you may do. Exit code 1: something could not be undone.
    """
    with working("looking at this host, Slurm and EC2"):
        found = list(remnants(loaded_settings(config).settings).all())
    rows = [_row(one, dry_run=dry_run) for one in found]

    def draw(console: Console) -> None:
        for row in rows:
            console.print(Text(f"{row['state']}: {row['what']}", "red" if row["state"] == "failed" else ""))
            if row["state"] != "done":
                console.print(Text(f"    {row['how']}"))
        if not rows:
            console.print("Nothing of the advisor was found.")

    emit({"dry_run": dry_run, "found": rows}, output, draw)
    if any(row["state"] == "failed" for row in rows):
        raise typer.Exit(1)


def _row(one: Remnant, *, dry_run: bool) -> dict[str, Any]:
    row = {
        "state": "left to you" if one.undo is None else "would be undone",
        "what": one.what,
        "how": one.how,
    }
    if one.undo is None or dry_run:
        return row
    try:
        one.undo()
    except (AdvisorError, OSError) as problem:
        return row | {"state": "failed", "how": f"{problem}; by hand: {one.how}"}
    return row | {"state": "done"}


def remnants(settings: Settings) -> Remnants:
    """The search for remnants, with this host's commands."""
    from advisor.service.admin.remnants import Host, Remnants
    from advisor.slurm.cli import CliBackend

    host = Host(run=_run, instances=_instances_of(settings))
    return Remnants(settings, CliBackend.of(settings), host)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - our own words, no shell
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise TellAdmin(
            f"`{' '.join(command)}` failed: {problem}. Mend this and run `advisor uninstall` again",
            code="uninstall.command",
        ) from None
    if done.returncode:
        raise TellAdmin(
            f"`{' '.join(command)}` failed: {done.stderr.strip()[:500] or f'exit code {done.returncode}'}. "
            "Mend this and run `advisor uninstall` again",
            code="uninstall.command",
        )


def _instances_of(settings: Settings) -> Callable[[], list[str]]:
    def ask() -> list[str]:
        if not settings.ec2.image_id:
            return []
        from advisor.ec2.listing import instances_that_may_cost

        return instances_that_may_cost(settings.ec2, settings.cluster.name)

    return ask
