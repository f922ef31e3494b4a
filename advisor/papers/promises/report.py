"""Promise every job of a log, and say how many promises were kept and what that cost."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.papers.promises.promises import Progress, PromiseOptions, PromiseReplay
from advisor.predict.promised.levels import THIRDS, Kind
from advisor.replay.closed_loop.log import LoopJobs


def replay_promises(
    jobs: LoopJobs, options: PromiseOptions, progress: Progress | None = None
) -> dict[str, Any]:
    """Promise every job of a log when it is done; what ``advisor replay promise --format json`` prints.

    Raises:
        BadInput: The confidence is not a probability below 1.
    """
    if not 0.5 <= options.confidence < 1.0:
        raise BadInput(
            f"promises cannot be kept in {100 * options.confidence:g} of 100 cases",
            where="--confidence",
            mend="Give a share from 0.5 up to 0.999, such as 0.95",
            code="promise.confidence",
        )
    began = time.perf_counter()
    replay = PromiseReplay(jobs, options)
    replay.run(progress)
    thirds = _thirds(jobs)
    cost, clairvoyant = float(replay.cost.sum()), float(replay.clairvoyant.sum())
    return {
        "trace": jobs.table.name,
        "jobs": len(jobs),
        "confidence": options.confidence,
        "kept_share": float(replay.kept.mean()),
        "kept_share_by_size": [_mean(replay.kept[thirds == third]) for third in range(THIRDS)],
        "cost_vs_clairvoyant": cost / clairvoyant if clairvoyant > 0.0 else None,
        "promises": {
            kind.name.lower(): {
                "jobs": int((replay.kind == kind).sum()),
                "kept_share": _mean(replay.kept[replay.kind == kind]),
                "core_hours": float(replay.cost[replay.kind == kind].sum()) / 3600.0,
                "clairvoyant_core_hours": float(replay.clairvoyant[replay.kind == kind].sum()) / 3600.0,
                "hours_sooner": float(replay.sooner[replay.kind == kind].sum()) / 3600.0,
            }
            for kind in Kind
        },
        "came_back": replay.returned,
        "on_spot": replay.on_spot,
        "lost_on_spot": replay.lost,
        "seconds": time.perf_counter() - began,
    }


def _thirds(jobs: LoopJobs) -> NDArray[np.int64]:
    """Third of each job by requested core-seconds: what is known of its size when the promise is made."""
    ranks = np.empty(len(jobs), np.int64)
    ranks[np.argsort(jobs.processors * jobs.limit, kind="stable")] = np.arange(len(jobs))
    return ranks * THIRDS // len(jobs)


def _mean(kept: NDArray[np.bool_]) -> float | None:
    return float(kept.mean()) if len(kept) else None
