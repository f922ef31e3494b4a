"""The error for a login that may not use a file or socket of the advisor."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from advisor.files.owners import group_name, user_name
from advisor.model.errors import TellAdmin

DENIED: Final = "access.denied"
"""Code of the error; it does not say whether the file or socket exists."""


def denied(path: Path) -> TellAdmin:
    """The error for a login that may not use ``path``: it names the login, the owner and who may use it."""
    login = user_name(os.geteuid())
    blocking = next((one for one in (*reversed(path.parents), path) if not _may_pass(one, path)), path)
    try:
        found = blocking.stat()
    except OSError:
        return TellAdmin(f"{path}: this login ({login}) may not use it. Run the command as root", code=DENIED)
    owner, group, mode = user_name(found.st_uid), group_name(found.st_gid), stat.S_IMODE(found.st_mode)
    members = f", or from a login of the group {group}" if mode & stat.S_IRWXG else ""
    return TellAdmin(
        f"{path}: this login ({login}) may not use it: {blocking} belongs to {owner}:{group}, "
        f"mode {mode:04o}. Run the command as root, or as {owner} (runuser -u {owner} -- ...){members}",
        code=DENIED,
    )


def _may_pass(part: Path, whole: Path) -> bool:
    """Whether this login may enter the folder ``part``, or use ``whole`` itself."""
    wanted = os.X_OK
    if part == whole and not part.is_dir():
        wanted = os.R_OK | os.W_OK if part.is_socket() else os.R_OK
    return os.access(part, wanted, effective_ids=True)
