"""Who asks for a page, and what each role may do."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from advisor.model.settings_service import WebSettings

OPEN: Final = ("/static/", "/signin")
"""Beginnings of addresses that are answered without signing in."""
_OF_USERS: Final = ("/jobs", "/decisions")
_READING: Final = frozenset({"GET", "HEAD"})


class Role(enum.StrEnum):
    """What a person may do: everything; everything but change settings; look at jobs of their own."""

    ADMIN = "admin"
    OPERATOR = "operator"
    USER = "user"


_POSTS: Final[Mapping[Role, tuple[str, ...]]] = MappingProxyType(
    {
        Role.ADMIN: ("/signout", "/whatif", "/tune"),
        Role.OPERATOR: ("/signout", "/whatif"),
        Role.USER: ("/signout",),
    }
)


@dataclass(frozen=True, slots=True)
class Person:
    """Someone who has signed in; the name is that of a user of the cluster."""

    name: str
    role: Role

    @property
    def sees_all(self) -> bool:
        """Whether jobs of others may be seen."""
        return self.role is not Role.USER

    @property
    def may_apply(self) -> bool:
        """Whether settings may be changed."""
        return self.role is Role.ADMIN

    def may(self, method: str, path: str) -> bool:
        """Whether this person may send a request. What no rule allows is refused."""
        if method not in _READING:
            return _is_below(path, _POSTS[self.role])
        return self.sees_all or path == "/" or _is_below(path, _OF_USERS)


def role_of(name: str, web: WebSettings) -> Role:
    """The role that the settings give to a user whom the proxy has named."""
    if name in web.admins:
        return Role.ADMIN
    return Role.OPERATOR if name in web.operators else Role.USER


def is_open(path: str) -> bool:
    """Whether an address is answered without signing in."""
    return path.startswith(OPEN[0]) or path == OPEN[1]


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)
