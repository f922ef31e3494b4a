"""The weekly training of the size classifier, in a process of its own so that its memory can be told."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

JOBS = 100_000


def run(*, trace: str = f"synthetic:{JOBS}", tell: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Train as ``advisor retrain`` does, on all jobs of a log.

    Returns:
        ``jobs``, ``seconds`` of the training (features and trees, compiled code warm), ``peak_rss_mb`` of the
            process; beside them the divider and the trees.
    """
    tell(f"training on {trace} in a process of its own")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_train, trace).result()


def _train(trace: str) -> dict[str, Any]:
    from advisor.predict.size.size_history import SizeHistory  # noqa: PLC0415 (as above)
    from advisor.predict.size.size_model import SizeModel  # noqa: PLC0415 (only the child pays for it)
    from advisor.replay.sources import load_table  # noqa: PLC0415 (as above)

    table = load_table(trace)
    SizeModel.retrain(SizeHistory.from_table(table.select(slice(0, 500))), now=float("inf"))
    began = time.perf_counter()
    history = SizeHistory.from_table(table)
    model = SizeModel.retrain(history, now=float(table.end.max()) + 1.0)
    seconds = time.perf_counter() - began
    return {
        "trace": table.name,
        "jobs": len(history),
        "seconds": seconds,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
        "divider_seconds": model.divider_seconds,
        "trees": 0 if model.trees is None else model.trees.trees,
    }
