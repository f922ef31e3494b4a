"""Add the jobs of ``lsb.acct`` to the history; each call continues where the last one ended.

`advisor ingest lsb.acct` calls it, and the learn loop by way of the back end.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import RecordedAdvice
from advisor.files.log_file import Malformed, Progress
from advisor.history.ingest_report import IngestReport
from advisor.history.sacct import EndedRun
from advisor.history.store import Attempt, HistoryStore
from advisor.lsf.job_finish import USUAL_TERMS, SiteTerms
from advisor.lsf.lsb_acct import AcctReader, Place, find_files
from advisor.model.job import JobOutcome

SOURCE: Final = "lsf"
_BATCH_RUNS: Final = 10_000
_MAX_FILES: Final = 2000
"""Files whose position is kept; a file beyond them is read again, which adds nothing."""


def ingest_lsb_acct(
    store: HistoryStore,
    paths: Sequence[Path],
    *,
    source: str = SOURCE,
    malformed: Malformed = "skip",
    terms: SiteTerms = USUAL_TERMS,
    progress: Progress | None = None,
    advice_of: Callable[[int], RecordedAdvice | None] = lambda _job_id: None,
) -> IngestReport:
    """Add the jobs of LSF's accounting; a file that was renamed since is not read again.

    The runs of a requeued job become one outcome: submission, last start, number of restarts.

    Args:
        paths: Files (plain or gzip), or folders with ``lsb.acct``, ``lsb.acct.1``, ...
        source: Name of the cluster's jobs in the history: one for each cluster.
        terms: The site's configuration.
        progress: Called with (bytes read, bytes in the file).
        advice_of: A job's advice, by its 64-bit id.

    Raises:
        BadInput: See :func:`~advisor.lsf.lsb_acct.find_files` and :class:`~advisor.lsf.lsb_acct.AcctReader`;
            batches that were added before stay.
        RetryLater: The database is locked or does not answer; batches that were added before stay.
    """
    places = _places(store.cursor(source))
    report = IngestReport(source=source)
    for file in find_files(paths):
        reader = AcctReader(
            file,
            place=places.pop(file.fingerprint, Place()),
            report=report,
            malformed=malformed,
            terms=terms,
            progress=progress,
        )
        runs = (_with_advice(run, advice_of) for run in reader)
        _add_runs(store, runs, reader, report, places, file.fingerprint)
    return report


def _add_runs(
    store: HistoryStore,
    runs: Iterator[EndedRun],
    reader: AcctReader,
    report: IngestReport,
    places: dict[str, Place],
    fingerprint: str,
) -> None:
    """Add a file's runs, and with each batch the place up to which it is read."""
    source = report.source
    while batch := list(islice(runs, _BATCH_RUNS)):
        outcomes = _remember_runs(store, batch, source)
        places[fingerprint] = reader.place
        report.read += len(outcomes)
        report.added += store.add(outcomes, source=source, cursor=_cursor(places))
    places[fingerprint] = reader.place
    store.set_cursor(source, _cursor(places))


def _with_advice(run: EndedRun, advice_of: Callable[[int], RecordedAdvice | None]) -> EndedRun:
    """With the id of its advice, and the limit that its user gave (as of sacct)."""
    found = advice_of(run.job_id) if run.outcome is not None else None
    if run.outcome is None or found is None:
        return run
    job = run.outcome.job
    job = replace(job, requested_time=found.users_limit(job.requested_time))
    return dataclasses.replace(run, outcome=replace(run.outcome, job=job, advice_id=found.advice_id))


def _remember_runs(store: HistoryStore, runs: list[EndedRun], source: str) -> list[JobOutcome]:
    """Store the runs that another run may follow, and count in each outcome the runs before it."""
    known = store.attempts([run.job_id for run in runs], source=source)
    ends: dict[tuple[int, float], set[float]] = {}
    for attempt in known:
        ends.setdefault((attempt.job_id, attempt.first_submit_time), set()).add(attempt.end_time)
    outcomes: list[JobOutcome] = []
    attempts: list[Attempt] = []
    for run in runs:
        before = [end for end in ends.get((run.job_id, run.submit_time), ()) if end < run.end_time]
        if run.outcome is not None:
            outcomes.append(replace(run.outcome, restarts=max(len(before), run.outcome.restarts)))
        if run.may_continue:
            attempts.append(
                Attempt(
                    job_id=run.job_id,
                    submit_time=max(before, default=run.submit_time),
                    start_time=run.start_time,
                    end_time=run.end_time,
                    first_submit_time=run.submit_time,
                    restarts=len(before),
                    partition=run.partition,
                    nodes=run.nodes,
                )
            )
            ends.setdefault((run.job_id, run.submit_time), set()).add(run.end_time)
    if attempts:
        store.add_attempts(attempts, source=source)
    return outcomes


def _places(cursor: str | None) -> dict[str, Place]:
    """Position in each file; none when the cursor cannot be read."""
    try:
        files = json.loads(cursor or "{}").get("files", {})
        return {str(name): Place(*_numbers(place)) for name, place in files.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _numbers(place: Sequence[object]) -> tuple[int, int]:
    offset, line = place
    if not (isinstance(offset, int) and isinstance(line, int) and min(offset, line) >= 0):
        raise ValueError(place)
    return offset, line


def _cursor(places: dict[str, Place]) -> str:
    kept = list(places.items())[-_MAX_FILES:]
    return json.dumps({"files": dict(kept)})
