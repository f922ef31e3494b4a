"""The history of one site in one database: finished jobs, the ledger of advice, the cost of cloud nodes."""

from __future__ import annotations

from typing import Self

from advisor.history._jobs import Attempt, FinishedJobs
from advisor.history.database import Database
from advisor.history.ledger_summaries import LedgerSummaries
from advisor.history.paid_time import PaidTimes

__all__ = ["Attempt", "HistoryStore"]


class HistoryStore(FinishedJobs, LedgerSummaries, PaidTimes):
    """Finished jobs, the ledger and paid time; opening it migrates the database to this release's schema.

    Several threads and processes may use it at once. Each call is a short transaction of its own (long reads
    go page by page), so that no reader blocks a writer.

    Raises:
        BadInput: The database cannot be opened or written, or a newer release made it; with ``read_only``
            also: it does not exist yet (``history.missing``) or is of another release (``history.version``).
        RetryLater: It is locked for longer than ``busy_seconds``, or its server cannot be reached.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, HistoryStore(f"sqlite:///{folder}/history.db") as history:
        ...     history.count()
        0
    """

    def __init__(
        self, url: str, *, busy_seconds: float = 10.0, read_only: bool = False, later: bool = False
    ) -> None:
        database = Database(url, busy_seconds=busy_seconds, read_only=read_only, later=later)
        FinishedJobs.__init__(self, database)
        LedgerSummaries.__init__(self, database)
        PaidTimes.__init__(self, database)

    @property
    def was_replaced(self) -> bool:
        """Whether another database has replaced the one that was opened first."""
        return self._database.was_replaced

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
