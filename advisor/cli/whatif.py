"""``advisor whatif``: decide the jobs of the last weeks again with other settings."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, loaded_settings
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking, working
from advisor.cli.tables import print_table
from advisor.model.errors import BadInput
from advisor.model.site import SiteState
from advisor.replay.traces import find_trace
from advisor.service.admin.since import clock_text, parse_since

if TYPE_CHECKING:
    from advisor.config.loading import LoadedSettings
    from advisor.model.settings import Settings
    from advisor.predict.knn.fitness import Target
    from advisor.predict.knn.parameters import KnnParameters
    from advisor.replay.own_history import OwnJobs
    from advisor.replay.whatif import WhatIfRow

_IN_FORCE, _CHANGED, _BEST = "in force", "changed", "clairvoyant"
_REASONS = 5


def register(app: typer.Typer) -> None:
    """Add ``advisor whatif``."""
    app.command("whatif")(whatif)


def whatif(
    *,
    since: Annotated[
        str,
        typer.Option("--since", help="Jobs submitted since then: 30d, 12w, or a date such as 2026-11-21."),
    ] = "30d",
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.NAME=VALUE",
            help="A changed setting, its value as TOML; may be repeated. Example: "
            "placement.uncertainty_limit_minutes=30, so that only surer forecasts move a job.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Use the jobs of a log (.swf, .swf.gz, synthetic[:jobs[:seed]]) instead of the history.",
        ),
    ] = None,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Decide the finished jobs again: with the settings in force, and with some of them changed.

    Each job is decided from what was known at its submission; what it would have saved or lost is computed
    from its actual wait and run time. Nothing is written. Without --set, only the settings in force are
    evaluated, which is useful before anything is switched on.
    """
    from advisor.config.editing import parse_changes

    begun = time.perf_counter()
    trace = None if trace is None else Path(find_trace(str(trace)))
    result = _compared(trace, since, loaded_settings(config), _expanded(parse_changes(changes or ())))
    result["seconds"] = time.perf_counter() - begun
    emit(result, output, lambda console: _draw(console, result))


def _compared(
    trace: Path | None, since: str, loaded: LoadedSettings, asked: dict[str, Any]
) -> dict[str, Any]:
    """The jobs decided with the settings in force and, if any are asked for, with changed ones."""
    from advisor.config.loading import changed
    from advisor.decide.submission.policy import in_force

    settings = {_IN_FORCE: in_force(loaded.settings)}
    if asked:
        settings[_CHANGED] = in_force(changed(loaded, asked).settings)
    seen = (
        lasting_state(loaded.settings) if trace is None else SiteState(time=time.perf_counter(), cluster=None)
    )
    jobs, wanted, begin, name = _jobs(trace, since, loaded.settings, seen)
    rows, optimum = _rows(jobs, begin, settings, seen)
    return {
        "history": name,
        "since": begin,
        "asked_since": wanted,
        "changes": asked,
        "jobs": rows[_IN_FORCE].jobs,
        "left_out_cloud_jobs": jobs.in_cloud,
        "rows": [_row(which, row, optimum[which]) for which, row in rows.items()],
    }


def _expanded(changes: dict[str, Any]) -> dict[str, Any]:
    """Replace ``placement.cutoff=C`` (seconds squared, of earlier releases) by the limit in minutes."""
    if "placement.cutoff" not in changes:
        return changes
    said = changes["placement.cutoff"]
    if isinstance(said, bool) or not isinstance(said, int | float) or not said >= 0.0:
        raise BadInput(
            f"{said!r} is not a variance in seconds squared",
            where="--set placement.cutoff",
            mend="Use placement.uncertainty_limit_minutes, a number of minutes",
            code="config.value",
        )
    limit = {"placement.uncertainty_limit_minutes": math.sqrt(said) / 60.0, "placement.use_cutoff": False}
    return limit | {key: value for key, value in changes.items() if key != "placement.cutoff"}


def _jobs(
    trace: Path | None, since: str, settings: Settings, seen: SiteState
) -> tuple[OwnJobs, float, float, str]:
    """The jobs, the requested and the possible begin of the window (epoch seconds), and the jobs' source.

    A short history begins with its first forecasts.
    """
    from advisor.history.store import HistoryStore
    from advisor.replay.own_history import jobs_of_log, jobs_of_store, window_begin
    from advisor.replay.sources import load_table

    if trace is not None:
        with ticking() as tick:
            table = load_table(trace, progress=lambda done, total: tick("reading", done, total))
        end = table.start_of_log + float((table.submit + table.wait.clip(0.0) + table.run).max())
        wanted = parse_since(since, end)
        return jobs_of_log(table), wanted, window_begin(table, wanted), table.name
    wanted = parse_since(since, time.time())
    processors = 0 if seen.cluster is None else seen.cluster.total_processors
    with (
        HistoryStore(settings.paths.history_url, read_only=True) as store,
        working("reading the history"),
    ):
        jobs = jobs_of_store(store, settings, wanted, processors=processors)
        begin = window_begin(jobs.table, wanted)
        if begin > wanted:
            jobs = jobs_of_store(store, settings, begin, processors=processors)
    return jobs, wanted, begin, "history"


