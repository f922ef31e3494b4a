"""Compare parameters that `advisor tune` found with those in force, on jobs on which neither was tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.model.table import JobTable
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.fitness import Fitness, TuningProblem
from advisor.predict.knn.known import TARGETS, Known, Target
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.tracker import StateColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Root mean square errors on the newest jobs, seconds, of new parameters and those in force.

    Jobs without an estimate add a penalty (Cunha et al. 2017, Eq. 5).
    """

    candidate_rmse: float
    current_rmse: float

    @property
    def is_better(self) -> bool:
        """Whether the new parameters have the smaller error."""
        return self.candidate_rmse < self.current_rmse


def row_before_newest(table: JobTable, entries: int) -> int:
    """The row at which tuning ends: ``entries`` jobs with a known wait, and with a known run time, follow.

    Of requeued jobs, or ones that were cut short, not both are known. 1 where there are too few.
    """
    known = [np.sort(Known.of(table, target).rows) for target in TARGETS]
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
    """Estimate the newest ``entries`` jobs with both parameters, from what was known before the first one."""
    judged = {}
    for target in TARGETS:
        error = Fitness(TuningProblem.from_log(table, states, encoder, target, entries=entries))
        judged[target] = Judged(candidate_rmse=error(candidates[target]), current_rmse=error(current[target]))
    return judged
