"""`advisor replay budget` on the command line."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from tests.commands import app


def test_a_short_log_teaches_by_a_tenth_of_it() -> None:
    words = ["replay", "budget", "--trace", "synthetic:200:1", "--processes", "1", "--format", "json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["jobs"] == 180
