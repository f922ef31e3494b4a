"""``advisor config``: show, check, explain and change the settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.config_history import history, undo
from advisor.cli.config_values import json_row, plain_written, setting_rows, tell_written, write_settings
from advisor.cli.context import ConfigOption, loaded_settings
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.tables import print_facts, print_table
from advisor.decide.explanation.phrases import NAMES, PHRASES, PHRASES_WITH, UNITS
from advisor.model.errors import BadInput

if TYPE_CHECKING:
    from advisor.config import Finding, LoadedSettings

group = typer.Typer(no_args_is_help=True, help="Show, explain, check and change the settings.")


@group.command("show")
def show(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SECTION|SECTION.NAME]...",
            help="Explain these sections or settings; without any, list the values in force.",
        ),
    ] = None,
    config: ConfigOption = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Also print the file and line, or variable, of each value.")
    ] = False,
    expert: Annotated[
        bool,
        typer.Option("--expert", help="List the expert settings too, also those that have their defaults."),
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Print the settings in force, or explain those that are named.

    The text leaves out expert settings that have their defaults; JSON always has all settings.
    """
    from advisor.config.reference import toml_text

    loaded = loaded_settings(config)
    rows = setting_rows(loaded, names or [])

    def draw(console: Console) -> None:
        if names:
            _explain(console, rows)
            return
        headings = ("setting", "unit", *(("from",) if origin else ()), "value")
        shown = [row for row in rows if expert or not row["expert"] or row["source"] != "default"]
        cells = [
            (row["key"], row["unit"], *((row["origin"],) if origin else ()), toml_text(row["value"]))
            for row in shown
        ]
        changed = [at for at, row in enumerate(shown) if row["origin"] != "default"]
        print_table(console, headings, cells, text="value", bold_rows=changed)
        if len(shown) < len(rows):
            hidden = len(rows) - len(shown)
            console.print(Text(f"{hidden} expert settings have their defaults; --expert lists them."))

    emit({"path": loaded.path, "settings": [json_row(row) for row in rows]}, output, draw)


def _explain(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    from advisor.config.reference import toml_text

    for at, row in enumerate(rows):
        if at:
            console.print()
        unit = f" {row['unit']}" if row["unit"] else ""
        default = "" if row["origin"] == "default" else f"; default {toml_text(row['default'])}"
        facts = [
            (row["key"], f"{toml_text(row['value'])}{unit} ({row['origin']}{default})"),
            ("values", row["limits"]),
            ("what it does", row["meaning"]),
            ("why this default", row["reason"]),
        ]
        print_facts(console, facts)


@group.command("check")
def check(
    config: ConfigOption = None,
    partitions: Annotated[
        str | None,
        typer.Option(help="The cluster's partitions, as a,b,c; by default they are read from slurm.conf."),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Check the settings file against itself and against Slurm's partitions; exit code 2 on an error."""
    from advisor.config import check as check_settings

    loaded = loaded_settings(config)
    existing = _named(partitions) if partitions is not None else _partitions_of_the_cluster(loaded)
    found = check_settings(loaded, existing)
    errors = [finding for finding in found if finding.severity == "error"]

    def draw(console: Console) -> None:
        _draw_findings(console, found, loaded, existing)

    result = {
        "path": loaded.path,
        "ok": not errors,
        "partitions_checked": existing is not None,
        "findings": found,
    }
    emit(result, output, draw)
    if errors:
        raise typer.Exit(2)


def _draw_findings(
    console: Console, found: list[Finding], loaded: LoadedSettings, existing: set[str] | None
) -> None:
    for finding in found:
        style = "bold red" if finding.severity == "error" else "yellow"
        console.print(
            Text(
                f"{finding.severity}: {finding.key} ({finding.where}): {finding.what}. {finding.mend}", style
            )
        )
    if existing is None:
        conf = loaded.settings.paths.slurm_conf
        why = f"{conf} cannot be read and --partitions was not given"
        if loaded.settings.cluster.scheduler == "lsf":
            why = "`advisor doctor` asks LSF for its queues, or name them with --partitions"
        console.print(Text(f"The partitions were not checked: {why}."))
    if not found:
        console.print(Text(f"{loaded.path or 'defaults'}: no mistakes found", "green"))


def _named(partitions: str) -> set[str]:
    return {name.strip() for name in partitions.split(",") if name.strip()}


def _partitions_of_the_cluster(loaded: LoadedSettings) -> set[str] | None:
    from advisor.config.slurm_conf import partition_names

    return partition_names(loaded.settings.paths.slurm_conf)


@group.command("hook")
def hook(config: ConfigOption = None) -> None:
    """Print advisor_hook.conf: the settings that the hook in slurmctld needs, in its own format."""
    from advisor.config.hook import hook_settings

    typer.echo(hook_settings(loaded_settings(config).settings), nl=False)


@group.command("login-tool")
def login_tool() -> None:
    """Print burst-why for login nodes; under the name burst-when it says when a job starts and ends."""
    from advisor.slurm import hook_files

    words = {
        "phrases": {str(reason): phrase for reason, phrase in PHRASES.items()},
        "phrases_with": {str(reason): dict(variants) for reason, variants in PHRASES_WITH.items()},
        "units": dict(UNITS),
        "names": dict(NAMES),
    }
    text = (hook_files.folder() / hook_files.LOGIN_TOOL).read_text(encoding="utf-8")
    # JSON in a string: what Python reads as a literal differs (null, true)
    line = f"WORDS = json.loads({json.dumps(json.dumps(words))})\n"
    lines = (line if old.startswith("WORDS = ") else old for old in text.splitlines(keepends=True))
    typer.echo("".join(lines), nl=False)


@group.command("slurm")
def slurm(config: ConfigOption = None) -> None:
    """Print the lines of slurm.conf for the classes of cloud nodes (``ec2.classes``)."""
    from advisor.ec2.slurm_lines import slurm_lines

    loaded = loaded_settings(config)
    lines = slurm_lines(loaded.settings)
    if not lines:
        raise BadInput(
            "there is no class of nodes",
            where=f"ec2.classes in {loaded.path or 'the defaults'}",
            mend="docs/classes.md says how to write one",
            code="config.no_classes",
        )
    typer.echo(lines, nl=False)


@group.command("reference")
def reference() -> None:
    """Print docs/settings.md: all settings with type, range, unit, default and reason."""
    from advisor.config.reference import reference as text

    typer.echo(text(), nl=False)


@group.command("sample")
def sample(
    expert: Annotated[
        bool, typer.Option("--expert", help="Include the expert settings, which most sites never change.")
    ] = False,
) -> None:
    """Print a settings file to start from: what a site decides, with defaults, reasons and units."""
    from advisor.config.reference import sample as text

    typer.echo(text(expert=expert), nl=False)


@group.command("set")
def set_values(
    changes: Annotated[list[str], typer.Argument(help="section.name=VALUE, the value as TOML.")],
    reason: Annotated[
        str, typer.Option(help="Why, for the history of settings on the page Tune.")
    ] = "advisor config set",
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Change settings in the file, keep its comments, and name the commands that apply the change.

    The change is listed by `advisor config history` and on the page Tune, with your name and the reason, and
    can be undone by `advisor config undo` and there.
    """
    from advisor.config.editing import parse_changes

    asked = parse_changes(changes)
    result = write_settings(config, lambda: asked, reason)
    emit(plain_written(result), output, lambda console: tell_written(console, result))


group.command("history")(history)
group.command("undo")(undo)
