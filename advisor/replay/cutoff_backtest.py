"""The published rule's cutoff, chosen on a site's own jobs and judged on later ones; `advisor tune` weekly.

:func:`advisor.replay.cutoff_choice.choose_cutoff` chooses it with the site's own overhead and boot time, on
jobs that had ended before the newest jobs were submitted; these newest jobs judge it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from advisor.model.settings_decision import PlacementSettings
from advisor.model.site import Cutoff
from advisor.model.table import JobTable
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.known import Target
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.tracker import StateColumns
from advisor.replay.cutoff_choice import PastJobs, choose_cutoff
from advisor.replay.estimates import Rows, estimate_rows

CHOSEN_ON_JOBS: Final = 5_000
"""Newest jobs before the judged ones: the cutoff is chosen on them."""
_MIN_JOBS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCutoff:
    """A cutoff chosen on earlier jobs, beside the one in force, on jobs that neither was chosen on.

    Attributes:
        candidate, current: The chosen cutoff, and the one in force.
        chosen_on_jobs, judged_on_jobs: Their numbers.
        candidate_saved_seconds, current_saved_seconds, optimum_saved_seconds: What the published rule would
            have saved the judged jobs with each, and what a clairvoyant would have saved.
    """

    candidate: Cutoff
    current: Cutoff
    chosen_on_jobs: int
    judged_on_jobs: int
    candidate_saved_seconds: float
    current_saved_seconds: float
    optimum_saved_seconds: float

    @property
    def is_promoted(self) -> bool:
        """True if the candidate would have saved at least as much."""
        return self.candidate_saved_seconds >= self.current_saved_seconds


def backtest_cutoff(
    table: JobTable,
    states: StateColumns,
    encoder: Encoder,
    parameters: Mapping[Target, KnnParameters],
    settings: PlacementSettings,
    current: Cutoff,
    *,
    entries: int,
) -> JudgedCutoff | None:
    """Choose a cutoff on earlier jobs and judge it on the newest.

    Args:
        states: State of the cluster at each job's submission.
        settings: The site's overhead, baseline and boot time.
        parameters: mapping of {"wait", "run"} to KnnParameters: Parameters of the estimators that will be in
            force.
        entries: Number of newest jobs that are judged.

    Returns:
        None where too few jobs had ended before the judged ones.
    """
    rows = np.flatnonzero((table.whole_run > 0) & np.isfinite(table.first_wait))
    rows = rows[-(CHOSEN_ON_JOBS + entries) :]
    if len(rows) < entries + _MIN_JOBS:
        return None
    past = _estimated(table, states, encoder, parameters, rows)
    judged = np.arange(len(rows)) >= len(rows) - entries
    known = ~judged & (table.end[rows] < table.submit[rows[-entries]])
    if known.sum() < _MIN_JOBS:
        return None
    earlier, later = _some(past, known), _some(past, judged)
    ratio = (settings.overhead_per_processor, settings.baseline, settings.boot_seconds)
    found = choose_cutoff(
        earlier, [settings.overhead_per_processor], settings.baseline, settings.boot_seconds
    )
    candidate = Cutoff(scale=found.scale, decay=found.decay)
    return JudgedCutoff(
        candidate=candidate,
        current=current,
        chosen_on_jobs=len(earlier.run),
        judged_on_jobs=entries,
        candidate_saved_seconds=_saved_seconds(later, ratio, candidate),
        current_saved_seconds=_saved_seconds(later, ratio, current),
        optimum_saved_seconds=float(np.maximum(later.saved_seconds(*ratio), 0.0).sum()),
    )


def _saved_seconds(jobs: PastJobs, ratio: tuple[float, float, float], cutoff: Cutoff) -> float:
    """Time that the published rule saves with a cutoff.

    ``ratio`` is the slow-down's overhead and baseline, and the boot time in seconds.
    """
    sent = jobs.looks_faster(*ratio) & jobs.sure_enough(ratio[0], cutoff.scale, cutoff.decay)
    return float(jobs.saved_seconds(*ratio)[sent].sum())


def _estimated(
    table: JobTable,
    states: StateColumns,
    encoder: Encoder,
    parameters: Mapping[Target, KnnParameters],
    rows: Rows,
) -> PastJobs:
    features = encoder.encode_table(table, states)
    wait, run = (
        estimate_rows(table, features, rows, parameters[target], target, encoder=encoder)
        for target in ("wait", "run")
    )
    return PastJobs(
        processors=table.processors[rows],
        wait=wait.seconds,
        wait_variance=wait.variance,
        run=run.seconds,
        actual_wait=np.maximum(table.first_wait[rows], 0.0),
        actual_run=table.run[rows],
    )


def _some(jobs: PastJobs, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> PastJobs:
    return PastJobs(**{field.name: getattr(jobs, field.name)[chosen] for field in fields(jobs)})
