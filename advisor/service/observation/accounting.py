"""Copy ended jobs from sacct into the history; the learn loop and `advisor ingest sacct` share this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, runtime_checkable

from advisor.history.ingest import ingest_sacct
from advisor.history.ingest_report import IngestReport
from advisor.history.store import HistoryStore
from advisor.slurm.protocol import SlurmBackend

SOURCE: Final = "slurm"
"""Name of this cluster's jobs in the history, whatever its scheduler is."""


@runtime_checkable
class OwnAccounting(Protocol):
    """A scheduler without sacct, which reads its accounting itself, each time from where it stopped."""

    def ingest(self, store: HistoryStore, *, source: str) -> IngestReport:
        """Add the jobs that have ended since the last time."""
        ...


Accounting: TypeAlias = SlurmBackend | OwnAccounting

_WINDOW_SECONDS: Final = 7 * 86400.0


def ingest_accounting(
    store: HistoryStore,
    slurm: Accounting,
    since: float,
    now: float,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> IngestReport:
    """Add every job that ended between ``since`` and ``now`` (epoch seconds); return sums over all windows.

    sacct is asked for a week at a time: slurmdbd answers each query in seconds, and an interruption loses
    one window. Jobs that the history has are not added twice. ``progress`` is called with the seconds of
    log time that are done and the seconds in total.

    Raises:
        RetryLater: Slurm or the database does not answer; complete windows before that stay in the history.
    """
    if isinstance(slurm, OwnAccounting):
        return slurm.ingest(store, source=SOURCE)
    total = IngestReport(source=SOURCE)
    begin = since
    while True:
        end = begin + _WINDOW_SECONDS
        # the last window has no end: jobs that end while it is read are included
        with slurm.accounting(begin, end if end < now else None) as export:
            ingest_sacct(
                store,
                export.lines,
                fields=export.fields,
                delimited_by=export.delimited_by,
                now=now,
                report=total,
            )
        if progress is not None:
            progress(int(min(end, now) - since), int(now - since))
        if end >= now:
            return total
        begin = end
