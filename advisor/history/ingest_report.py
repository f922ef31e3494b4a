"""The counts of an ingestion, which its readers and its writers fill in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_MAX_PROBLEMS: Final = 20


@dataclass(slots=True, kw_only=True)
class IngestReport:
    """Counts of one ingestion.

    Attributes:
        read, added: Finished jobs read; those that were new.
        malformed: Lines or records that cannot be read.
        problems: The first of them: where and why.
        never_started: Jobs cancelled before their start (sacct, lsb.acct).
        other_records, unended: Records of other types, and files whose last line is incomplete (lsb.acct).
        restarted: Ended jobs that had been requeued; the end of a known one may have changed.
    """

    source: str
    read: int = 0
    added: int = 0
    malformed: int = 0
    problems: list[str] = field(default_factory=list)
    never_started: int = 0
    other_records: int = 0
    unended: int = 0
    restarted: set[int] = field(default_factory=set)

    def malformed_record(self, why: str) -> None:
        """Count a line or record that cannot be read."""
        self.malformed += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(why)
