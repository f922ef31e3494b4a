"""Are newly tuned parameters better than those in force? Judged on jobs that neither was tuned on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.history.parameters import TARGETS
from advisor.model.table import JobTable
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.fitness import Fitness, Target, TuningProblem
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.tracker import StateColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Root mean square errors (Eq. 5) on the newest jobs, seconds; with a penalty where nothing is estimated.

    Attributes
    ----------
    candidate_rmse, current_rmse : float
        Of the new parameters and of those in force.
    """

    candidate_rmse: float
    current_rmse: float

    @property
    def is_better(self) -> bool:
        """True when the new ones err less."""
        return self.candidate_rmse < self.current_rmse


def row_before_newest(table: JobTable, entries: int) -> int:
    """The row that stands for now, so that the newest ``entries`` jobs that ran are kept for judging.

    As many of each target: of requeued jobs, or ones that were cut short, not both are known.
    """
    known = [
        np.flatnonzero((table.run > 0) & (labels >= 0)) for labels in (table.first_wait, table.whole_run)
    ]
    if min(map(len, known)) < entries:
        return 1
    return max(1, min(int(rows[-entries]) for rows in known))


def judge(
    table: JobTable,
    states: StateColumns,
    encoder: Encoder,
    candidates: Mapping[Target, KnnParameters],
    current: Mapping[Target, KnnParameters],
    *,
    entries: int,
) -> dict[Target, Judged]:
    """Estimate the newest ``entries`` jobs from what was known before the first of them, with both."""
    judged = {}
    for target in TARGETS:
        error = Fitness(TuningProblem.from_log(table, states, encoder, target, entries=entries))
        judged[target] = Judged(candidate_rmse=error(candidates[target]), current_rmse=error(current[target]))
    return judged
