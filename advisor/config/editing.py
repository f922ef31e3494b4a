"""Writing settings back without losing the admin's comments and order."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Table

from advisor.config.definitions import by_key
from advisor.config.loading import did_you_mean, load
from advisor.model.errors import BadInput

_FIXED_AT_START: Final = frozenset({"submit.socket_group", "submit.allowed_uids"})
_TOLD_TO_THE_HOOK: Final = frozenset(
    {"paths.run", "submit.budget_seconds", "submit.breaker_failures", "submit.breaker_seconds"}
)
"""By :func:`advisor.config.hook.hook_values`; a test holds it to them."""


def write_back(path: Path, changes: Mapping[str, Any]) -> None:
    """Change settings in a file; everything else in it stays as it is, comments too.

    The new file is checked before it replaces the old one, at once and with its mode kept.

    Parameters
    ----------
    path : Path
        A TOML file; made when it does not exist.
    changes : mapping of ``section.name`` to a TOML value
        What to set.

    Raises
    ------
    BadInput
        Unknown setting, wrong value, a file that is no TOML, no permission.
    """
    for key in changes:
        if key not in by_key():
            raise BadInput(f"there is no setting {key}", where=key, mend=did_you_mean(key, by_key()))
    try:
        old = path.read_text("utf-8") if path.exists() else ""
        document = tomlkit.parse(old)
        for key, value in changes.items():
            section, name = key.split(".", 1)
            table = document.setdefault(section, tomlkit.table())
            if not isinstance(table, Table):
                raise BadInput(f"{section} is not a section", where=str(path), mend=f"write [{section}]")
            table[name] = value
        _replace(path, tomlkit.dumps(document))
    except OSError as error:
        raise BadInput(
            f"cannot be written ({error.strerror})",
            where=str(path),
            mend="settings are changed by the user who owns the file",
        ) from None
    except (TOMLKitError, UnicodeDecodeError):
        load(path, {})  # says what is wrong, and where
        raise


def to_take_effect(keys: Iterable[str], slurm_folder: Path) -> list[str]:
    """Commands after which changed settings count, in their order.

    The submit server keeps its folders, socket and callers until it is restarted; `advisor control` begins
    anew at a reload. Timers and commands read the file each time; the hook reads its own beside slurm.conf.
    """
    changed = set(keys)
    sections = {key.partition(".")[0] for key in changed}
    commands = []
    if any(key.startswith("paths.") for key in changed) or changed & _FIXED_AT_START:
        commands.append("systemctl restart advisor-serve advisor-control")
    elif sections - {"web"}:
        commands.append("systemctl reload advisor-serve advisor-control")
    if sections & {"web", "paths"}:
        commands.append("systemctl restart advisor-web   # where the pages are in use")
    if changed & _TOLD_TO_THE_HOOK:
        commands.append(
            f"advisor config hook > {slurm_folder}/advisor_hook.conf && touch {slurm_folder}/job_submit.lua"
        )
    return commands


def _replace(path: Path, text: str) -> None:
    """Check the new text in a file beside the old one, then put it in its place at once."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    partial = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _check(partial, path)
        partial.chmod(mode)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _check(partial: Path, path: Path) -> None:
    """Load the new text; what is wrong is told of the file it was meant for."""
    try:
        load(partial, {})
    except BadInput as error:
        where = error.where.replace(str(partial), str(path))
        raise BadInput(
            error.what, where=f"{where} (nothing written)", mend=error.mend, code=error.code
        ) from None


def parse_changes(arguments: Iterable[str]) -> dict[str, Any]:
    """``section.name=VALUE`` arguments; a value that is no TOML is a text (``--set cluster.name=main``).

    Raises
    ------
    BadInput
        No ``=`` in an argument.
    """
    changes: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"{argument!r} is no change", where="argument", mend="write section.name=VALUE")
        try:
            changes[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            changes[key.strip()] = text.strip()
    return changes
