"""From a TOML file and the environment to :class:`~advisor.model.settings.Settings`, with origins.

Every command and service begins with it; the services do so again when they are told to reload.

Later wins: defaults, then the file, then ``ADVISOR_<SECTION>__<NAME>`` variables. A file with a
mistake is refused as a whole: the error names file, line, key and how to mend it.
"""

from __future__ import annotations

import enum
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from advisor.config.definitions import Definition, by_key, section_models
from advisor.config.explaining import describe, did_you_mean, what_is_wrong
from advisor.model.errors import BadInput
from advisor.model.settings import DEFAULT_CLUSTER_NAME, Settings

DEFAULT_PATH: Final = Path("/etc/advisor/advisor.toml")
PATH_VARIABLE: Final = "ADVISOR_CONFIG"
_OVERRIDE: Final = re.compile(r"ADVISOR_(?P<section>[A-Za-z0-9]+(?:_[A-Za-z0-9]+)*)__(?P<name>\w+)")
_LIMIT_BYTES: Final = 1_000_000
_SCHEDULER_VARIABLES: Final = {"SLURM_CONF": ("paths", "slurm_conf"), "LSF_ENVDIR": ("paths", "lsf_envdir")}
"""Variables that Slurm's and LSF's own commands read, and the settings whose defaults they replace."""


class Source(enum.StrEnum):
    """Where a value comes from."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    OPTION = "option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where one value comes from.

    Attributes:
        source: Default, file, environment or a command's own option.
        where: ``/etc/advisor/advisor.toml:12``, a variable's name, an option, or empty for a default.
    """

    source: Source
    where: str = ""

    def __str__(self) -> str:
        return self.where or self.source.value


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings in force and where each value comes from.

    Attributes:
        path: The file that was read; None when there is none.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    path: Path | None = None

    @property
    def file(self) -> Path:
        """The file that settings are written into."""
        return self.path or DEFAULT_PATH


def load(path: str | Path | None, environ: Mapping[str, str]) -> LoadedSettings:
    """Read the settings.

    Args:
        path: A TOML file. None: the one ``ADVISOR_CONFIG`` names, else ``/etc/advisor/advisor.toml`` where it
            exists, else no file.
        environ: The environment (passed in, so that tests need not change their own).

    Raises:
        BadInput: Unreadable file, wrong TOML, unknown or wrong setting: what, file and line, how to mend.
    """
    found = _path_of(path, environ)
    text = _read(found) if found else ""
    document = _parse(found, text) if found else {}
    _refuse_unknown(document, found, text)
    origins = {key: Origin(source=Source.DEFAULT) for key in by_key()}
    for section, values in document.items():
        for name in values:
            line = _line_of(text, section, name)
            where = f"{found}:{line}" if line else str(found)
            origins[f"{section}.{name}"] = Origin(source=Source.FILE, where=where)
    values = {section: dict(entries) for section, entries in document.items()}
    for variable, (section, name) in _SCHEDULER_VARIABLES.items():
        key = f"{section}.{name}"
        if environ.get(variable) and origins[key].source is Source.DEFAULT:  # the file's setting wins
            values.setdefault(section, {})[name] = environ[variable]
            origins[key] = Origin(source=Source.ENVIRONMENT, where=variable)
    for variable, (definition, value) in _overrides(environ).items():
        values.setdefault(definition.section, {})[definition.name] = value
        origins[definition.key] = Origin(source=Source.ENVIRONMENT, where=variable)
    return LoadedSettings(
        settings=_validate(values, origins, found), origins=MappingProxyType(origins), path=found
    )


