"""A whole log on the simulated cluster, against the plain-Python oracle in the same run.

The oracle would take hours for a whole log; it gets the first jobs, on which the schedules must be the same,
and the speeds are compared per job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from advisor.papers.cluster import engine
from advisor.papers.cluster.demand import demand_of
from advisor.papers.schedule.schedule import prepared
from advisor.replay.sources import load_table
from tests.papers.cluster import oracle

Tell = Callable[[str], None]
_REPEATS: Final = 3


def run(
    *, trace: str = "synthetic:250000", peer_jobs: int = 5_000, tell: Tell = lambda _: None
) -> dict[str, Any]:
    """Measure EASY backfilling, first come first served.

    Args:
        trace: A log, or ``synthetic[:jobs[:seed]]``.
        peer_jobs: First jobs of the log that the oracle schedules too.
        tell: Told what is being done.

    Raises:
        RuntimeError: The two schedules differ.
    """
    tell("reading")
    table, processors = prepared(load_table(trace), None)
    demand = demand_of(table)
    first = demand_of(table.select(slice(0, peer_jobs)))
    tell("warming up")
    ours = engine.simulate(first, processors)
    tell("the whole log")
    seconds = min(_timed(lambda: engine.simulate(demand, processors)) for _ in range(_REPEATS))
    first_seconds = min(_timed(lambda: engine.simulate(first, processors)) for _ in range(_REPEATS))
    tell("the plain oracle")
    began = time.perf_counter()
    theirs = oracle.simulate(first, processors)
    peer_seconds = time.perf_counter() - began
    if not (np.array_equal(ours.start, theirs.start) and np.array_equal(ours.end, theirs.end)):
        raise RuntimeError("engine and oracle give different schedules")
    return {
        "trace": table.name,
        "jobs": len(table),
        "processors": processors,
        "seconds": seconds,
        "jobs_per_second": len(table) / seconds,
        "peer": {"name": "plain-Python oracle", "seconds": peer_seconds, "jobs": len(first)},
        "peer_jobs_per_second": len(first) / peer_seconds,
        "first_jobs_seconds": first_seconds,
        "speedup": peer_seconds / first_seconds,
        "speedup_of_rates": (len(table) / seconds) / (len(first) / peer_seconds),
        "schedules_identical": True,
    }


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
