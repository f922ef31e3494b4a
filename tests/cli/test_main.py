"""Each command alone, as `advisor` loads it, is the one that all of them together have."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.text import Text
from typer.testing import CliRunner

from advisor.cli.main import application
from tests.commands import app


def paths(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words
        return
    for name, each in inner.items():
        yield from paths(each, *words, name)


def parameters(whole: typer.Typer, words: tuple[str, ...]) -> list[str]:
    command: Any = typer.main.get_command(whole)
    for word in words:
        command = command.commands[word]
    return [str(parameter.opts) for parameter in command.params]


@pytest.mark.parametrize("words", list(paths(typer.main.get_command(app))), ids=" ".join)
def test_a_command_is_found_by_its_words(words: tuple[str, ...]) -> None:
    assert parameters(application([*words, "--help"]), words) == parameters(app, words)


@pytest.mark.parametrize("words", [(), ("--help",), ("replay",), ("frobnicate",)], ids=" ".join)
def test_without_the_name_of_one_all_are_there(words: tuple[str, ...]) -> None:
    found: Any = typer.main.get_command(application(words))
    every: Any = typer.main.get_command(app)
    assert found.commands.keys() == every.commands.keys()


def test_a_command_loads_no_other() -> None:
    script = (
        "import sys; from advisor.cli.main import application; application(['status']); "
        "print(*sorted(name for name in sys.modules if name.startswith('advisor.cli.')))"
    )
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "advisor.cli.status" in loaded
    assert not loaded & {"advisor.cli.control", "advisor.cli.rehearse", "advisor.cli.doctor"}


@pytest.mark.parametrize("module", ["status_report", "cloud_written", "budgets_view"])
def test_what_the_daemons_have_written_is_read_without_simulator_and_database(module: str) -> None:
    """They took half the time of `advisor status`, `nodes` and `budget`."""
    script = (
        f"import sys, advisor.service.admin.{module}; print(*{{'numba', 'sqlalchemy'}} & sys.modules.keys())"
    )
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "words",
    [
        ("decisions", "--limit"),
        ("ledger", "--limit"),
        ("retrain", "--jobs"),
        ("recommend", "--nodes"),
        ("whatif", "--processes"),
        ("plan", "--node-cores"),
        ("rehearse", "--trace", "synthetic:20", "--nodes"),
        ("rehearse", "--trace", "synthetic:20", "--processes"),
    ],
    ids=" ".join,
)
def test_a_number_that_no_machine_can_count_to_is_bad_input(tmp_path: Path, words: tuple[str, ...]) -> None:
    config = tmp_path / "advisor.toml"
    config.write_text(f'[paths]\nstate = "{tmp_path}"\nrun = "{tmp_path}"\n')
    done = CliRunner().invoke(app, [*words, "9" * 30, "--config", str(config)])
    assert done.exit_code == 2
    assert "Invalid value" in done.output


def test_a_folder_that_cannot_be_entered_is_left(tmp_path: Path) -> None:
    """The workers of `su -s /bin/sh advisor -c "advisor whatif"` could not begin in root's home."""
    script = (
        "import os, sys; os.rmdir(os.getcwd()); sys.argv[1:] = ['--version']\n"
        "from advisor.cli.main import run\n"
        "try: run()\nfinally: print(os.getcwd())"
    )
    (gone := tmp_path / "gone").mkdir()
    done = subprocess.run(
        (sys.executable, "-c", script), cwd=gone, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("\n/\n")


def commands(command: Any) -> Iterator[Any]:
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from commands(each)


def test_help_keeps_words_in_brackets() -> None:
    """Typer's help takes ``[budget]`` for a style, and prints nothing in its place."""
    for command in commands(typer.main.get_command(app)):
        helps = [command.help, *(getattr(parameter, "help", None) for parameter in command.params)]
        for text in filter(None, helps):
            assert Text.from_markup(text).plain == text.replace("\\[", "["), command.name
