"""Compare the new size model of `advisor retrain` with the one in force on a week that neither has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.predict.size.size_features import replay_features
from advisor.predict.size.size_history import WEEK_SECONDS, SizeHistory, WeeklyDividers
from advisor.predict.size.size_model import SizeModel
from advisor.predict.size.size_training import train
from advisor.predict.trees.forest import TreeEnsemble

MIN_JUDGED: Final = 100
"""Fewer jobs cannot tell two models apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """How a candidate and the model in force class the same jobs.

    Attributes:
        jobs: Jobs judged; 0 when there was nothing to compare.
        candidate_accuracy, current_accuracy: Shares of jobs classed correctly by the candidate's divider; NaN
            where none was judged.
        is_worse: The candidate errs more often than chance explains (McNemar: beyond two standard
            deviations).
    """

    jobs: int = 0
    candidate_accuracy: float = math.nan
    current_accuracy: float = math.nan
    is_worse: bool = False


def backtest(
    history: SizeHistory,
    current: SizeModel | None,
    *,
    now: float,
    probability_cut: float = 0.5,
) -> Backtest:
    """Train a candidate as of a week ago and compare it with the model in force on the jobs since then.

    Args:
        history: Jobs that ended until ``now``.
        current: The model in force. Jobs from before its own training are left out.
        now: Seconds, by the history's clock.
        probability_cut: Vote from which a job is classed small (``settings.size.probability_cut``).
    """
    week_ago = now - WEEK_SECONDS
    candidate = train(history, now=week_ago)
    if candidate.trees is None:
        return Backtest()
    known = history.until(now)
    since = week_ago
    if current is not None and not math.isnan(current.trained_at):
        since = max(since, current.trained_at)
    jobs = np.flatnonzero(known.ran & (known.submit >= since))
    if len(jobs) < MIN_JUDGED:
        return Backtest()
    rows = replay_features(known, WeeklyDividers.of(known)).rows[jobs]
    small = known.run[jobs] < candidate.divider_seconds
    new_right = _right(candidate.trees, rows, small, probability_cut)
    if current is None or current.trees is None:
        return Backtest(jobs=len(jobs), candidate_accuracy=float(new_right.mean()))
    old_right = _right(current.trees, rows, small, probability_cut)
    lost, won = int(np.sum(old_right & ~new_right)), int(np.sum(new_right & ~old_right))
    return Backtest(
        jobs=len(jobs),
        candidate_accuracy=float(new_right.mean()),
        current_accuracy=float(old_right.mean()),
        is_worse=lost - won > 2.0 * math.sqrt(lost + won),
    )


def _right(
    trees: TreeEnsemble, rows: NDArray[np.float32], small: NDArray[np.bool_], probability_cut: float
) -> NDArray[np.bool_]:
    right: NDArray[np.bool_] = (trees.predict(rows) >= probability_cut) == small
    return right
