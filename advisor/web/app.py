"""The web application: its pages, the guard before them, and its answers to errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Final

import anyio.to_thread
import structlog
from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from advisor.model.errors import AdvisorError, RetryLater
from advisor.web import (
    accuracy,
    decisions,
    jobs,
    ledger,
    money,
    nodes,
    overview,
    plots,
    signing_in,
    tune,
    whatif,
)
from advisor.web.answers import Answers, RefusedError
from advisor.web.guard import Guard, own_names
from advisor.web.site import Site

log = structlog.get_logger(__name__)

_THREADS: Final = 8
"""Pages made at a time: they shall use one processor of the controller, not all."""
_STATIC: Final = {
    "style.css": "text/css",
    "plots.js": "text/javascript",
    "tune.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_KEPT: Final = "public, max-age=3600"
_FOR_EVER: Final = "public, max-age=31536000, immutable"


def create_app(site: Site) -> Guard:
    """The application of a site behind its guard; the what-if that runs ends with it."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        yield
        await anyio.to_thread.run_sync(site.runs.close)

    def admit(request: Request) -> None:
        signing_in.admit(site, request)

    # no pages about the interface: they fetch scripts from elsewhere
    app = FastAPI(
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[Depends(admit)],
    )
    answers = Answers(site)
    for page in (signing_in, overview, tune, accuracy, decisions, jobs, ledger, money, nodes, whatif):
        page.add_to(app, site, answers)
    _add_static(app)
    _add_errors(app, answers)
    return Guard(app, own_names(site.first.web))


def _add_static(app: FastAPI) -> None:
    folder = files("advisor.web") / "static"

    @app.api_route("/static/{name}", methods=["GET", "HEAD"])
    def static(name: str) -> Response:
        if name == f"plotly-{plots.library_version()}.js":
            return Response(
                plots.library(), media_type="text/javascript", headers={"cache-control": _FOR_EVER}
            )
        if name not in _STATIC:
            raise RefusedError(404, "there is no such file")
        content = (folder / name).read_bytes()
        return Response(content, media_type=_STATIC[name], headers={"cache-control": _KEPT})


def _add_errors(app: FastAPI, answers: Answers) -> None:
    @app.exception_handler(RefusedError)
    def refused(request: Request, error: RefusedError) -> Response:
        return answers.error(request, error.status, "web.refused", error.message)

    @app.exception_handler(AdvisorError)
    def failed(request: Request, error: AdvisorError) -> Response:
        log.warning("web.failed", path=request.url.path, code=error.code, message=str(error))
        headers = {"retry-after": "10"} if isinstance(error, RetryLater) else None
        return answers.error(request, 503, error.code, str(error), headers)

    @app.exception_handler(RequestValidationError)
    def wrong(request: Request, error: RequestValidationError) -> Response:
        names = sorted({str(one["loc"][-1]) for one in error.errors()})
        return answers.error(request, 400, "web.refused", f"not understood: {', '.join(names)}")

    @app.exception_handler(HTTPException)
    def other(request: Request, error: HTTPException) -> Response:
        words = "there is no such page" if error.status_code == 404 else str(error.detail)
        return answers.error(request, error.status_code, "web.refused", words, error.headers)

    @app.exception_handler(Exception)
    def broken(request: Request, error: Exception) -> Response:
        log.error("web.broken", path=request.url.path, exc_info=error)
        return answers.error(
            request, 500, "web.broken", "an error of the advisor; `journalctl -u advisor-web` says more"
        )
