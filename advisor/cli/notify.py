"""``advisor notify``: notify the admins of problems that last, and of the share of the budget spent."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit, stderr


def notify(
    test: Annotated[
        bool, typer.Option("--test", help="Send one notice of no trouble, to see whether it arrives.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be sent; remember nothing.")
    ] = False,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Tell by webhook and mail what needs an admin; a timer runs it each minute.

    It tells of a service that does not run, a history or loop that fails, EC2 without capacity, forecasts
    that do not hold, a model that is refused, and a training that failed: each after five minutes, again each
    `notices.repeat_hours` while it lasts, and when it is over. It tells at once of 50, 80 and 100 % of a
    budget, of instances that had to be ended, and of a new model that is worse than the one in force.
    """
    from advisor.model.errors import BadInput
    from advisor.service.admin.model_troubles import seen_of_models
    from advisor.service.admin.notice_delivery import deliver
    from advisor.service.admin.notices import Notice, conditions, decide
    from advisor.service.admin.status_report import ask_serve, status_report
    from advisor.service.state.state_files import NOTICES

    settings, now = settings_of(config), time.time()
    if not settings.notices.is_set and not dry_run:
        raise BadInput(
            "no receiver of notices is set",
            where="notices",
            mend="Set notices.webhook_file or notices.mail_to, or disable advisor-notify.timer",
            code="notices.no_receiver",
        )
    if test:
        notices = [Notice(key="test", text="this is a test of `advisor notify`; nothing has happened")]
        refused = deliver(notices, settings.notices, settings.cluster.name)
    else:
        state = NOTICES.at(settings.paths.state)
        report = status_report(settings, now, ask_serve(settings))
        found = conditions(report | seen_of_models(settings))
        repeat_seconds = 3600.0 * settings.notices.repeat_hours
        notices, told = decide(found, state.read(), now=now, repeat_seconds=repeat_seconds)
        refused = [] if dry_run else deliver(notices, settings.notices, settings.cluster.name)
        if not dry_run:
            state.write(told)
    result = {"told": [{"key": one.key, "text": one.text, "is_over": one.is_over} for one in notices]}
    emit(result, output, lambda console: _draw(console, result))
    for why in refused:
        stderr.print(Text(f"not told this way: {why}"))
    if refused:
        raise typer.Exit(1)


def _draw(console: Console, result: dict[str, Any]) -> None:
    for one in result["told"]:
        console.print(Text(one["text"]))
    if not result["told"]:
        console.print(Text("Nothing to tell."))
