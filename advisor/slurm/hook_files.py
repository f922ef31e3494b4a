"""Find this release's Slurm programs: the hook, resume, suspend, resume_fail, prolog_slurmctld.

`advisor init`, the doctor and `uninstall` know the installed ones by them.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from advisor.model.errors import BadInput

HOOK: Final = "job_submit.lua"
HOOK_MODULE: Final = "advisor_submit.lua"
CLOUD_PROGRAMS: Final = ("resume", "suspend", "resume_fail")
PROLOG: Final = "prolog_slurmctld"
LOGIN_TOOL: Final = "burst-why"
"""For login nodes; named burst-when it says when a job starts."""
_INSTALLED: Final = (Path("/usr/local/lib/advisor"), Path("/usr/libexec/burst-advisor"))


def folder() -> Path:
    """Folder of the programs: inside the installed package, or beside it in a checkout.

    Raises:
        BadInput: Neither folder has them.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "hooks", package.parent.parent / "slurm_hooks"):
        if (candidate / HOOK).is_file():
            return candidate
    raise BadInput(
        f"{HOOK} does not exist",
        where=str(package / "hooks"),
        mend="Install the package again",
        code="hooks.missing",
    )


def installed(name: str) -> Path:
    """Where docs/install.md or a package has put one of the programs, else where this package has it.

    Raises:
        BadInput: There are no programs.
    """
    places = (place / name for place in _INSTALLED)
    return next((path for path in places if path.is_file()), folder() / name)


def is_ours(path: Path, name: str) -> bool | None:
    """Whether an installed program is this release's; None when it cannot be read.

    The interpreter in its first line is not compared: it differs from site to site.
    """
    try:
        return _content(path) == _content(folder() / name)
    except OSError:
        return None


def program_defaults() -> dict[str, str]:
    """The settings of resume, suspend, resume_fail and prolog_slurmctld, with their defaults."""
    found: dict[str, str] = {}
    for name in (CLOUD_PROGRAMS[0], PROLOG):
        for statement in ast.parse((folder() / name).read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "DEFAULTS":
                found |= ast.literal_eval(statement.value)
    return found


def _content(path: Path) -> bytes:
    found = path.read_bytes()
    first, line_end, rest = found.partition(b"\n")
    return rest if first.startswith(b"#!") and line_end else found
