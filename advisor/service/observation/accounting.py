"""From sacct into the history, a week at a time: what the learn loop and `advisor ingest sacct` share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from advisor.history.ingest import IngestReport, ingest_sacct
from advisor.history.store import HistoryStore
from advisor.slurm.protocol import SlurmBackend

SOURCE: Final = "slurm"
"""Name under which this cluster's jobs are kept."""

_WINDOW_SECONDS: Final = 7 * 86400.0


def ingest_accounting(
    store: HistoryStore,
    slurm: SlurmBackend,
    since: float,
    now: float,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> IngestReport:
    """Add every job that ended since a moment.

    Parameters
    ----------
    store : HistoryStore
        Where they go; what it knows already changes nothing.
    slurm : SlurmBackend
        Asked for a week at a time: slurmdbd answers each in seconds, and a stop loses little.
    since, now : float
        Epoch seconds.
    progress : callable, optional
        Called with the seconds done and the seconds to do.

    Returns
    -------
    IngestReport
        Sums over all windows.

    Raises
    ------
    RetryLater
        Slurm or the database does not answer; whole windows before that stay.
    """
    total = IngestReport(source=SOURCE)
    begin = since
    while True:
        end = begin + _WINDOW_SECONDS
        # the last window is open: jobs that end while it is read are taken along
        with slurm.accounting(begin, end if end < now else None) as export:
            report = ingest_sacct(
                store, export.lines, fields=export.fields, delimited_by=export.delimited_by, source=SOURCE
            )
        total = replace(
            report,
            read=total.read + report.read,
            added=total.added + report.added,
            malformed=total.malformed + report.malformed,
            problems=(*total.problems, *report.problems)[:20],
            never_started=total.never_started + report.never_started,
            restarted=total.restarted | report.restarted,
        )
        if progress is not None:
            progress(int(min(end, now) - since), int(now - since))
        if end >= now:
            return total
        begin = end
