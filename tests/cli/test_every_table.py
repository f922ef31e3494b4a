"""Every command that prints a result: nothing is cut or too wide at 80 columns, nor broken in a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from advisor.cli import output
from tests.cli.test_cloud_commands import config, report, written  # noqa: F401 - fixtures
from tests.commands import app

pytestmark = pytest.mark.slow

WALKED = {
    "status": [],
    "nodes": [],
    "pools": [],
    "spend": [],
    "portfolio show": [],
    "doctor": [],
    "ledger": [],
    "decisions": [],
    "config show": ["--origin"],
    "config check": [],
    "config history": [],
    "traces list": [],
    "rehearse": ["--trace", "synthetic:600:1", "--processes", "1"],
    "replay placement": ["--trace", "synthetic:600:1", "--no-tune", "--factors", "0.01,0.5"],
    "replay schedule": ["--trace", "synthetic:400:1", "--policies", "fcfs", "--variants", "base"],
    "replay waiting": ["--trace", "synthetic:600:1"],
    "replay budget": ["--trace", "synthetic:600:1", "--skip", "100"],
    "replay promise": ["--trace", "synthetic:600:1"],
    "replay portfolio": ["--trace", "synthetic:60:1", "--simulate", "2"],
    "replay stability": ["--nodes", "synthetic:C2:1", "--schedulers", "capacity", "--draws", "1"],
    "plan": ["--trace", "synthetic:600:1"],
}
NOT_WALKED = {
    "advise", "why", "whatif",  # with tests of their own; sentences, or the same tables
    "portfolio undo", "ingest swf", "ingest sacct", "ingest lsb.acct", "report", "retrain", "traces get",
    "config set", "config undo", "budget set", "init", "uninstall", "notify",  # a line or two each
    "recommend", "replay deadline", "replay pools", "web link", "bench pages",  # with tests of their own
    "tune", "replay classify",  # minutes; the same function prints them
    "bench knn", "bench tune", "bench retrain", "bench submit", "bench simulate", "bench portfolio",
    "bench launch", "bench hedge", "bench matching", "bench soak", "bench price",
    "bench runtimes", "bench fidelity", "bench live_days", "bench hookless", "bench takeover",
    "bench slurm_api", "bench promises", "bench back_to_spot",
}  # fmt: skip


def commands(group: typer.Typer, before: str = "") -> Iterator[str]:
    """Commands that take --wide."""
    for command in group.registered_commands:
        callback = command.callback
        if callback is not None and "wide" in output.inspect.signature(callback).parameters:
            yield f"{before}{command.name}"
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            yield from commands(inner.typer_instance, f"{before}{inner.name} ")


def test_day_one_14_no_command_is_forgotten() -> None:
    assert set(commands(app)) == WALKED.keys() | NOT_WALKED


def said(words: list[str]) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("command", WALKED)
def test_day_one_14_every_table_fits_80_columns_and_pipes(
    command: str,
    config: Path,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [*command.split(), *WALKED[command]]
    if not command.startswith(("replay", "traces")):
        words += ["--config", str(config)]
    piped = said(words)
    monkeypatch.setattr(output, "_console", lambda: Console(width=80, force_terminal=True, color_system=None))
    shown = said(words)
    too_wide = [line for line in shown.splitlines() if cell_len(line) > 80]
    assert too_wide == []
    assert "…" not in shown
    for text in (piped, shown):
        assert "nan" not in text.lower().split()
    # what a figure or a name is in the pipe, it is in one piece on the terminal, too
    figures = {word for word in piped.split() if any(letter.isdigit() for letter in word) and len(word) < 20}
    changing = {word for word in figures if word not in shown}
    assert len(changing) <= len(figures) // 3, changing  # ages and durations differ between two calls


def test_day_one_19_help_is_broken_where_the_terminal_ends_and_nowhere_else() -> None:
    done = CliRunner().invoke(app, ["why", "-h"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    assert done.exit_code == 0
    assert (
        "(its advice is a few seconds old, or this host has no ledger), the job's AdminComment" in done.output
    )
