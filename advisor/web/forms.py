"""Read the forms of our own pages."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from advisor.web.answers import RefusedError
from advisor.web.guard import MAX_BODY_BYTES
from advisor.web.persons import Person
from advisor.web.site import Site

_MAX_FIELDS: Final = 64


async def read_form(request: Request, site: Site) -> dict[str, str]:
    """A form's fields.

    Raises:
        RefusedError: No form, one that is too long, or one without this person's token.
    """
    fields = await read_open_form(request)
    if not site.gate.is_token(fields.get("token", ""), person_of(request)):
        raise RefusedError(
            403, "the form is from before a restart or from another site: open the page again and resend it"
        )
    return fields


async def read_open_form(request: Request) -> dict[str, str]:
    """The fields of a form that needs no token: the one by which people sign in."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise RefusedError(415, "send the form as application/x-www-form-urlencoded")
    try:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise RefusedError(413, f"the form is too long: shorten it to {MAX_BODY_BYTES:,} bytes")
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except (ValueError, ClientDisconnect):
        raise RefusedError(400, "the form cannot be read: open the page again and resend it") from None


def person_of(request: Request) -> Person:
    """Who asks; `admit` has let nobody pass who has not signed in."""
    person: Person = request.state.person
    return person
