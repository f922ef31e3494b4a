"""Names of users and groups by their numbers, and files that root gives to the service's user."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path


def user_name(user_id: int) -> str:
    """Name of a user; the number where no user has it."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


def give_to_owner_of(folder: Path, *paths: Path) -> None:
    """Give what root has made there to the owner of a folder.

    Raises:
        OSError: One of them is not there.
    """
    if os.geteuid() == 0:
        owner = folder.stat()
        for path in paths:
            os.chown(path, owner.st_uid, owner.st_gid)


def group_name(group_id: int) -> str:
    """Name of a group; the number where no group has it."""
    try:
        return grp.getgrgid(group_id).gr_name
    except (KeyError, OverflowError):  # no group has a number beyond 32 bits
        return str(group_id)
