"""slurmdbd in memory: the ended runs of jobs, as sacct prints them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from advisor.history.sacct import WANTED
from advisor.slurm.protocol import AccountingExport
from advisor.testing.memory_slurm_records import MemoryJob

_DELIMITER: Final = "\x1eaccounting\x1f"


class MemoryAccounting:
    """Keeps ended runs in the order in which they ended, with times in whole seconds."""

    def __init__(self) -> None:
        self._ends: list[float] = []
        self._lines: list[str] = []

    @property
    def count(self) -> int:
        """Runs that have ended."""
        return len(self._lines)

    def add(self, job: MemoryJob, state: str, start: float, end: float) -> None:
        """Add a run: state as sacct writes it, start and end in epoch seconds."""
        said, index = job.described, len(self._lines)
        on_nodes = ",".join(job.nodes or job.had)
        fields: dict[str, object] = {
            "JobIDRaw": job.job_id,
            "JobID": job.job_id,
            "State": state,
            "Submit": int(job.queued_at),
            "Start": int(start),
            "End": int(end),
            "TimelimitRaw": math.ceil(job.limit_seconds / 60.0),
            "ReqCPUS": job.size,
            "AllocCPUS": job.size,
            "ReqNodes": job.nodes_wanted,
            "Partition": job.partition,
            "User": (said and said.user) or "",
            "Group": (said and said.group) or "",
            "Account": job.account or (said and said.account) or "",
            "NodeList": on_nodes,
            "Restarts": job.restarts,
            "AdminComment": job.admin_comment,
            "Comment": (said and said.comment) or "",
            "JobName": (said and said.name) or "",
            "DBIndex": index,
        }
        place = bisect.bisect_right(self._ends, end)
        self._ends.insert(place, end)
        self._lines.insert(place, _DELIMITER.join(str(fields.get(name, "")) for name in WANTED))

    @contextmanager
    def accounting(self, since: float, until: float | None = None) -> Iterator[AccountingExport]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        first = bisect.bisect_left(self._ends, since)
        last = None if until is None else bisect.bisect_right(self._ends, until)
        lines = iter(self._lines[first:last])
        yield AccountingExport(fields=WANTED, delimited_by=_DELIMITER, lines=lines)
