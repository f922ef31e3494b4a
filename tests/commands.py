"""All commands of `advisor`, put together once for the tests that run them in this process."""

from __future__ import annotations

from advisor.cli.main import application

app = application()
