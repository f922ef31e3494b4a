"""Signing in by a one-time link, signing out, and the check of every request against the person's role."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from advisor.web.answers import Answers, RefusedError
from advisor.web.forms import read_form, read_open_form
from advisor.web.gate import COOKIE, SESSION_SECONDS
from advisor.web.links import Links
from advisor.web.persons import is_open
from advisor.web.site import Site

_HOW: Final = (
    "Sign in first: open the pages through your site's proxy, or by a link that `advisor web link` prints on "
    "the controller."
)
_GONE: Final = (
    "This link lets nobody in: it was used before, it is too old, or part of it is missing. "
    "`advisor web link` on the controller prints a new one."
)


def admit(site: Site, request: Request) -> None:
    """Note who asks; refuse those who have not signed in and what the role does not allow.

    Raises:
        RefusedError: With 401 or 403.
    """
    person = site.gate.person_of(request)
    request.state.person = person
    path = request.scope["path"]  # not request.url: that is put together from the Host header
    if is_open(path):
        return
    if person is None:
        raise RefusedError(401, _HOW)
    if not person.may(request.method, path):
        raise RefusedError(403, f"{person.name} ({person.role}) may not do this: ask an admin of the advisor")


def add_to(app: FastAPI, site: Site, answers: Answers) -> None:
    """Add the pages."""
    home = f"{site.first.web.path}/"

    @app.api_route("/signin", methods=["GET", "HEAD"])
    def form(request: Request, link: str = "") -> Response:
        # the link is used by the button: what a chat program or a browser fetches ahead does not use it up
        return answers.page(request, "signin.html", {"signed_in": False}, link=link, how=_HOW)

    @app.post("/signin")
    async def enter(request: Request) -> Response:
        asked = await read_open_form(request)
        links = Links(site.settings().paths.state)
        person = await run_in_threadpool(links.use, asked.get("link", ""), site.now())
        if person is None:
            raise RefusedError(403, _GONE)
        answer = RedirectResponse(home, 303)
        answer.set_cookie(
            COOKIE,
            site.gate.open(person),
            max_age=int(SESSION_SECONDS),
            path=home,
            secure=urlsplit(request.headers.get("origin", "")).scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    @app.post("/signout")
    async def leave(request: Request) -> Response:
        await read_form(request, site)
        site.gate.close(request)
        answer = RedirectResponse(f"{site.first.web.path}/signin", 303)
        answer.delete_cookie(COOKIE, path=home)
        return answer
