"""Jobs of a live day that did not end exactly once as completed: how, and what the logs say of each."""

from __future__ import annotations

import math
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

_LINES_A_JOB: Final = 60
_UNENDED: Final = frozenset({"PENDING", "RUNNING", "REQUEUED", "SUSPENDED", "COMPLETING"})
"""Last states in the accounting of a job that is still to run, or runs."""
_DATABASE: Final = "lab/db"
"""Over 100 MB; what it says of a job is in its runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a job, as sacct has it; epoch seconds.

    ``start`` is NaN where it never started; ``nodes`` are those of the cloud.
    """

    partition: str
    state: str
    start: float
    end: float
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = "+".join(self.nodes) or self.partition
        times = "-".join("?" if math.isnan(time) else f"{time:.0f}" for time in (self.start, self.end))
        return f"{self.state} on {where} {times}"


@dataclass(slots=True, kw_only=True)
class LiveJob:
    """What became of one job; epoch seconds.

    Attributes:
        submit: When sbatch was called.
        runs: By sacct, the requeued ones first.
        first_start: When slurmctld gave it nodes for the first time.
        by_backfill: Whether the backfill scheduler did that.
        first_end: When slurmctld knew that a run of it was over, for the first time.
        began: Partition and time of each run's first line.
        ended: Partition and time of the last run's last line; None: it did not get there.
        whole_runs: Runs that reached their last line.
        place_start: When its placeholder started; None: it had none, or its turn did not come.
    """

    job_id: int
    submit: float
    runs: list[Run] = field(default_factory=list)
    first_start: float = math.nan
    by_backfill: bool = False
    first_end: float = math.nan
    began: list[tuple[str, float]] = field(default_factory=list)
    ended: tuple[str, float] | None = None
    whole_runs: int = 0
    place_start: float | None = None

    @property
    def amiss(self) -> str | None:
        """How it did not end exactly once as completed; None: it did."""
        states = [run.state for run in self.runs]
        if not states or states[-1] in _UNENDED:
            return "it never ended"
        if states[-1] != "COMPLETED":
            return f"it ended as {states[-1]}"
        if states.count("COMPLETED") > 1:
            return f"it completed {states.count('COMPLETED')} times"
        if self.ended is None:
            return "it completed, and its script did not reach its last line"
        if self.whole_runs > 1:
            return f"its script ran to its last line {self.whole_runs} times"
        return None

    @property
    def ran_twice(self) -> bool:
        """Whether it was done more than once, though once would have done."""
        completed = [run.state for run in self.runs].count("COMPLETED")
        return max(completed, self.whole_runs) > 1

    @property
    def is_lost(self) -> bool:
        """Whether it was not done, or ended as something else than completed."""
        return self.amiss is not None and not self.ran_twice

    @property
    def turnaround(self) -> float:
        """Seconds from submission to end."""
        return next((run.end for run in self.runs if run.state == "COMPLETED"), math.nan) + 0.5 - self.submit

    @property
    def was_in_cloud(self) -> bool:
        """Whether it ran there at all."""
        return any(run.partition == "burst" and not math.isnan(run.start) for run in self.runs)


def amiss_jobs(jobs: Sequence[LiveJob], folder: Path) -> list[dict[str, Any]]:
    """Each job that did not end exactly once as completed, with what the logs below a folder say of it."""
    return [
        {
            "job": job.job_id,
            "how": job.amiss,
            "runs": [str(run) for run in job.runs],
            "script_began": [f"{partition} {time:.3f}" for partition, time in job.began],
            "whole_runs": job.whole_runs,
            "log": list(_lines_about(job, folder))[:_LINES_A_JOB],
            "folder": str(folder),
        }
        for job in jobs
        if job.amiss is not None
    ]


def _lines_about(job: LiveJob, folder: Path) -> Iterator[str]:
    """Lines of all logs that name a job, and slurmctld's of a node of the cloud it ran on that went down."""
    named = re.compile(rf"""(?i)\bjob(?:_?id)?s?["']?[=: (\[]+(?:\d+, )*{job.job_id}\b""")
    nodes = "|".join(sorted({re.escape(node) for run in job.runs for node in run.nodes}))
    fault = re.compile(rf"(?i)(?=.*\b(?:{nodes})\b).*(?:error|warning|not responding|\bdown\b)")
    for log in sorted(folder.rglob("*.log")):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if named.search(line) or (nodes and log.name == "slurmctld.log" and fault.match(line)):
                yield f"{log.name}: {line}"


class KeptFolder:
    """A temporary folder that outlives its use where something in it is to be looked at, or an error came."""

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self.path.chmod(0o755)  # clients of every user reach munge's socket in it
        self.is_kept = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if not self.is_kept and not isinstance(error, Exception):
            shutil.rmtree(self.path, ignore_errors=True)
            return
        if error is not None:
            error.add_note(f"the logs are kept in {self.path}")
        shutil.rmtree(self.path / _DATABASE, ignore_errors=True)
