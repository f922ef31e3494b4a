"""Arrays of the portfolio's two kernels: the cluster that runs a log, and the online simulator.

The portfolio and its figures are those of Deng et al. 2013 (docs/designs/0011-portfolio.md); ``_tick`` is the
module beside this one that both kernels call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.simulate.heap import Records

SLOWDOWN_BOUND = 10.0
"""Seconds: shorter run times count as this in the bounded slowdown (section 2)."""

ACTUAL, PREDICTED, REQUESTED, BY_CATEGORY = 0, 1, 2, 3
"""Where run times come from that policies and simulator know."""

CHARGED, WORK, SLOWDOWN, JOBS = 0, 1, 2, 3
"""Columns of the checkpoints: seconds charged, processor-seconds worked, sum of bounded slowdowns, jobs."""

NODE = np.dtype(
    [(name, np.float64) for name in ("since", "ready", "begun", "estimate")] + [("row", np.int64)], align=True
)
"""A rented node; times in seconds.

``since``: when it was rented; ``ready``: from when it is idle; ``row``: the job it runs or ran last, -1 while
it boots; ``begun``, ``estimate``: that job's start and expected run time.
"""

WAITING = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "estimate", "weight")]
    + [("processors", np.int64), ("row", np.int64)],
    align=True,
)
"""A waiting job, in submission order; times in seconds.

``run`` is the true run time in the log's cluster and the expected one in the online simulator; ``weight``:
the factor of its wait in its priority (``_tick.weight_of``).
"""

JOB = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "requested", "estimate", "start", "end")]
    + [(name, np.int64) for name in ("processors", "user", "category", "next_of_user")],
    align=True,
)
"""A job of the log; times in seconds.

``category``: code of the jobs that are predicted together, finer than the user; ``next_of_user``: the user's
next job whose estimate changes when one of them ends, -1 for none.
"""

CLUSTER = np.dtype(
    [
        (name, np.float64)
        for name in (
            "now",
            "charged",
            "slowdown",
            "work",
            "next_checkpoint",
            "last_choice",
            "max_hold",
            "min_hold",
        )
    ]
    + [("next_ready", np.float64)]
    + [(name, np.int64) for name in ("nodes", "idle", "booting", "first", "waiting", "arrived")]
    + [(name, np.int64) for name in ("ending", "finished", "policy")]
    + [(name, np.int64) for name in ("checkpoints", "changes", "ticks", "most_waiting", "mattered")]
    + [("finished_run", np.float64)],
    align=True,
)
"""Scalars that change; times in seconds.

``idle``, ``booting``: numbers of nodes, valid until ``next_ready``, when the next node gets idle (minus
infinity: to be counted); ``first``, ``waiting``: position of the first waiting job, and their number;
``charged``: seconds charged for nodes given back; ``slowdown``, ``work``, ``finished``: sums over finished
jobs (started ones in the online simulator); ``changes``: arrivals, ends and booted nodes since the last
choice; ``min_hold``, ``max_hold``: how long a choice holds; ``mattered``: bits ``_tick.ORDER_MATTERED`` and
``CHOICE_MATTERED``.
"""


class Rules(NamedTuple):
    """Constants of a run; times in seconds.

    ``release``: see `advisor.simulate.portfolio.policies.Release`; ``runtimes``: whose run times policies
    go by; ``checkpoint``: the period in which totals are recorded, which a single tick does not use.
    """

    max_nodes: int
    boot: float
    tick: float
    release: int
    runtimes: int
    checkpoint: float


class Readiness(NamedTuple):
    """Value of idle nodes per second for jobs that are expected, and cost of busy ones.

    Empty where no job is expected. ``slowdown``, ``charged``: bounded slowdown and node-seconds charged that
    so many idle nodes save them, shape (max nodes + 1,). ``weight``: their weights in each job order,
    ascending, shape (orders, k). ``width``, ``harm``: classes of jobs by nodes, ascending, and the bounded
    slowdown that one second's jobs of the class suffer per second of waiting, shape (classes,).
    """

    slowdown: Floats
    charged: Floats
    weight: Floats
    width: Ints
    harm: Floats


class OnlineState(NamedTuple):
    """Working arrays of the online simulator.

    ``start``: when the plan started each waiting job, seconds, shape (jobs,); ``scratch``: space for
    one number of each node, shape (max nodes,); ``idle_times``: times, and how many nodes get idle then.
    """

    node: Records
    waiting: Records
    scalars: Records
    start: Floats
    scratch: Floats
    idle_times: Floats
