"""The cases of a log from which the estimators learn: which jobs, and when each became known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.model.table import JobTable

Target: TypeAlias = Literal["wait", "run"]
TARGETS: Final[tuple[Target, Target]] = ("wait", "run")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """The cases of one target in a log, in the order in which they become known.

    Attributes:
        times: When each becomes known, seconds: a wait when the job starts, a run time when it ends.
        labels: The true value of each row of the table, seconds.
    """

    rows: NDArray[np.int64]
    times: Floats
    labels: Floats

    @classmethod
    def of(cls, table: JobTable, target: Target) -> Self:
        """Every job that ran and whose label is known and not negative (from clocks that disagreed).

        A requeued job has the wait for its first start; one that was cut short has no run time.
        """
        labels = table.first_wait if target == "wait" else table.whole_run
        times = table.submit + labels if target == "wait" else table.end
        usable = np.flatnonzero((table.run > 0) & (labels >= 0) & np.isfinite(labels))
        rows = usable[np.argsort(times[usable], kind="stable")]
        return cls(rows=rows, times=times[rows], labels=labels)

    def before(self, moment: float) -> slice:
        """The cases that are known before a moment, seconds."""
        return slice(0, int(np.searchsorted(self.times, moment, side="left")))
