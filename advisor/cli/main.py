"""The ``advisor`` command: puts the sub-commands together and turns errors into exit codes."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from advisor import __version__
from advisor.cli.output import stderr, with_wide
from advisor.cli.progress import tells_steps
from advisor.model.errors import AdvisorError, BadInput

# The modules of the commands (`_add`), in the order of `advisor --help`. They are named, not imported: a
# command loads only its own module, and this floor imports none of the floor `papers`, which is above it.
COMMANDS: tuple[str, ...] = (
    "advisor.cli.serve",
    "advisor.cli.control",
    "advisor.cli.web",
    "advisor.cli.place_helper",
    "advisor.cli.status",
    "advisor.cli.nodes",
    "advisor.cli.pools",
    "advisor.cli.spend",
    "advisor.cli.budget",
    "advisor.cli.portfolio",
    "advisor.cli.init",
    "advisor.cli.doctor",
    "advisor.cli.uninstall",
    "advisor.cli.advise",
    "advisor.cli.whatif",
    "advisor.cli.rehearse",
    "advisor.cli.recommend",
    "advisor.cli.why",
    "advisor.cli.ledger",
    "advisor.cli.report",
    "advisor.cli.config",
    "advisor.cli.ingest",
    "advisor.cli.tune",
    "advisor.cli.retrain",
    "advisor.cli.notify",
    "advisor.papers.commands.replay_classify",
    "advisor.papers.commands.replay_placement",
    "advisor.papers.commands.replay_portfolio",
    "advisor.papers.commands.replay_schedule",
    "advisor.papers.commands.replay_stability",
    "advisor.papers.commands.replay_waiting",
    "advisor.papers.commands.replay_budget",
    "advisor.papers.commands.replay_promise",
    "advisor.papers.commands.replay_deadline",
    "advisor.papers.commands.replay_pools",
    "advisor.cli.plan",
    "advisor.cli.bench",
    "advisor.cli.traces",
)

# a database that another process holds is for the caller to mend or to wait for, like a wrong path
_EXIT_AS_BAD_INPUT = frozenset({"history.locked", "history.unreachable"})


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"advisor {__version__}")
        raise typer.Exit


def _main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Burst Advisor."""
    from advisor.service.running.logs import configure

    configure()


def _in_paragraphs(text: str) -> str:
    """A docstring without its line ends, which typer keeps from the second paragraph on."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _finish_commands(group: typer.Typer) -> None:
    """Give every command its help, in paragraphs, and the option ``--wide``."""
    for command in group.registered_commands:
        if command.callback is not None:
            command.help = command.help or _in_paragraphs(inspect.getdoc(command.callback) or "")
            command.callback = with_wide(command.callback)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _finish_commands(inner.typer_instance)


def _modules_of(words: Sequence[str]) -> tuple[str, ...]:
    """Where the command that begins with these words is; all modules, if no module has its name.

    Those of ``advisor replay portfolio`` and ``advisor status`` end in "replay_portfolio" and "status". The
    others take longer to load than most commands run.
    """
    for length in (2, 1):
        name = "_".join(words[:length]).replace("-", "_")
        if found := tuple(module for module in COMMANDS if module.rpartition(".")[2] == name):
            return found
    return COMMANDS


def _add(app: typer.Typer, name: str) -> None:
    """Add the command of a module: the function that has its name, else its ``group``, or by ``register``.

    The function of a module ``replay_waiting`` is ``waiting``, a command of ``advisor replay``.
    """
    module = import_module(name)
    if hasattr(module, "register"):
        module.register(app)
        return
    if hasattr(module, "group"):
        app.add_typer(module.group, name=name.rpartition(".")[2])
        return
    group, _, command = name.rpartition(".")[2].rpartition("_")
    (_replay_group(app) if group else app).command(command)(getattr(module, command))


def _replay_group(app: typer.Typer) -> typer.Typer:
    """The group ``advisor replay`` of the application; it is made where no module has asked for it yet."""
    for registered in app.registered_groups:
        if registered.name == "replay" and registered.typer_instance is not None:
            return registered.typer_instance
    made = typer.Typer(no_args_is_help=True, help="Replay logs through the decisions.")
    app.add_typer(made, name="replay")
    return made


def application(words: Sequence[str] = ()) -> typer.Typer:
    """All commands; or, if it is known where the one of these words is, that one alone."""
    made = typer.Typer(
        name="advisor",
        no_args_is_help=True,
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        help="Wait on the cluster, or pay to start in EC2? Decided inside sbatch, from your own history.",
    )
    made.callback()(_main)
    for name in _modules_of(words):
        _add(made, name)
    _finish_commands(made)
    return made


def _complain(text: str) -> None:
    """On standard error, in red; a path is never broken in two."""
    stderr.print(text, style="bold red", markup=False, highlight=False, emoji=False, soft_wrap=True)


def _leave_a_folder_of_others() -> None:
    """Go to ``/`` from a folder that cannot be entered, as after `su` in root's home: workers enter it."""
    try:
        os.chdir(Path.cwd())
    except OSError:
        os.chdir("/")


def run() -> None:
    """Entry point. Exit codes: 0 done, 2 bad input or configuration, 1 anything else."""
    _leave_a_folder_of_others()
    try:
        application(sys.argv[1:])()
    except BadInput as error:
        if tells_steps():
            parts = {"what": error.what, "where": error.where, "mend": error.mend, "code": error.code}
            stderr.file.write(json.dumps({"error": parts}) + "\n")
        else:
            _complain(f"error: {error}")
        sys.exit(2)
    except AdvisorError as error:
        _complain(f"error ({error.code}): {error}")
        sys.exit(2 if error.code in _EXIT_AS_BAD_INPUT else 1)
    except KeyboardInterrupt:
        stderr.print("interrupted", markup=False)
        sys.exit(130)