def changed(loaded: LoadedSettings, changes: Mapping[str, Any], option: str = "--set") -> LoadedSettings:
    """Return the settings with some values changed; nothing is written.

    Args:
        changes: mapping of ``section.name`` to a TOML value
        option: The command-line option that the values come from, for messages.

    Raises:
        BadInput: Unknown setting, wrong value.
    """
    values: dict[str, dict[str, Any]] = {
        section: dict(entries) for section, entries in loaded.settings.model_dump().items()
    }
    origins = dict(loaded.origins)
    for key, value in changes.items():
        if key not in by_key():
            raise unknown(key, by_key(), option)
        definition = by_key()[key]
        values[definition.section][definition.name] = value
        origins[key] = Origin(source=Source.OPTION, where=option)
    return LoadedSettings(
        settings=_validate(values, origins, loaded.path),
        origins=MappingProxyType(origins),
        path=loaded.path,
    )


def _path_of(path: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    if path is not None:
        return Path(path)
    if environ.get(PATH_VARIABLE):
        return Path(environ[PATH_VARIABLE])
    try:
        return DEFAULT_PATH if DEFAULT_PATH.exists() else None
    except PermissionError:
        return DEFAULT_PATH  # it exists, and reading it reports why it cannot be read


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise BadInput(
            "there is no such file",
            where=str(path),
            mend="`advisor config sample` prints a file to start from",
            code="config.missing",
        ) from None
    except OSError as error:
        raise BadInput(
            f"cannot be read ({error.strerror})",
            where=str(path),
            mend="Name a file that this user may read",
            code="config.unreadable",
        ) from None
    if len(content) > _LIMIT_BYTES:
        raise BadInput(
            f"is larger than {_LIMIT_BYTES:,} bytes",
            where=str(path),
            mend="Name a settings file",
            code="config.unreadable",
        )
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BadInput(
            "is not UTF-8 text", where=f"{path}:{line}", mend="Save it as UTF-8", code="config.toml"
        ) from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise BadInput(
            "its lists or tables are nested too deeply",
            where=str(path),
            mend="No setting needs more than a list or table of plain values",
            code="config.toml",
        ) from None
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        where = f"{path}:{match[1]}:{match[2]}" if match else f"{path}:{text.count(chr(10)) + 1}"
        what = str(error).split(" (at ")[0]
        raise BadInput(
            f"is not TOML: {what[:1].lower()}{what[1:]}",
            where=where,
            mend='Write texts in "quotes", lists in [brackets], and each [section] on a line of its own',
            code="config.toml",
        ) from None


def _refuse_unknown(document: Mapping[str, Any], path: Path | None, text: str) -> None:
    """Raise an error with the nearest right name where a section or setting is mistyped."""
    models = section_models()
    for section, values in document.items():
        if section not in models:
            raise unknown(section, models, _place(path, _line_of(text, section, None)), "section")
        if not isinstance(values, dict):
            raise BadInput(
                f"{section} is a section, not a value",
                where=_place(path, _line_of(text, "", section)),
                mend=f"Write [{section}] on a line of its own and its settings below it",
                code="config.section",
            )
        for name in values:
            if name not in models[section].model_fields:
                line = _line_of(text, section, name)
                raise unknown(f"{section}.{name}", by_key(), _place(path, line))


def unknown(key: str, known: Iterable[str], where: str, kind: str = "setting") -> BadInput:
    """The error about a name that no setting, or section, has."""
    return BadInput(
        f"there is no {kind} {key}",
        where=where,
        mend=did_you_mean(key, known),
        code="config.unknown",
    )


def _place(path: Path | None, line: int | None) -> str:
    return f"{path}:{line}" if line else str(path)


def _line_of(text: str, section: str, name: str | None) -> int | None:
    """Line of ``[section]`` (name None) or of a name in it; None for an inline table."""
    current = ""
    in_section = re.compile(rf"""\s*(["']?){re.escape(name or "")}\1\s*[.=]""")
    dotted = re.compile(rf"\s*{re.escape(section)}\s*\.\s*{re.escape(name or '')}\s*[.=]?")
    for number, line in enumerate(text.split("\n"), start=1):
        if header := re.match(r"\s*\[+\s*([^\[\]]+?)\s*\]", line):
            current = header[1].replace(" ", "").replace('"', "")
            if current == (section if name is None else f"{section}.{name}"):
                return number
        elif current == section:
            if name is not None and in_section.match(line):
                return number
        elif not current and dotted.match(line):
            return number
    return None


def _overrides(environ: Mapping[str, str]) -> dict[str, tuple[Definition, Any]]:
    """Settings in the environment, sorted by variable."""
    found: dict[str, tuple[Definition, Any]] = {}
    known = {definition.variable: definition for definition in by_key().values()}
    for variable in sorted(environ):
        if not _OVERRIDE.fullmatch(variable):
            continue
        if variable not in known:
            raise unknown(variable, known, "environment")
        definition = known[variable]
        found[variable] = (definition, _value_of(definition, environ[variable], variable))
    return found


def _value_of(definition: Definition, text: str, variable: str) -> Any:
    """A variable's value: plain text for texts and numbers, TOML for lists and tables (or ``a,b``)."""
    if definition.is_text:
        return None if text == "" and definition.default is None else text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        if definition.kind.startswith("list"):
            return [item.strip() for item in text.split(",") if item.strip()]
        raise BadInput(
            f"{text!r} is not a TOML table",
            where=f"environment {variable}",
            mend="Write { name = value, other = value }",
            code="config.value",
        ) from None


def _validate(
    values: Mapping[str, Mapping[str, Any]], origins: Mapping[str, Origin], path: Path | None
) -> Settings:
    _refuse_nan_and_booleans(values, origins)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = [str(part) for part in first["loc"]]
        key = ".".join(location[:2])
        definition = by_key().get(key)
        origin = origins.get(key)
        where = f"{origin}, {'.'.join(location)}" if origin else f"{path or 'environment'}, section {key}"
        message = first["msg"].removeprefix("Value error, ")
        raise BadInput(
            what_is_wrong(first) if definition else f"{message[:1].lower()}{message[1:]}",
            where=where,
            mend=f"It must be: {describe(definition)}"
            if definition
            else f"`advisor config show {key}` explains these settings",
            code="config.value",
        ) from None
    _refuse_a_shared_name(settings, origins)
    return settings


def _refuse_a_shared_name(settings: Settings, origins: Mapping[str, Origin]) -> None:
    """Refuse the default owner tag where a cloud is set up: clusters that share it end each other's nodes."""
    if settings.ec2.image_id and settings.cluster.name == DEFAULT_CLUSTER_NAME:
        raise BadInput(
            f"the cluster still has the default name {DEFAULT_CLUSTER_NAME!r}, and ec2.image_id is set; "
            "two clusters of one name in an AWS account end each other's nodes",
            where=f"{origins['cluster.name']}, cluster.name",
            mend="Set a name that no other cluster in the AWS account has, such as Slurm's ClusterName",
            code="config.value",
        )


def _refuse_nan_and_booleans(values: Mapping[str, Mapping[str, Any]], origins: Mapping[str, Origin]) -> None:
    """Refuse NaN, which passes every comparison, and ``true``, which Python counts as 1."""
    for section, entries in values.items():
        for name, value in entries.items():
            definition = by_key()[f"{section}.{name}"]
            if wrong := _no_number(value, is_number="number" in definition.kind):
                raise BadInput(
                    f"{wrong} is not a number",
                    where=f"{origins[definition.key]}, {definition.key}",
                    mend=f"It must be: {describe(definition)}",
                    code="config.value",
                )


def _no_number(value: Any, *, is_number: bool) -> str:
    """NaN, or a boolean in place of a number, also within lists and tables, as TOML writes it; else empty."""
    if isinstance(value, dict | list | tuple):
        parts = value.values() if isinstance(value, dict) else value
        return next(filter(None, (_no_number(one, is_number=is_number) for one in parts)), "")
    if isinstance(value, bool):
        return str(value).lower() if is_number else ""
    if isinstance(value, str):  # of a variable; a user or partition may have that name
        return "nan" if is_number and value.strip().lower().lstrip("+-") == "nan" else ""
    return "nan" if isinstance(value, float) and math.isnan(value) else ""
