"""Names of users and groups by their numbers, which stand for names that are not there."""

from __future__ import annotations

import grp
import pwd


def user_name(user_id: int) -> str:
    """Name of a user; the number where no user has it."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


def group_name(group_id: int) -> str:
    """Name of a group; the number where no group has it."""
    try:
        return grp.getgrgid(group_id).gr_name
    except (KeyError, OverflowError):  # no group has a number beyond 32 bits
        return str(group_id)
