"""``advisor whatif``: simulate the jobs of the last weeks with other settings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, loaded_settings
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.own_jobs import jobs_since
from advisor.cli.progress import ticking
from advisor.cli.tables import print_table
from advisor.parallel import cores
from advisor.replay.traces import find_trace
from advisor.service.admin.rehearsal_words import fidelity_words
from advisor.service.admin.whatif_words import whatif_table, window_words

if TYPE_CHECKING:
    from advisor.config.loading import LoadedSettings
    from advisor.model.settings import Settings

MAX_PROCESSORS: Final = 1_000_000_000
MAX_PROCESSES: Final = 1_000
_IN_FORCE, _CHANGED = "in force", "changed"


SinceOption = Annotated[
    str, typer.Option("--since", help="Jobs submitted since then: 30d, 12w, or a date such as 2026-11-21.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.NAME=VALUE",
        help="A changed setting, its value as TOML; may be repeated. Example: "
        "price.uncertainty_limit_minutes=30, so that only surer forecasts move a job.",
    ),
]
LogOption = Annotated[
    Path | None,
    typer.Option(
        "--trace", help="Use the jobs of a log (.swf, .swf.gz, synthetic[:jobs[:seed]]), not the history."
    ),
]
NodesOption = Annotated[
    int,
    typer.Option(
        min=0,
        max=MAX_PROCESSORS,
        metavar="PROCESSORS",
        help="Processors of the cluster on-premise; 0: as Slurm or the log's header says, else the most that "
        "were ever busy.",
    ),
]
ProcessesOption = Annotated[
    int, typer.Option(min=0, max=MAX_PROCESSES, help="Simulations at the same time; 0: one for each core.")
]


def whatif(
    *,
    since: SinceOption = "30d",
    changes: SetOption = None,
    trace: LogOption = None,
    nodes: NodesOption = 0,
    processes: ProcessesOption = 0,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Simulate the finished jobs again: with the settings in force, and with some of them changed.

    It is a closed loop: a job that leaves the queue lets those behind it start sooner. Each job is decided
    from what was known at that moment, whatever the modes of the partitions are. Nothing is written. Without
    --set, only the settings in force are simulated, which is useful before anything is switched on.
    """
    from advisor.config.editing import parse_changes

    begun = time.perf_counter()
    trace = None if trace is None else Path(find_trace(str(trace)))
    result = _compared(
        loaded_settings(config),
        parse_changes(changes or ()),
        since,
        trace,
        nodes,
        processes or cores(),
    )
    result["seconds"] = time.perf_counter() - begun
    emit(result, output, lambda console: _draw(console, result))


def _compared(
    loaded: LoadedSettings,
    asked: dict[str, Any],
    since: str,
    trace: Path | None,
    nodes: int,
    processes: int,
) -> dict[str, Any]:
    """The jobs with the settings in force and, if any are asked for, with changed ones."""
    from advisor.decide.submission.policy import in_force
    from advisor.replay.closed_loop.site_settings import not_shown, seen_as_set, simulation_of
    from advisor.replay.whatif import compared

    now = in_force(loaded.settings)
    other = _changed(loaded, asked) if asked else None
    with ticking("reading the history") as tick:
        seen, own = jobs_since(now, since, trace, nodes, tick)
        simulations = [simulation_of(_IN_FORCE, now, own, seen)]
        if other is not None:
            simulations.append(simulation_of(_CHANGED, other, own, seen_as_set(seen, asked)))
        found = compared(own, simulations, processes=processes, tick=tick)
    notes = dict.fromkeys(line for one in (now, other) if one is not None for line in not_shown(one, own))
    return {
        "history": "history" if trace is None else own.jobs.table.name,
        "since": float(own.jobs.submit[0]),
        "asked_since": own.since,
        "changes": asked,
        "is_whole_history": own.jobs.first == 0 and own.since < float(own.jobs.submit[0]),
        "jobs": len(own.jobs),
        "processors": own.jobs.machine,
        "cloud_jobs": own.in_cloud,
        **found,
        "notes": list(notes),
    }


def _changed(loaded: LoadedSettings, asked: dict[str, Any]) -> Settings:
    """The changed settings, with those of their policy.

    Raises:
        BadInput: A wrong setting, or one that is not simulated.
    """
    from advisor.config.loading import changed
    from advisor.decide.submission.policy import in_force
    from advisor.replay.closed_loop.site_settings import VARIANCE_CUTOFF, cutoff_changes, refuse_not_shown

    plain = {key: value for key, value in asked.items() if key != VARIANCE_CUTOFF}
    policy = changed(loaded, plain).settings.cluster.policy
    refuse_not_shown(asked, policy)
    return in_force(changed(loaded, cutoff_changes(asked, policy)).settings)


def _draw(console: Console, result: Mapping[str, Any]) -> None:
    console.print(Text(window_words(result)))
    headings, cells = whatif_table(result["rows"])
    print_table(console, headings, cells, numbers=headings[1:])
    for key, value in result["changes"].items():
        console.print(Text(f"changed: {key} = {value}"))
    for line in (*result["notes"], *fidelity_words(result["fidelity"])):
        console.print(Text(line))
