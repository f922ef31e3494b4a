"""``advisor ingest``: add finished jobs of logs and of the accounting to the history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from advisor.cli.context import ConfigOption, loaded_settings
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking
from advisor.model.errors import AdvisorError, BadInput

if TYPE_CHECKING:
    from advisor.history.ingest_report import IngestReport
    from advisor.lsf.job_finish import SiteTerms
    from advisor.model.settings import Settings

group = typer.Typer(no_args_is_help=True, help="Add finished jobs to the history.")


class MemoryUnits(StrEnum):
    """Unit of memory sizes without one."""

    KB = "KB"
    MB = "MB"
    GB = "GB"
    TB = "TB"


DatabaseOption = Annotated[
    str | None, typer.Option("--database", help="SQLAlchemy URL of the history; the settings' by default.")
]
RefuseOption = Annotated[
    bool, typer.Option("--refuse-malformed", help="Stop at the first malformed line instead of skipping it.")
]
WaitOption = Annotated[
    float, typer.Option(min=0.0, help="Longest wait for another process that writes, seconds.")
]


def history_url(database: str | None, config: Path | None) -> str:
    """URL of the history: the option's, else the settings'."""
    return loaded_settings(config).settings.history_url if database is None else database


@group.command("swf")
def ingest_swf(
    files: Annotated[list[Path], typer.Argument(help="Logs in Standard Workload Format, plain or gzip.")],
    source: Annotated[
        str | None, typer.Option(help="Name of the jobs' source; by default `swf:` and the file's name.")
    ] = None,
    refuse_malformed: RefuseOption = False,
    wait: WaitOption = 10.0,
    database: DatabaseOption = None,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Add the jobs of workload logs. Repeating it, also after an interruption, adds no job twice."""
    from advisor.history import ingest as ingestion
    from advisor.history.store import HistoryStore

    reports = []
    with HistoryStore(history_url(database, config), busy_seconds=wait) as store:
        for file in files:
            with _reading(file.name) as tick:
                report = ingestion.ingest_swf(
                    store,
                    file,
                    source=source,
                    malformed="refuse" if refuse_malformed else "skip",
                    progress=tick,
                )
            reports.append(report)
        total = store.count()
    emit({"sources": [_plain(report) for report in reports], "jobs": total}, output, _show(reports, total))


@group.command("sacct")
def ingest_sacct(
    since: Annotated[
        str | None,
        typer.Option(help="First UTC date to read (2026-01-31); by default where the last run ended."),
    ] = None,
    database: DatabaseOption = None,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Add the ended jobs of this cluster's Slurm accounting, a week at a time.

    The first run reads a year. Repeating it, also after an interruption, adds no job twice.
    """
    from advisor.history.ingest import sacct_since
    from advisor.history.store import HistoryStore
    from advisor.service.observation.accounting import ingest_accounting
    from advisor.slurm.cli import CliBackend

    settings = loaded_settings(config).settings
    if settings.cluster.scheduler == "lsf":
        mend = "Use `advisor ingest lsb.acct LOGDIR`"
        raise BadInput("this cluster is LSF's, which has no sacct", where="cluster.scheduler", mend=mend)
    slurm = CliBackend.of(settings)
    with HistoryStore(history_url(database, config)) as store:
        now = time.time()
        begin = _epoch(since) if since is not None else sacct_since(store, now)
        with _reading("the accounting") as tick:
            report = ingest_accounting(store, slurm, begin, now, progress=tick)
        total = store.count()
    emit({"sources": [_plain(report)], "jobs": total}, output, _show([report], total))


@group.command("lsb.acct")
def ingest_lsb_acct(
    paths: Annotated[
        list[Path],
        typer.Argument(help="LSF's logdir, or its files lsb.acct, lsb.acct.1, ...; plain or gzip."),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            help="Name of the jobs' source: one for each cluster. By default this cluster's own, where "
            'cluster.scheduler is "lsf", so that `advisor control` goes on with it; else `lsf`.'
        ),
    ] = None,
    memory_unit: Annotated[
        MemoryUnits | None,
        typer.Option(
            help="The cluster's LSF_UNIT_FOR_LIMITS. Default: that of this cluster's lsf.conf, else MB.",
            case_sensitive=False,
        ),
    ] = None,
    refuse_malformed: RefuseOption = False,
    wait: WaitOption = 10.0,
    database: DatabaseOption = None,
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Add the ended jobs of LSF's accounting.

    Repeating it reads only new records, also after lsb.acct was renamed to lsb.acct.1.
    """
    from advisor.history.store import HistoryStore
    from advisor.lsf import ingest as ingestion
    from advisor.service.observation.accounting import SOURCE

    settings = loaded_settings(config).settings
    is_own = settings.cluster.scheduler == "lsf"
    terms = _terms(settings if is_own and source is None else None, memory_unit)
    with HistoryStore(history_url(database, config), busy_seconds=wait) as store:
        with _reading("lsb.acct") as tick:
            report = ingestion.ingest_lsb_acct(
                store,
                paths,
                source=source or (SOURCE if is_own else "lsf"),
                malformed="refuse" if refuse_malformed else "skip",
                terms=terms,
                progress=tick,
            )
        total = store.count()
    emit({"sources": [_plain(report)], "jobs": total}, output, _show([report], total))


def _terms(settings: Settings | None, unit: MemoryUnits | None) -> SiteTerms:
    """What the records leave to their site's configuration: of this cluster as LSF says, if it answers."""
    from advisor.lsf.commands import LsfCommands
    from advisor.lsf.installation import read_installation
    from advisor.lsf.job_finish import USUAL_TERMS
    from advisor.lsf.site import SiteReader

    terms = USUAL_TERMS
    if settings is not None:
        with suppress(AdvisorError):
            lsf = read_installation(settings.paths.lsf_envdir, settings.cluster.name)
            terms = SiteReader(LsfCommands(lsf), time.monotonic).terms((), lsf.memory_unit)
    return terms if unit is None else replace(terms, memory_unit=unit.value)


def _plain(report: IngestReport) -> dict[str, Any]:
    known = asdict(report)
    del known["restarted"]  # for the learn loop
    return known


def _epoch(date: str) -> float:
    try:
        moment = datetime.fromisoformat(date)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        raise BadInput(f"{date!r} is not a date", where="--since", mend="Write it as 2026-01-31") from None


def _show(reports: list[IngestReport], total: int) -> Any:
    def show(console: Console) -> None:
        for report in reports:
            line = f"{report.source}: {report.read:,} finished jobs read, {report.added:,} new"
            console.print(line, markup=False, emoji=False)
            if report.never_started:
                console.print(f"  {report.never_started:,} jobs that never started were left out")
            if report.other_records:
                console.print(f"  {report.other_records:,} records of other kinds were skipped")
            if report.unended:
                console.print("  the incomplete last line is left for the next run")
            if report.malformed:
                console.print(f"  {report.malformed:,} malformed lines were skipped, among them:")
                for problem in report.problems:
                    console.print(f"    {problem}", markup=False, highlight=False, emoji=False)
        console.print(f"{total:,} jobs in the history")

    return show


@contextmanager
def _reading(what: str) -> Iterator[Callable[[int, int], None]]:
    name = f"reading {what}"
    with ticking(name) as tick:
        yield lambda done, total: tick(name, done, total)
