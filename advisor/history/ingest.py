"""Add jobs of logs and accounting to the history in batches; repeating a call adds no job twice.

`advisor ingest` calls it, and the learn loop for what sacct says of the last minutes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path

from msgspec.structs import replace

from advisor.files.log_file import MalformedLine
from advisor.history import sacct, swf
from advisor.history.ingest_report import IngestReport
from advisor.history.store import Attempt, HistoryStore
from advisor.model.job import JobOutcome

_BATCH_JOBS = 10_000
_FIRST_HISTORY_SECONDS = 365 * 86400.0
OVERLAP_SECONDS = 3600.0
"""Overlap of a sacct call with the last one: slurmdbd gets records late and unordered."""
SHORT_OVERLAP_SECONDS = 120.0
"""Overlap of most calls of `advisor control`, which uses the long one from time to time."""


def ingest_swf(
    store: HistoryStore,
    path: str | Path,
    *,
    source: str | None = None,
    malformed: swf.Malformed = "skip",
    progress: swf.Progress | None = None,
) -> IngestReport:
    """Add the jobs of an SWF log that ran; after an interruption the next call continues.

    ``source`` is by default ``swf:`` and the file's name without its endings.

    Raises:
        BadInput: As :func:`advisor.history.swf.iter_outcomes`; batches that were added before stay.
        RetryLater: The database is locked or does not answer; batches that were added before stay.
    """
    path = Path(path)
    source = source or f"swf:{path.name.removesuffix('.gz').removesuffix('.swf')}"
    report = IngestReport(source=source)

    def skip(line: MalformedLine) -> None:
        report.malformed_record(f"line {line.number}: {line.reason}: {line.text}")

    outcomes = swf.iter_outcomes(path, malformed=malformed, report=skip, progress=progress)
    first = next(outcomes, None)  # before the file's size is read: this reports a folder or missing file
    size = path.stat().st_size if path.is_file() else 0
    done = _rows_done(store.cursor(source), size)
    stream = chain([] if first is None else [first], outcomes)
    report.read = sum(1 for _ in islice(stream, done))
    while batch := list(islice(stream, _BATCH_JOBS)):
        report.read += len(batch)
        cursor = json.dumps({"bytes": size, "rows": report.read})
        report.added += store.add(batch, source=source, cursor=cursor)
    return report


def _rows_done(cursor: str | None, size: int) -> int:
    """Rows of the same file that were added before; 0 when the file's size has changed."""
    try:
        content = json.loads(cursor or "{}")
        same = size > 0 and content.get("bytes") == size
        return max(0, int(content["rows"])) if same else 0
    except (ValueError, TypeError, KeyError, AttributeError):
        return 0


def sacct_since(
    store: HistoryStore, now: float, *, source: str = "slurm", overlap_seconds: float = OVERLAP_SECONDS
) -> float:
    """Epoch seconds from which to read sacct: the last known end less the overlap, at first a year ago.

    The last *end* counts, not the time of the last call: while slurmdbd is down, slurmctld keeps records and
    sends them later with their old times.
    """
    last_end = _last_end(store.cursor(source))
    if last_end is None:
        return max(0.0, now - _FIRST_HISTORY_SECONDS)
    return max(0.0, min(last_end, now) - overlap_seconds)


def ingest_sacct(
    store: HistoryStore,
    lines: Iterable[str],
    *,
    fields: Sequence[str],
    delimited_by: str,
    now: float = math.inf,
    report: IngestReport | None = None,
) -> IngestReport:
    """Add ended jobs from sacct's output, called with :func:`advisor.history.sacct.arguments`.

    The runs of a requeued job become one outcome: first submission, last start, number of restarts. Raises
    RetryLater when the database is locked or does not answer; the next call then reads the same period.

    Args:
        now: Epoch seconds. A later end, of a clock that was wrong, does not count as how far was read.
        report: The counts of earlier calls, to which those of this one are added.
    """
    report = report or IngestReport(source="slurm")
    source = report.source
    runs = sacct.parse(lines, fields, delimited_by, report)
    last_end = float("-inf")
    while batch := list(islice(runs, _BATCH_JOBS)):
        known_runs = store.attempts([run.job_id for run in batch], source=source)
        outcomes, attempts = _join_runs(batch, known_runs, report)
        if attempts:
            store.add_attempts(attempts, source=source)
        report.read += len(outcomes)
        report.added += store.add(outcomes, source=source)
        report.restarted |= {outcome.job.job_id for outcome in outcomes if outcome.restarts}
        last_end = max(last_end, *(min(run.end_time, now) for run in batch))
    known = _last_end(store.cursor(source))
    if last_end > float("-inf") and (known is None or known < last_end or known > now):
        store.set_cursor(source, repr(last_end))
    return report


def _last_end(cursor: str | None) -> float | None:
    """The last known end, epoch seconds; None where nothing was read, or the cursor is not understood."""
    try:
        found = float(cursor or "nan")
    except ValueError:
        return None
    return None if math.isnan(found) else found


def _join_runs(
    runs: list[sacct.EndedRun], known: list[Attempt], report: IngestReport
) -> tuple[list[JobOutcome], list[Attempt]]:
    """Give each run its job's first submission: a run is submitted in the second in which the last ended.

    Of a run that began before its submission and that follows none the first submission is not known.
    """
    before = {(attempt.job_id, attempt.end_time): attempt for attempt in known}
    outcomes: list[JobOutcome] = []
    attempts: list[Attempt] = []
    for run in sorted(runs, key=lambda run: (run.job_id, run.submit_time, run.end_time)):
        previous = before.get((run.job_id, run.submit_time))
        if previous is not None and previous.submit_time == run.submit_time:
            previous = None  # a run that ended in the second of its submission does not follow itself
        first = previous.first_submit_time if previous else run.submit_time
        restarts = previous.restarts + (not run.was_resized) if previous else 0
        if run.was_resized and previous is None:
            report.never_started += 1
        elif run.outcome is not None:
            job = replace(run.outcome.job, submit_time=first)
            counted = max(restarts, run.outcome.restarts)
            ineligible = 0.0 if previous else run.outcome.ineligible_seconds
            outcomes.append(replace(run.outcome, job=job, restarts=counted, ineligible_seconds=ineligible))
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
