"""Where this release's Slurm programs are: the hook, resume, suspend, resume_fail, prolog_slurmctld."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from advisor.model.errors import BadInput

HOOK: Final = "job_submit.lua"
HOOK_MODULE: Final = "advisor_submit.lua"
CLOUD_PROGRAMS: Final = ("resume", "suspend", "resume_fail")
PROLOG: Final = "prolog_slurmctld"


def folder() -> Path:
    """Folder of the programs: inside the installed package, or beside it in a checkout.

    Raises
    ------
    BadInput
        Neither is there.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "hooks", package.parent.parent / "slurm_hooks"):
        if (candidate / HOOK).is_file():
            return candidate
    raise BadInput(
        f"{HOOK} is not there",
        where=str(package / "hooks"),
        mend="Install the package again",
        code="hooks.missing",
    )


def is_ours(path: Path, name: str) -> bool | None:
    """Whether an installed program is this release's; None when it cannot be read."""
    try:
        return sha256(path.read_bytes()).digest() == sha256((folder() / name).read_bytes()).digest()
    except OSError:
        return None
