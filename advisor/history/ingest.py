"""From logs and accounting into the history: in batches, restartable, any number of times."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from advisor.history import sacct, swf
from advisor.history.store import Attempt, HistoryStore
from advisor.model.job import JobOutcome

_BATCH_JOBS = 10_000
_FIRST_HISTORY_SECONDS = 365 * 86400.0
OVERLAP_SECONDS = 3600.0
"""How far a sacct call looks back behind the last known end: slurmdbd gets records late and unordered."""
SHORT_OVERLAP_SECONDS = 120.0
"""How far most calls of a service that asks again and again look back; the long way every now and then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """What one ingestion did.

    Attributes
    ----------
    source : str
        Name under which the jobs are kept.
    read, added : int
        Finished jobs read; those that were not known.
    malformed : int
        Lines or records left out because they were not understood.
    problems : tuple of str
        The first of them: where and why.
    never_started : int
        Jobs cancelled before their start (sacct, lsb.acct).
    other_records, unended : int
        Records that are of no finished job, and files whose last line has no end yet (lsb.acct).
    restarted : frozenset of int
        Ended jobs that had been requeued: of one that was known its end may be another now.
    """

    source: str
    read: int = 0
    added: int = 0
    malformed: int = 0
    problems: tuple[str, ...] = field(default=())
    never_started: int = 0
    other_records: int = 0
    unended: int = 0
    restarted: frozenset[int] = frozenset()


def ingest_swf(
    store: HistoryStore,
    path: str | Path,
    *,
    source: str | None = None,
    malformed: swf.Malformed = "skip",
    progress: swf.Progress | None = None,
) -> IngestReport:
    """Add the jobs of an SWF log that ran. Stopped halfway, it goes on where it was.

    Parameters
    ----------
    source : str, optional
        ``swf:`` and the file's name without its endings by default; the log read again under the same
        name adds nothing.

    Raises
    ------
    BadInput
        As :func:`advisor.history.swf.iter_outcomes`; what was read before a fault stays.
    RetryLater
        The database is locked or away; whole batches stay.
    """
    path = Path(path)
    source = source or f"swf:{path.name.removesuffix('.gz').removesuffix('.swf')}"
    problems = swf.MalformedLines()
    outcomes = swf.iter_outcomes(path, clock="epoch", malformed=malformed, report=problems, progress=progress)
    first = next(outcomes, None)  # the file is looked at before its size: a folder or no file is told there
    size = path.stat().st_size if path.is_file() else 0
    done = _rows_done(store.cursor(source), size)
    stream = _chain(first, outcomes)
    read = sum(1 for _ in islice(stream, done))
    added = 0
    while batch := list(islice(stream, _BATCH_JOBS)):
        read += len(batch)
        added += store.add(batch, source=source, cursor=json.dumps({"bytes": size, "rows": read}))
    return IngestReport(
        source=source,
        read=read,
        added=added,
        malformed=problems.count,
        problems=tuple(f"line {line.number}: {line.reason}: {line.text}" for line in problems.first),
    )


def _chain(first: JobOutcome | None, rest: Iterator[JobOutcome]) -> Iterator[JobOutcome]:
    if first is not None:
        yield first
        yield from rest


def _rows_done(cursor: str | None, size: int) -> int:
    """Rows of the same file that are in already; 0 when the file's size is another one."""
    try:
        content = json.loads(cursor or "{}")
        same = size > 0 and content.get("bytes") == size
        return max(0, int(content["rows"])) if same else 0
    except (ValueError, TypeError, KeyError, AttributeError):
        return 0


def sacct_since(
    store: HistoryStore, now: float, *, source: str = "slurm", overlap_seconds: float = OVERLAP_SECONDS
) -> float:
    """From when on sacct is to be asked: the last known end less the overlap, at first a year ago.

    The place kept is the last *end seen*, not the time of the last call: while slurmdbd is away slurmctld
    holds records back and hands them over later with their old times.
    """
    try:
        last_end = float(store.cursor(source) or "nan")
    except ValueError:
        last_end = float("nan")
    if last_end != last_end:  # noqa: PLR0124 - NaN: nothing read yet, or a cursor nobody understands
        return max(0.0, now - _FIRST_HISTORY_SECONDS)
    return max(0.0, min(last_end, now) - overlap_seconds)


def ingest_sacct(
    store: HistoryStore,
    lines: Iterable[str],
    *,
    fields: Sequence[str],
    delimited_by: str,
    source: str = "slurm",
) -> IngestReport:
    """Add ended jobs from sacct's output. The same text again adds nothing.

    The runs of a requeued job become one outcome: first submission, last start, restarts counted.

    Parameters
    ----------
    lines : iterable of str
        Standard output of ``sacct`` called with :func:`advisor.history.sacct.arguments`.
    fields, delimited_by
        As given there.

    Raises
    ------
    RetryLater
        The database is locked or away. The next call asks again from where this one began.
    """
    report = sacct.SacctReport()
    runs = sacct.parse(lines, fields, delimited_by, report)
    read = added = 0
    restarted = set[int]()
    last_end = float("-inf")
    while batch := list(islice(runs, _BATCH_JOBS)):
        outcomes, attempts = _join_runs(batch, store.attempts([run.job_id for run in batch], source=source))
        if attempts:
            store.add_attempts(attempts, source=source)
        read += len(outcomes)
        added += store.add(outcomes, source=source)
        restarted |= {outcome.job.job_id for outcome in outcomes if outcome.restarts}
        last_end = max(last_end, *(run.end_time for run in batch))
    known = store.cursor(source)
    if last_end > float("-inf") and (known is None or _number(known) < last_end):
        store.set_cursor(source, repr(last_end))
    return IngestReport(
        source=source,
        read=read,
        added=added,
        malformed=report.malformed,
        problems=tuple(report.problems),
        never_started=report.never_started,
        restarted=frozenset(restarted),
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("-inf")


def _join_runs(runs: list[sacct.EndedRun], known: list[Attempt]) -> tuple[list[JobOutcome], list[Attempt]]:
    """Give every run its job's first submission: a run begins at the second in which the last one ended."""
    before = {(attempt.job_id, attempt.end_time): attempt for attempt in known}
    outcomes: list[JobOutcome] = []
    attempts: list[Attempt] = []
    for run in sorted(runs, key=lambda run: (run.job_id, run.submit_time, run.end_time)):
        previous = before.get((run.job_id, run.submit_time))
        if previous is not None and previous.submit_time == run.submit_time:
            previous = None  # a run that ended in the second it was submitted is not its own predecessor
        first = previous.first_submit_time if previous else run.submit_time
        restarts = previous.restarts + 1 if previous else 0
        if run.outcome is not None:
            job = replace(run.outcome.job, submit_time=first)
            counted = max(restarts, run.outcome.restarts)
            outcomes.append(replace(run.outcome, job=job, restarts=counted))
        if run.may_continue:
            attempt = Attempt(
                job_id=run.job_id,
                submit_time=run.submit_time,
                start_time=run.start_time,
                end_time=run.end_time,
                first_submit_time=first,
                restarts=restarts,
                partition=run.partition,
                nodes=run.nodes,
            )
            attempts.append(attempt)
            before[(run.job_id, run.end_time)] = attempt
    return outcomes, attempts
