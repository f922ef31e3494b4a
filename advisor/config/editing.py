"""Write settings into the file and keep the admin's comments and order.

`advisor init`, `config set`, `budget set`, `recommend --write` and the page Tune write by it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.container import OutOfOrderTableProxy
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, Table

from advisor.config.definitions import by_key
from advisor.config.loading import load, unknown
from advisor.files.whole_file import keeping_former, replacing, resemble
from advisor.model.errors import BadInput

_FIXED_AT_START: Final = frozenset({"submit.socket_group", "submit.allowed_uids", "submit.every_user"})
_TOLD_TO_THE_HOOK: Final = frozenset(
    {"paths.run", "submit.budget_seconds", "submit.breaker_failures", "submit.breaker_seconds"}
)
"""What :func:`advisor.config.hook.hook_values` uses."""
_TOLD_TO_THE_PROGRAMS: Final = frozenset(
    {"paths.run", "paths.state", "cluster.burst_partition", "data.stage_in"}
)
"""What advisor_programs.conf says of ResumeProgram, SuspendProgram and PrologSlurmctld, too."""


def write_back(path: Path, changes: Mapping[str, Any]) -> None:
    """Change settings in a file and keep everything else in it, comments included; see `write_whole`.

    Args:
        changes: mapping of ``section.name`` to a TOML value; None takes the setting out of the file.

    Raises:
        BadInput: Unknown setting, wrong value, a file that is not TOML, no permission.
    """
    write_whole(path, edited(path, changes)[1])


def write_whole(path: Path, text: str) -> None:
    """Write a settings file.

    The new file is checked, then replaces the old one atomically with the same mode and owner; the old one
    stays as :func:`former_of`. Where the path is a link, the file that it leads to is replaced.

    Args:
        path: A TOML file; it is created if it does not exist.

    Raises:
        BadInput: A wrong value, a text that is not TOML, no permission.
    """
    try:
        _replace(_of_link(path), text)
    except OSError as error:
        is_refused = isinstance(error, PermissionError)
        raise BadInput(
            f"cannot be written ({error.strerror})",
            where=str(path),
            mend="Run the command as the user who owns the file"
            if is_refused
            else "Check the folder and its file system; nothing was changed",
            code="config.unwritable",
        ) from None


def edited(path: Path, changes: Mapping[str, Any]) -> tuple[str, str]:
    """The file's text, and the text with the changes; nothing is written.

    Raises:
        BadInput: Unknown setting, a file that is not TOML or cannot be read.
    """
    for key in changes:
        if key not in by_key():
            raise unknown(key, by_key(), "a change of settings")
    try:
        old = path.read_text("utf-8-sig") if path.exists() else ""
        document = tomlkit.parse(old)
        for key, value in changes.items():
            section, name = key.split(".", 1)
            table = document.setdefault(section, tomlkit.table())
            if not isinstance(table, Table | OutOfOrderTableProxy):
                raise BadInput(
                    f"{section} is a section, not a value",
                    where=str(path),
                    mend=f"Write [{section}] on a line of its own and its settings below it",
                    code="config.section",
                )
            if value is None:
                table.pop(name, None)
            else:
                _put(table, name, value)
        return old, tomlkit.dumps(document)
    except (OSError, TOMLKitError, UnicodeDecodeError):
        load(path, {})  # raises the error with its line
        raise


def values_in_file(path: Path) -> dict[str, Any]:
    """The settings in a file, ``section.name`` to value; empty if there is no file.

    Raises:
        BadInput: See :func:`advisor.config.loading.load`.
    """
    if not path.exists():
        return {}
    load(path, {})
    document = tomllib.loads(path.read_text("utf-8-sig"))
    return {
        f"{section}.{name}": value for section, table in document.items() for name, value in table.items()
    }


def former_of(path: Path) -> Path:
    """Where the file of before the last change is kept."""
    file = _of_link(path)
    return file.with_name(file.name + ".old")


def take_back(path: Path) -> bool:
    """Put the file of before the last change back in its place, byte by byte; False where none is kept."""
    try:
        former_of(path).replace(_of_link(path))
    except OSError:
        return False
    return True


def _of_link(path: Path) -> Path:
    """The file itself: several hosts may have links to one."""
    return Path(os.path.realpath(path))


def _put(table: Table | OutOfOrderTableProxy, name: str, value: Any) -> None:
    """Set one value; of a table of names, only those that differ: the others keep their comments."""
    known = table.get(name)
    if not (isinstance(value, Mapping) and isinstance(known, AbstractTable)):
        table[name] = value
        return
    for gone in [one for one in known if one not in value]:
        known.remove(gone)
    for one, amount in value.items():
        if known.get(one) != amount:
            known[one] = amount


def to_take_effect(keys: Iterable[str], slurm_folder: Path) -> list[str]:
    """Commands that apply changed settings, in their order.

    `advisor serve` keeps its folders, socket and allowed users until a restart; `advisor control` reads all
    settings at a reload. Timers and commands read the file each time; the hook reads its own file beside
    slurm.conf.
    """
    changed = set(keys)
    sections = {key.partition(".")[0] for key in changed}
    commands = []
    if any(key.startswith("paths.") for key in changed) or changed & _FIXED_AT_START:
        commands.append("systemctl restart advisor-serve advisor-control")
    elif sections - {"web"}:
        commands.append("systemctl reload advisor-serve advisor-control")
    if sections & {"web", "paths"}:
        commands.append("systemctl restart advisor-web   # only if you use the pages")
    if changed & _TOLD_TO_THE_HOOK:
        commands.append(
            f"advisor config hook > {slurm_folder}/advisor_hook.conf && touch {slurm_folder}/job_submit.lua"
        )
    if changed & _TOLD_TO_THE_PROGRAMS:
        commands.append("advisor doctor   # says what to change in advisor_programs.conf")
    return commands


def _replace(path: Path, text: str) -> None:
    """Check the new text in a file beside the old one, then rename it over the old one."""
    former = path.stat() if path.exists() else None
    with keeping_former(path, former_of(path)), replacing(path, durable=True, mode=0o600) as file:
        file.write(text.encode())
        file.flush()
        _check(Path(file.name), path)
        if former is None:
            os.fchmod(file.fileno(), 0o644)
        else:
            resemble(file, former)


def _check(partial: Path, path: Path) -> None:
    """Load the new text; errors name the file that it is meant for."""
    try:
        load(partial, {})
    except BadInput as error:
        where = error.where.replace(str(partial), str(path))
        raise BadInput(
            error.what, where=f"{where} (nothing written)", mend=error.mend, code=error.code
        ) from None


def parse_changes(arguments: Iterable[str]) -> dict[str, Any]:
    """``section.name=VALUE`` arguments; a value that is not TOML is a text (``--set cluster.name=main``).

    Raises:
        BadInput: No ``=`` in an argument.
    """
    changes: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not key.strip():
            raise BadInput(
                f"{argument!r} is not a change", where="a change of settings", mend="Write section.name=VALUE"
            )
        try:
            changes[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError):
            changes[key.strip()] = text.strip()
    return changes
