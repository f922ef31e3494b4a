"""Find out who sends a request: by the site's proxy, or by the cookie of someone who came by a link."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final

from starlette.requests import Request

from advisor.model.settings_service import WebSettings
from advisor.web.persons import Person, role_of

COOKIE: Final = "advisor_session"
SESSION_SECONDS: Final = 12 * 3600.0
_MAX_SESSIONS: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,79}")


@dataclass(frozen=True, slots=True)
class _Session:
    person: Person
    until: float


class Gate:
    """Who asks.

    Args:
        settings: Those of the pages, as they are now: a role that is taken away is gone at once.
        wall: Epoch seconds.
    """

    def __init__(self, settings: Callable[[], WebSettings], wall: Callable[[], float]) -> None:
        self._settings = settings
        self._wall = wall
        self._secret = secrets.token_bytes(32)
        self._sessions: dict[bytes, _Session] = {}
        self._lock = threading.Lock()

    def person_of(self, request: Request) -> Person | None:
        """Who sends this request; None for someone who has not signed in."""
        return self._by_proxy(request) or self._by_cookie(request)

    def form_token(self, person: Person) -> str:
        """The secret in each form of a person, which no other site and no other person knows."""
        return hmac.new(self._secret, f"{person.role}:{person.name}".encode(), hashlib.sha256).hexdigest()

    def is_token(self, found: str, person: Person) -> bool:
        """Whether a form has the person's token, compared in constant time."""
        return hmac.compare_digest(found.encode(errors="replace"), self.form_token(person).encode())

    def open(self, person: Person) -> str:
        """Begin a session; returns the cookie's value."""
        cookie, now = secrets.token_urlsafe(32), self._wall()
        with self._lock:
            self._sessions = {key: one for key, one in self._sessions.items() if now < one.until}
            while len(self._sessions) >= _MAX_SESSIONS:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[_key(cookie)] = _Session(person, now + SESSION_SECONDS)
        return cookie

    def close(self, request: Request) -> None:
        """End the session of a request."""
        with self._lock:
            self._sessions.pop(_key(request.cookies.get(COOKIE, "")), None)

    def _by_cookie(self, request: Request) -> Person | None:
        cookie = request.cookies.get(COOKIE)
        if not cookie:
            return None
        with self._lock:
            session = self._sessions.get(_key(cookie))
        return session.person if session is not None and self._wall() < session.until else None

    def _by_proxy(self, request: Request) -> Person | None:
        """Whom the proxy names, in one header, once; a second one may be the browser's own."""
        web = self._settings()
        if not web.user_header or not _is_of_proxy(request, web):
            return None
        named = request.headers.getlist(web.user_header)
        if len(named) != 1 or not _NAME.fullmatch(named[0]):
            return None
        return Person(named[0], role_of(named[0], web))


def _is_of_proxy(request: Request, web: WebSettings) -> bool:
    """Whether a request came by the Unix socket, whose file only the proxy opens, or from a proxy's address.

    Which socket it came by is read from our end of it: the other end's address is unknown, too, for someone
    who has closed the connection meanwhile.
    """
    server = request.scope.get("server")
    if server is not None and server[1] is None:
        return True
    if request.client is None:
        return False
    with suppress(ValueError):
        asking = ip_address(request.client.host)
        return any(asking in ip_network(network) for network in web.proxy_addresses)
    return False


def _key(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="replace")).digest()
