"""The settings in force as rows, and changes of them written, for `config`, `budget` and `recommend`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from advisor.cli.context import loaded_settings
from advisor.model.errors import BadInput

if TYPE_CHECKING:
    from advisor.config import LoadedSettings
    from advisor.config.definitions import Definition
    from advisor.service.state.applied import SettingsHistory


def setting_rows(loaded: LoadedSettings, names: Sequence[str]) -> list[dict[str, Any]]:
    """Settings in force: all, or those of the sections and keys that are named."""
    from advisor.config.definitions import definitions
    from advisor.config.explaining import did_you_mean
    from advisor.config.redacting import redacted
    from advisor.config.reference import values_of

    known = [word for one in definitions() for word in (one.section, one.key)]
    for name in names:
        if name not in known:
            raise BadInput(
                f"there is no section and no setting {name[:80]}",
                where="config show",
                mend=did_you_mean(name, dict.fromkeys(known)),
                code="config.unknown",
            )
    values = values_of(loaded.settings)
    return [
        {
            "key": definition.key,
            "value": redacted(values[definition.key]),
            "unit": definition.unit,
            "default": definition.default,
            "source": loaded.origins[definition.key].source,
            "origin": str(loaded.origins[definition.key]),
            "expert": definition.expert,
        }
        | (_explanation(definition) if names else {})
        for definition in definitions()
        if not names or definition.section in names or definition.key in names
    ]


def _explanation(definition: Definition) -> dict[str, str]:
    from advisor.config.explaining import describe

    return {"limits": describe(definition), "meaning": definition.meaning, "reason": definition.why}


def json_row(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: there it is the text ``inf``, so that it differs from an unset value."""
    return {
        name: "inf" if isinstance(value, float) and value == float("inf") else value
        for name, value in row.items()
    }


def write_settings(
    config: Path | None, ask: Callable[[], Mapping[str, Any]], reason: str, *, undoes: int | None = None
) -> dict[str, Any]:
    """Write settings into the file and the history, and say what they were and what applies the change.

    Args:
        ask: Returns the settings to write; None takes one out of the file. It is called while no other
            command changes the settings.
        undoes: The number of the change that this one takes back.

    Raises:
        BadInput: See :meth:`advisor.service.state.applied.SettingsHistory.apply`; that nothing changes is no
            error here.
        RetryLater: Another command or page is changing the settings.
    """
    from advisor.config import check
    from advisor.config.editing import former_of, to_take_effect, write_back
    from advisor.config.redacting import redacted

    loaded = loaded_settings(config)
    history = history_of(config)
    with history.alone():
        before = {row["key"]: row for row in setting_rows(loaded_settings(config), [])}
        asked = ask()
        if loaded.settings.paths.state.is_dir():
            number = _write(history, asked, reason, undoes)
        else:  # nothing is installed here
            write_back(loaded.file, asked)
            number = None
        changed = loaded_settings(config)
        rows = [
            {
                **row,
                "before": before[row["key"]]["value"],
                "written": redacted(row["value"] if asked[row["key"]] is None else asked[row["key"]]),
            }
            for row in setting_rows(changed, list(asked))
            if row["key"] in asked
        ]
        found = check(changed, None)
    former = former_of(loaded.file)
    return {
        "path": loaded.file,
        "former": former if former.exists() else None,
        "settings": rows,
        "change": number,
        "findings": [finding for finding in found if finding.key in asked],
        "to_take_effect": [
            line
            for line in to_take_effect(asked, loaded.settings.paths.slurm_conf.parent)
            if number is None or not line.startswith("systemctl reload ")  # they watch the history
        ],
    }


def history_of(config: Path | None) -> SettingsHistory:
    """The history of the settings file that a command uses."""
    from advisor.service.state.applied import SettingsHistory

    loaded = loaded_settings(config)
    return SettingsHistory(loaded.file, loaded.settings.paths.state)


def _write(history: SettingsHistory, asked: Mapping[str, Any], reason: str, undoes: int | None) -> int | None:
    """Write settings; returns the change's number in the history, None where nothing changes."""
    try:
        made = history.apply(asked, author=_author(), reason=reason, now=time.time(), undoes=undoes)
    except BadInput as error:
        if error.code != "config.unchanged":
            raise
        return None
    return made.number


def _author() -> str:
    """The Unix user; with sudo the one who used it."""
    from advisor.files.owners import user_name

    if os.geteuid() == 0 and (name := os.environ.get("SUDO_USER")):
        return name
    return user_name(os.geteuid())


def plain_written(result: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`write_settings` returned, for JSON."""
    return {**result, "settings": [json_row(row) for row in result["settings"]]}


def tell_written(console: Console, result: Mapping[str, Any]) -> None:
    """Print what :func:`write_settings` returned."""
    from advisor.config.reference import toml_text

    for row in result["settings"]:
        written, was = toml_text(row["written"]), toml_text(row["before"])
        console.print(Text(f"{row['key']} = {written} (was {was})"))
        if row["source"] == "environment":
            console.print(Text(f"  but {row['origin']} in this environment overrides the file", "yellow"))
    number, former = result["change"], result["former"]
    told, end = "", ". To apply the change:"
    if number is not None:
        told, end = f" as change {number}", ". What needs a restart or another file to be applied:"
    elif former is not None:
        told = f"; the former file is {former}"
    if not result["to_take_effect"]:
        end = "." if number is None else ", which running daemons take up by themselves."
    console.print(Text(f"Written to {result['path']}{told}{end}"))
    for line in result["to_take_effect"]:
        console.print(Text(f"  {line}"))
    for finding in result["findings"]:
        console.print(Text(f"{finding.severity}: {finding.key}: {finding.what}. {finding.mend}", "yellow"))
