"""Arrays of the portfolio's two kernels, the cluster of the log and the online simulator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.simulate.state import Records

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

SLOWDOWN_BOUND = 10.0
"""Seconds: shorter jobs count as this long in the bounded slowdown (section 2)."""

ACTUAL, PREDICTED, REQUESTED, ALIKE = 0, 1, 2, 3
"""Where run times come from that policies and simulator know."""

CHARGED, WORK, SLOWDOWN, JOBS = 0, 1, 2, 3
"""Columns of the checkpoints: seconds charged, processor-seconds worked, sum of bounded slowdowns, jobs."""

NODE = np.dtype(
    [(name, np.float64) for name in ("since", "ready", "begun", "estimate")] + [("row", np.int64)], align=True
)
"""A rented node: rented since; idle from ``ready`` on. ``row``: the job it runs or ran last, -1 while it
boots; ``begun`` and ``estimate``: that job's start and expected run time."""

WAITING = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "estimate", "weight")]
    + [("processors", np.int64), ("row", np.int64)],
    align=True,
)
"""A waiting job, in submission order; ``run`` is the true run time in the cluster of the log, and the
expected one in the online simulator."""

JOB = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "requested", "estimate", "start", "end")]
    + [(name, np.int64) for name in ("processors", "user", "alike", "later")],
    align=True,
)
"""A job of the log; ``alike``: code of the jobs predicted together, finer than the user; ``later``: the
user's next job that is to be looked at again when one of them ends, -1 for none."""

CLUSTER = np.dtype(
    [
        (name, np.float64)
        for name in ("now", "charged", "slowdown", "work", "next_checkpoint", "last_choice", "period", "rest")
    ]
    + [("next_ready", np.float64)]
    + [(name, np.int64) for name in ("nodes", "idle", "booting", "first", "waiting", "arrived")]
    + [(name, np.int64) for name in ("ending", "finished", "policy")]
    + [(name, np.int64) for name in ("checkpoints", "changes", "ticks", "most_waiting", "forks")]
    + [("finished_run", np.float64)],
    align=True,
)
"""Scalars that change. ``idle``, ``booting``: rented nodes as counted last, which holds until ``next_ready``,
when another gets idle (minus infinity: they are to be counted); ``first``: place of the first of the
``waiting`` jobs; ``charged``: seconds of nodes given back;
``slowdown``, ``work``, ``finished``: sums over finished jobs (started ones in the online simulator);
``changes``: arrivals, ends and nodes that came up since the last choice; ``period``, ``rest``: a choice holds
at most and at least so long; ``forks``: which parts of the policy made a difference (``_tick.BY_ORDER``,
``BY_CHOICE``)."""


class Rules(NamedTuple):
    """What does not change during a run; seconds. ``release``: see ``Release``."""

    max_nodes: int
    boot: float
    tick: float
    release: int
    runtimes: int
    checkpoint: float


class Readiness(NamedTuple):
    """What idle nodes are worth a second to jobs that are expected to come, and what busy ones cost them.

    Empty where none is expected. ``slowdown``, ``charged``: bounded slowdown and node-seconds charged that so
    many idle nodes spare them, shape (most nodes + 1,). ``weight``: their weights in each job order,
    ascending, shape (orders, k). ``width``, ``harm``: classes of jobs by nodes, ascending, and the bounded
    slowdown that those of one second suffer for each second they wait, shape (classes,).
    """

    slowdown: Floats
    charged: Floats
    weight: Floats
    width: Ints
    harm: Floats


class OnlineState(NamedTuple):
    """Room for one run of the online simulator. ``soon``: moments and how many nodes get idle then."""

    node: Records
    waiting: Records
    cluster: Records
    start: Floats
    scratch: Floats
    soon: Floats
