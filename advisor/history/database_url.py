"""The URL of the history's database: which ones are supported, and the schema that PostgreSQL's names."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import URL

from advisor.model.errors import BadInput

_SCHEMA: Final = re.compile(r"[A-Za-z0-9_.-]{0,63}")


def parse(url: str) -> tuple[URL, str]:
    """The URL for the driver, and the name of PostgreSQL's schema; empty: the user's own.

    Raises:
        BadInput: It is none that is supported (``history.url``).
    """
    try:
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
    except (sa.exc.ArgumentError, ValueError):
        backend = ""
    if backend == "sqlite":
        return parsed, ""
    if backend in ("postgresql", "postgres"):
        with suppress(ImportError):
            import psycopg  # noqa: F401, PLC0415 - an extra: said below how to get it

            name = parsed.query.get("schema", "")
            if not isinstance(name, str) or not _SCHEMA.fullmatch(name):
                raise BadInput(
                    f"schema={name!a} is no name of a schema",
                    where="paths.database_url",
                    mend="Use letters, digits and . _ -, at most 63",
                    code="history.url",
                )
            return parsed.difference_update_query(["schema"]).set(drivername="postgresql+psycopg"), name
        raise BadInput(
            "PostgreSQL needs the psycopg package",
            where="paths.database_url",
            mend="Install burst-advisor[postgresql]",
            code="history.url",
        )
    raise BadInput(
        "not a database URL that is supported",  # not repeated here: it may carry a password
        where="paths.database_url",
        mend="Use sqlite:////folder/history.db (four slashes) or postgresql://user@host/name",
        code="history.url",
    )
