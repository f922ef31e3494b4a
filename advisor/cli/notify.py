"""``advisor notify``: notify the admins of problems that last, and of the share of the budget spent."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit, stderr
from advisor.model.errors import BadInput

if TYPE_CHECKING:
    from advisor.files.state_file import StateFile
    from advisor.service.state.records import ToldNotices


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
    from advisor.service.admin.model_troubles import seen_of_models
    from advisor.service.admin.notice_delivery import deliver
    from advisor.service.admin.notices import WAIT_SECONDS, Notice, conditions, decide, unkept, unremembered
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
        refused = [] if dry_run else deliver(notices, settings.notices, settings.cluster.name)
        problem = ""
    else:
        report = status_report(settings, now, ask_serve(settings))
        found = conditions(report | seen_of_models(settings))
        repeat_seconds = 3600.0 * settings.notices.repeat_hours
        state = NOTICES.at(settings.paths.state)
        before = state.read(sets_aside=not dry_run)
        problem = "" if dry_run else _unwritten(state, before)
        is_kept = not (dry_run or problem)
        if problem:
            found = [unkept(problem), *found]
            state, before, is_kept = _instead(state, before, NOTICES.at(settings.paths.run))
        notices, told = decide(found, before, now=now, repeat_seconds=repeat_seconds)
        if problem and not is_kept:  # what is not remembered would be told each minute
            notices = unremembered(found, known_at=_known_at(state, now), now=now)
        refused = [] if dry_run else deliver(notices, settings.notices, settings.cluster.name)
        if is_kept:
            state.write(told)
        elif problem and notices:
            again_at = now + repeat_seconds - WAIT_SECONDS
            os.utime(state.path, (again_at, again_at))  # a full disk has room for that
    result = {"told": [{"key": one.key, "text": one.text, "is_over": one.is_over} for one in notices]}
    emit(result, output, lambda console: _draw(console, result))
    for why in refused:
        stderr.print(Text(f"not told this way: {why}. Once mended, `advisor notify --test` tries it"))
    if problem:
        stderr.print(Text(problem))
    if refused or problem:
        raise typer.Exit(1)


def _unwritten(state: StateFile[ToldNotices], record: ToldNotices) -> str:
    """Why the record of notices cannot be written; empty if it can."""
    try:
        state.write(record)
    except OSError as error:
        mend = "Mount its folder, make room on its disk, or give it to the service's user"
        return f"{state.path} cannot be written ({error.strerror}). {mend}"
    return ""


def _instead(
    state: StateFile[ToldNotices], record: ToldNotices, other: StateFile[ToldNotices]
) -> tuple[StateFile[ToldNotices], ToldNotices, bool]:
    """The file for a record that cannot be written, what it holds, and whether it can be written.

    It is ``other`` where no file is: `paths.state` may be missing, as when it is not mounted.
    """
    if state.path.exists():
        return state, record, False
    record = other.read()
    return other, record, not _unwritten(other, record)


def _known_at(state: StateFile[ToldNotices], now: float) -> float:
    return state.path.stat().st_mtime if state.path.exists() else now


def _draw(console: Console, result: dict[str, Any]) -> None:
    for one in result["told"]:
        console.print(Text(one["text"]))
    if not result["told"]:
        console.print(Text("Nothing to tell."))
