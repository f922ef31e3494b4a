"""``advisor budget``: all budgets, what is left of them and the price; ``advisor budget set`` sets one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.tables import print_table
from advisor.model.errors import BadInput
from advisor.model.periods import user_payer

group = typer.Typer(help="Show the budgets, or set one.")


@group.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show each budget in its present period (UTC): spent, promised, left, and the forecast for its end.

    The forecast is what will be spent if it goes on as in the last seven days. Reads what `advisor control`
    wrote last, without asking EC2.
    """
    if context.invoked_subcommand is not None:
        return
    from advisor.service.admin.budgets_view import budgets_view
    from advisor.service.admin.cloud_written import known_so_far

    settings = settings_of(config)
    result = known_so_far(lambda: budgets_view(settings, time.time()), budgets=[])
    emit(result, output, lambda console: _draw(console, result))


def _draw(console: Console, result: Mapping[str, Any]) -> None:
    from advisor.service.admin.budgets_view import budget_table, budget_words

    if result.get("note"):
        console.print(Text(result["note"]))
        return
    headings, cells = budget_table(result)
    if cells:
        print_table(console, headings, cells, numbers=headings[2:])
    else:
        console.print(Text("No budget is set: `advisor budget set 500 --period month` sets one."))
    for line in budget_words(result):
        console.print(Text(line))
    console.print(Text(f"US dollars; days are those of UTC; seen {result['age_seconds']:.0f} s ago.", "dim"))


@group.command("set")
def set_budget(
    usd: Annotated[
        float | None, typer.Argument(min=0.0, help="US dollars of a period; an account's 0 moves no job.")
    ] = None,
    *,
    account: Annotated[
        str, typer.Option("--account", help="The budget of this Slurm account; '*': of each other one.")
    ] = "",
    user: Annotated[
        str, typer.Option("--user", help="The budget of this user; '*': of each other one.")
    ] = "",
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            help="day, week, month, quarter, year or 14d, or one of these `from 2026-10-01`: of the site, of "
            "all accounts with --account, of all users with --user.",
        ),
    ] = None,
    carry_over: Annotated[
        bool | None,
        typer.Option(
            "--carry-over/--no-carry-over", help="Whether what a period has left is there in the next one."
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the budget away.")] = False,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Set the budget of the site, or of an account or a user, in the settings file.

    The file keeps its comments; the one before stays beside it. Prints what changes, and the commands that
    apply it. The page Tune lists the change and undoes it.
    """
    from advisor.cli.config_values import plain_written, tell_written, write_settings
    from advisor.service.admin.budgets_view import changes_for

    payer = _payer(account, user)

    def changes() -> dict[str, Any]:
        """All budgets of accounts are one setting: of those that are in the file when it is written."""
        now = settings_of(config)
        # of Slurm's accounts the settings keep lower case alone
        named = payer.lower() if account and now.cluster.scheduler == "slurm" else payer
        return changes_for(now.budget, named, usd=usd, period=period, carry_over=carry_over, remove=remove)

    written = write_settings(config, changes, "advisor budget set")
    emit(plain_written(written), output, lambda console: tell_written(console, written))


def _payer(account: str, user: str) -> str:
    if account and user:
        raise BadInput(
            "a budget is an account's or a user's, and both are named",
            where="--account, --user",
            mend="Give one of the two",
        )
    return user_payer(user) if user else account
