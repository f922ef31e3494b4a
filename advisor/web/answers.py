"""Answer requests with pages or JSON from the same data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from advisor import __version__
from advisor.decide.explanation.display import clean, duration, usd
from advisor.decide.explanation.wording import in_general
from advisor.model.errors import AdvisorError
from advisor.model.job_id import job_name
from advisor.model.periods import period_now
from advisor.model.plain import plain
from advisor.service.admin.since import moment_text, zone_text
from advisor.service.admin.whatif_words import percent
from advisor.web.plots import library_version
from advisor.web.site import Site

PAGES: Final = (
    ("", "Overview"),
    ("tune", "Tune"),
    ("accuracy", "Accuracy"),
    ("decisions", "Decisions"),
    ("ledger", "Ledger"),
    ("money", "Money"),
    ("nodes", "Nodes"),
    ("portfolio", "Portfolio"),
    ("whatif", "What if"),
)


class RefusedError(Exception):
    """A request is refused: HTTP status, and a message that says what is wrong and how to mend it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Answers:
    """Renders pages and JSON."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("advisor.web"),
            autoescape=True,
            finalize=printable,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "count": count,
            "usd": usd,
            "duration": span,
            "job": job_name,
            "clock": clock,
            "tidy": tidy,
            "percent": percent,
            "period_now": period_now,
            "in_general": in_general,
            "words": lambda text: str(text).replace("_", " "),
        }
        self._templates.globals |= {
            "release": __version__,
            "base": site.first.web.path,
            "plotly_version": library_version(),
            "zone": zone_text,
        }

    def page(
        self,
        request: Request,
        template: str,
        data: Mapping[str, Any],
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **words: Any,
    ) -> Response:
        """One answer: ``data`` as JSON, or the template rendered with ``data`` and ``words``."""
        if _wants_json(request):
            return JSONResponse(plain(data), status, headers)
        person = getattr(request.state, "person", None)
        asked = [(name, text) for name, text in request.query_params.multi_items() if name != "format"]
        drawn = self._templates.get_template(template).render(
            **data,
            **words,
            cluster=self._site.settings().cluster.name,
            person=person,
            pages=[page for page in PAGES if person is not None and person.may("GET", f"/{page[0]}")],
            token="" if person is None else self._site.gate.form_token(person),
            here=request.url.path.strip("/").partition("/")[0],
            as_data=urlencode([*asked, ("format", "json")]),
        )
        return HTMLResponse(drawn, status, headers)

    def error(
        self, request: Request, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        """An error as a page or as JSON."""
        data = {"error": {"code": code, "message": message}}
        try:
            return self.page(request, "error.html", data, status=status, headers=headers)
        except RefusedError:  # the requested format is what is wrong
            return JSONResponse(data, status, headers)


def _wants_json(request: Request) -> bool:
    """Whether ``?format=json`` or the Accept header asks for JSON; RefusedError for other formats."""
    asked = request.query_params.get("format", "")
    if asked not in {"", "html", "json"}:
        raise RefusedError(400, "format must be html or json")
    accept = request.headers.get("accept", "")
    return asked == "json" or (not asked and "application/json" in accept and "text/html" not in accept)


def part(make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """One part of a page, or its error: the other parts are shown even if one fails."""
    try:
        return dict(make())
    except AdvisorError as error:
        return {"error": {"code": error.code, "message": str(error)}}


def count(number: float | None) -> str:
    """A count as text; a dash for None."""
    return "-" if number is None else f"{number:,.0f}"


def span(seconds: float | None) -> str:
    """A duration as text; a dash for None."""
    return "-" if seconds is None else duration(seconds)


def clock(seconds: float | None) -> str:
    """A moment as text, in the time zone that the page's footer names; a dash for None."""
    return "-" if seconds is None else moment_text(seconds)


def printable(value: Any) -> Any:
    """Text without control and other invisible characters, which could mislead readers."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in value)


def tidy(text: object, limit: int = 80) -> str:
    """Text that users typed, on one line; the template escapes it."""
    return clean(str(text), limit) if text not in {None, ""} else "-"
