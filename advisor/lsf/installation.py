"""Where an LSF installation has its commands and its files, by its lsf.conf. The back end begins with it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast, get_args

from advisor.lsf.resource_request import MemoryUnit
from advisor.model.errors import BadInput

EVENTS: Final = "lsb.events"
_MAX_BYTES: Final = 1024 * 1024
_LINE: Final = re.compile(r"""\s*([A-Z][A-Z0-9_]*)\s*=\s*("[^"]*"|'[^']*'|[^#]*?)\s*(?:#.*)?""")
"""LSF takes what follows a number sign for a comment, also behind a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One LSF.

    Attributes:
        environment_folder: Its ``LSF_ENVDIR``, the folder of lsf.conf.
        commands: The folder of bjobs, bhosts and the others.
        log_folder: The folder of lsb.events and lsb.acct.
        memory_unit: ``LSF_UNIT_FOR_LIMITS``.
        idle_seconds: How long its resource connector keeps a host without a job; None: for ever.
    """

    environment_folder: Path
    commands: Path
    log_folder: Path
    memory_unit: MemoryUnit = "MB"
    idle_seconds: int | None = 3600


def read_installation(folder: Path, cluster: str) -> Installation:
    """Read lsf.conf in a folder.

    Args:
        folder: ``LSF_ENVDIR``.
        cluster: The cluster's name; it matters where LSB_SHAREDIR holds the files of several.

    Raises:
        BadInput: lsf.conf cannot be read (``lsf.no_conf``), or does not say where something is
            (``lsf.conf``).
    """
    path = folder / "lsf.conf"
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except OSError as error:
        raise BadInput(
            f"cannot be read ({error.strerror})",
            where=str(path),
            mend="Set paths.lsf_envdir, or LSF_ENVDIR, to the folder of lsf.conf",
            code="lsf.no_conf",
        ) from None
    said = {found[1]: found[2].strip("\"'") for line in lines if (found := _LINE.fullmatch(line))}
    unit = said.get("LSF_UNIT_FOR_LIMITS", "MB").upper()
    idle = said.get("LSB_RC_EXTERNAL_HOST_IDLE_TIME", "")
    return Installation(
        environment_folder=folder,
        commands=_named(said, "LSF_BINDIR", path),
        log_folder=_log_folder(_named(said, "LSB_SHAREDIR", path), cluster, path),
        memory_unit=cast("MemoryUnit", unit) if unit in get_args(MemoryUnit) else "MB",
        idle_seconds=60 * (int(idle) if idle.isdecimal() else 60) or None,
    )


def _named(said: dict[str, str], name: str, path: Path) -> Path:
    value = said.get(name, "")
    if not value.startswith("/"):
        raise BadInput(
            f"it has no absolute path for {name}",
            where=str(path),
            mend=f"Add the line {name}=/path/of/the/folder",
            code="lsf.conf",
        )
    return Path(value)


def _log_folder(share: Path, cluster: str, path: Path) -> Path:
    """LSB_SHAREDIR/logdir, as volclava has it, or LSB_SHAREDIR/cluster/logdir."""
    usual = (share / "logdir", share / cluster / "logdir")
    found = [folder for folder in usual if (folder / EVENTS).exists()]
    others = [] if found else sorted(file.parent for file in share.glob(f"*/logdir/{EVENTS}"))
    if found or len(others) == 1:
        return (found or others)[0]
    what = f"there is no {EVENTS}" if not others else "there are several clusters"
    raise BadInput(
        f"{what} under LSB_SHAREDIR={share}",
        where=str(path),
        mend=f"Set cluster.name to LSF's name of the cluster, and let the advisor's user read {EVENTS}",
        code="lsf.conf",
    )