def lasting_state(settings: Settings) -> SiteState:
    """The site's last snapshot; of the cloud only what lasts: sizes, prices, the boot time.

    Availability of capacity and the number of free reserved nodes differed at each submission.
    """
    from msgspec.structs import replace

    from advisor.model.errors import UseFallback
    from advisor.service.exchange import snapshot

    try:
        seen = snapshot.read(settings.paths.snapshot).state
    except UseFallback:
        return SiteState(time=0.0, cluster=None)
    lasting = replace(
        seen.cloud,
        reserved_free_nodes=0,
        spot_open=True,
        on_demand_open=True,
        protected="",
        steady_free_nodes=0,
        rooms={},
    )
    return replace(seen, cloud=lasting)


def _rows(
    jobs: OwnJobs, begin: float, settings: Mapping[str, Settings], seen: SiteState
) -> tuple[dict[str, WhatIfRow], dict[str, float]]:
    """Results of each settings, and what a clairvoyant would have saved with the same ones."""
    from advisor.replay.own_history import counted, history_of
    from advisor.replay.whatif import clairvoyant, decide_again

    with ticking() as tick:
        histories = history_of(
            jobs,
            begin,
            rules=frozenset(one.placement.rule for one in settings.values()),
            parameters=_parameters(settings[_IN_FORCE]),
            tick=tick,
        )
        found: dict[str, WhatIfRow] = {}
        for which, one in settings.items():
            history = histories[one.placement.rule]
            told = counted(f"deciding, {which}", len(history.rows), tick)
            found[which] = decide_again(history, one, told, _seen_with(one, settings[_IN_FORCE], seen))
    best = {
        which: clairvoyant(histories[one.placement.rule], one, _seen_with(one, settings[_IN_FORCE], seen))
        for which, one in settings.items()
    }
    optimum = {which: row.saved_seconds for which, row in best.items()}
    last = _CHANGED if _CHANGED in settings else _IN_FORCE
    return found | {_BEST: best[last]}, optimum | {_BEST: optimum[last]}


def _seen_with(settings: Settings, in_force: Settings, seen: SiteState) -> SiteState:
    """The snapshot, without the learned speed s(c) of the cloud where the settings change it."""
    from msgspec.structs import replace

    names = ("overhead_per_processor", "baseline", "learn_performance_ratio")
    if all(getattr(settings.placement, name) == getattr(in_force.placement, name) for name in names):
        return seen
    return replace(seen, ratios=None)


def _parameters(settings: Settings) -> dict[Target, KnnParameters]:
    """The parameters in force of the published rule's estimators."""
    from advisor.history.models import ModelStore
    from advisor.history.parameters import load_parameters, untuned_of
    from advisor.predict.knn.features import CUNHA_TABLE_I

    untuned = untuned_of(settings.estimator, CUNHA_TABLE_I)
    return load_parameters(ModelStore(folder=settings.paths.models), CUNHA_TABLE_I, untuned)


def _row(which: str, row: WhatIfRow, optimum: float) -> dict[str, Any]:
    return {
        "settings": which,
        "cloud_jobs": row.cloud_jobs,
        "hedged_jobs": row.hedged_jobs,
        "slower_jobs": row.slower_jobs,
        "saved_seconds": row.saved_seconds,
        "lost_seconds": row.lost_seconds,
        "fraction_of_optimal": row.saved_seconds / optimum if optimum else None,
        "mean_turnaround_seconds": row.mean_turnaround_seconds,
        "cost_usd": row.cost_usd,
        "dearest_day_usd": row.dearest_day_usd,
        "cloud_core_hours": row.cloud_core_hours,
        "capacity": dict(row.capacity),
        "reasons": dict(row.reasons.most_common()),
    }


def _draw(console: Console, result: Mapping[str, Any]) -> None:
    from advisor.service.admin.whatif_words import whatif_table

    begin = clock_text(result["since"])
    console.print(Text(f"{result['jobs']:,} on-premise jobs of {result['history']} since {begin}"))
    if result["asked_since"] < result["since"]:
        wanted = clock_text(result["asked_since"])
        console.print(Text(f"Not since {wanted}, as requested: too few jobs had ended for forecasts."))
    headings, cells = whatif_table(result["rows"])
    print_table(console, headings, cells, numbers=headings[1:])
    for row in result["rows"]:
        most = list(row["reasons"].items())[:_REASONS]
        if most:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in most)
            console.print(Text(f"{row['settings']}: {reasons}"))
    for key, value in result["changes"].items():
        console.print(Text(f"changed: {key} = {value}"))
    if result["left_out_cloud_jobs"]:
        console.print(
            Text(
                f"{result['left_out_cloud_jobs']:,} jobs ran in the cloud and are left out: how long they "
                "would have waited is unknown."
            )
        )
