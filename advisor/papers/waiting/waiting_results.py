"""Tables of ``advisor replay waiting`` from what became of each job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from advisor.arrays import Bools, Floats
from advisor.papers.waiting.waiting_worlds import WaitScores, rented_cost
from advisor.papers.waiting.world.costs import CostModel
from advisor.papers.waiting.world.world import Outcome, Workload

SURE = 0.5
_BINS = 10


def figures(
    workload: Workload, cores: int, outcomes: Mapping[str, Outcome], costs: CostModel, first: int
) -> list[dict[str, Any]]:
    """One row a policy, over the jobs from ``first`` on; ``outcomes`` has an ``oracle``.

    What is rented for an oracle or any policy without trials costs the price of on-demand; trials cost that
    of the capacity they run on.
    """
    held = float(workload.submit[-1] - workload.submit[first])
    fixed = costs.reserved * cores * held
    judged = slice(first, None)
    rows: list[dict[str, Any]] = []
    for name, outcome in outcomes.items():
        wait = (outcome.start - workload.submit)[judged]
        rented = float(rented_cost(outcome, workload, costs)[judged].sum())
        rows.append(
            {
                "variant": name,
                "ondemand_cost_share_of_fixed": rented / fixed if fixed else math.nan,
                "total_cost": fixed + rented,
                "mean_wait": float(wait.mean()),
                "max_wait": float(wait.max()),
                "restarts": int(outcome.restarts[judged].sum()),
                "restarted_share": float((outcome.restarts[judged] > 0).mean()),
                "left_early": int(outcome.left_early[judged].sum()),
                "rented_share_of_work": _rented_share(outcome, workload, judged),
                "utilisation": _utilisation(outcome, workload, cores, judged, held),
            }
        )
    oracle = next(row for row in rows if row["variant"] == "oracle")
    for row in rows:
        share = "ondemand_cost_share_of_fixed"
        row["ondemand_cost_vs_oracle"] = _ratio(row[share], oracle[share])
        row["total_cost_vs_oracle"] = _ratio(row["total_cost"], oracle["total_cost"])
        row["mean_wait_vs_oracle"] = _ratio(row["mean_wait"], oracle["mean_wait"])
    return rows


def _ratio(value: float, to: float) -> float:
    return value / to if to else math.nan


def _rented_share(outcome: Outcome, workload: Workload, judged: slice) -> float:
    work = (workload.run * workload.processors)[judged]
    return float(work[~outcome.on_fixed[judged]].sum() / work.sum())


def _utilisation(outcome: Outcome, workload: Workload, cores: int, judged: slice, held: float) -> float:
    """Share of the fixed cores' time used while these jobs were submitted, by any job."""
    begin = float(workload.submit[judged][0])
    start = np.where(outcome.on_fixed, outcome.start, math.inf)
    end = np.where(outcome.on_fixed, outcome.start + workload.run, -math.inf)
    used = np.clip(np.minimum(end, begin + held) - np.maximum(start, begin), 0.0, None)
    return float(used @ workload.processors) / (cores * held) if held > 0 else math.nan


def scores_of(
    scores: WaitScores, thresholds: Sequence[float], first: int, workload: Workload
) -> dict[str, Any]:
    """How well waits were predicted, by threshold (keys: its seconds).

    ``mcc``: Matthews correlation of "waits longer", predicted where the chance is above one half, over every
    judged job: those that started at once, or ended in their trial, were never in the queue, and count as
    predicted and true not to wait. ``mcc_queued``: over the jobs that joined the queue only. ``brier_skill``:
    of the chances, over always saying their mean. ``calibration``: by tenths of the chance, how many there
    were, the mean chance and how often it happened.
    """
    judged = scores.rows >= first
    chance, happened = scores.chance[judged], scores.happened[judged]
    never_queued = max(0, len(workload) - first - len(chance))
    result: dict[str, Any] = {"jobs_asked": len(chance), "jobs_never_asked": never_queued}
    keys = [f"{threshold:.0f}" for threshold in thresholds]
    columns = {key: (chance[:, at], happened[:, at]) for at, key in enumerate(keys)}
    result["mcc"] = {key: matthews(c > SURE, h, never_queued) for key, (c, h) in columns.items()}
    result["mcc_queued"] = {key: matthews(c > SURE, h) for key, (c, h) in columns.items()}
    result["brier_skill"] = {key: brier_skill(c, h) for key, (c, h) in columns.items()}
    result["calibration"] = {key: calibration(c, h) for key, (c, h) in columns.items()}
    return result


def matthews(predicted: Bools, happened: Bools, also_neither: int = 0) -> float:
    """Matthews correlation coefficient; NaN where one side never varies.

    Args:
        predicted, happened: bool, shape (n,): Predicted and true.
        also_neither: True negatives to count beside.

    Examples:
        >>> matthews(np.array([True, False]), np.array([True, False]))
        1.0
    """
    both = float(np.count_nonzero(predicted & happened))
    neither = float(np.count_nonzero(~predicted & ~happened)) + also_neither
    false_alarm = float(np.count_nonzero(predicted & ~happened))
    missed = float(np.count_nonzero(~predicted & happened))
    norm = math.sqrt((both + false_alarm) * (both + missed) * (neither + false_alarm) * (neither + missed))
    return (both * neither - false_alarm * missed) / norm if norm else math.nan


def brier_skill(chance: Floats, happened: Bools) -> float:
    """One minus the mean squared error over that of the base rate; NaN where nothing varies."""
    if not len(chance):
        return math.nan
    base = float(np.mean((happened.mean() - happened) ** 2))
    return 1.0 - float(np.mean((chance - happened) ** 2)) / base if base else math.nan


def calibration(chance: Floats, happened: Bools) -> list[dict[str, float]]:
    """By tenths of the predicted chance: jobs, mean chance, share that happened."""
    bins = np.minimum((chance * _BINS).astype(np.int64), _BINS - 1)
    return [
        {
            "jobs": int((bins == each).sum()),
            "chance": float(chance[bins == each].mean()),
            "happened": float(happened[bins == each].mean()),
        }
        for each in range(_BINS)
        if np.any(bins == each)
    ]
