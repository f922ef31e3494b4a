"""Check each request (length, host, origin) before any page sees it; set each answer's security headers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from advisor.model.settings_service import WebSettings

MAX_BODY_BYTES: Final = 16 * 1024
_MAX_TARGET_BYTES: Final = 4096
_METHODS: Final = frozenset({"GET", "HEAD", "POST"})
# plotly adds one empty style sheet that it fills by script: its hash is that of no text at all
_EMPTY_STYLE: Final = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
HEADERS: Final = {
    "content-security-policy": (
        f"default-src 'none'; script-src 'self'; style-src 'self' {_EMPTY_STYLE}; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Refuses requests that no page of this application makes.

    The page of another site can make the admin's browser send requests here (DNS rebinding gives it our
    address under its own name) and send forms. So the Host header and the origin of forms are checked;
    `hosts` are the allowed names, without port.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            status, text = refusal
            await PlainTextResponse(f"{text}\n", status)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if scope["method"] not in _METHODS:
            return 405, "Use GET for pages, and POST for forms."
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _MAX_TARGET_BYTES:
            return 414, "The address is too long."
        if name_of(headers.get("host", "")) not in self._hosts:
            return (
                421,
                "This host name is not allowed: add the proxy's names to web.hosts in the settings.",
            )
        if scope["method"] == "POST":
            return self._form_refusal(headers)
        return None

    def _form_refusal(self, headers: Headers) -> tuple[int, str] | None:
        length = headers.get("content-length", "")
        if not (length.isdecimal() and length.isascii()) or int(length) > MAX_BODY_BYTES:
            return 413, f"A form must have a Content-Length of at most {MAX_BODY_BYTES:,} bytes."
        origin = headers.get("origin")
        if origin is not None and name_of(urlsplit(origin).netloc) not in self._hosts:
            return 403, "The form was sent from another site."
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return 403, "The form was sent from another site."
        return None


def name_of(host: str) -> str:
    """The name in a Host header, in lower case and without port and brackets; empty for an invalid one."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def own_names(web: WebSettings) -> frozenset[str]:
    """Allowed names: the proxy's, the address, and localhost where only this machine can connect."""
    names = {*web.hosts, name_of(web.address) or web.address, web.address.lower()}
    return frozenset(names | ({"localhost", "127.0.0.1", "::1"} if web.is_for_this_machine_alone else set()))
