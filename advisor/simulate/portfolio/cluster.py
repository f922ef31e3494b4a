"""A log's jobs on rented nodes, under one policy or under one that is chosen again and again.

The live judge runs the site's own jobs on it, `advisor replay portfolio` those of a log.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.simulate.heap import ENDING
from advisor.simulate.portfolio import _cluster
from advisor.simulate.portfolio._cluster import KernelArrays, advance, weigh
from advisor.simulate.portfolio.online import Situation
from advisor.simulate.portfolio.policies import Release, RentingPolicy, as_records
from advisor.simulate.portfolio.state import (
    ACTUAL,
    BY_CATEGORY,
    CLUSTER,
    JOB,
    NODE,
    PREDICTED,
    REQUESTED,
    WAITING,
    Rules,
)

KAPPA: Final = 100.0


class Runtimes(enum.StrEnum):
    """The run times that policies and the online simulator know."""

    ACTUAL = "actual"
    PREDICTED = "predicted"
    """Mean of the user's last two finished jobs (section 3.2), never above the request."""
    REQUESTED = "requested"
    OURS = "ours"
    """As predicted, from the user's last two jobs that requested the same time and processors."""


_SOURCES: Final = {
    Runtimes.ACTUAL: ACTUAL,
    Runtimes.PREDICTED: PREDICTED,
    Runtimes.REQUESTED: REQUESTED,
    Runtimes.OURS: BY_CATEGORY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """The rented nodes and their billing (Deng et al., section 5.1).

    Attributes:
        max_nodes: Nodes rented at once, at most; each runs one processor's part of a job.
        tick_seconds: Policies act at whole multiples of this.
    """

    release: Release = Release.HOUR
    max_nodes: int = 256
    boot_seconds: float = 120.0
    tick_seconds: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over finished jobs and rented nodes, which give the utility (section 2).

    Attributes:
        charged_seconds: R_V, node-seconds charged.
        work_seconds: R_J, processor-seconds worked.
    """

    charged_seconds: float
    work_seconds: float
    slowdown_sum: float
    jobs: float

    @property
    def utilisation(self) -> float:
        """R_J / R_V."""
        return self.work_seconds / self.charged_seconds if self.charged_seconds else math.nan

    @property
    def mean_bounded_slowdown(self) -> float:
        """BSD."""
        return self.slowdown_sum / self.jobs if self.jobs else math.nan

    def utility(self, alpha: float = 1.0, beta: float = 1.0) -> float:
        """Utility: kappa (R_J / R_V)^alpha (1 / BSD)^beta."""
        return float(KAPPA * self.utilisation**alpha * self.mean_bounded_slowdown**-beta)


class RentedCluster:
    """A cluster that runs a log, and can stop whenever a policy is to be chosen.

    Args:
        jobs: The jobs in submission order; run times above 0, no job wider than ``cloud.max_nodes``.
        checkpoint_seconds: Period of the checkpoints, from the log's first submission on.
    """

    def __init__(
        self,
        jobs: JobTable,
        cloud: Cloud,
        runtimes: Runtimes,
        policies: Sequence[RentingPolicy],
        checkpoint_seconds: float = 3600.0,
    ) -> None:
        _refuse_too_wide(jobs, cloud)
        self.cloud = cloud
        self.policies = as_records(policies)
        self.rules = Rules(
            max_nodes=cloud.max_nodes,
            boot=cloud.boot_seconds,
            tick=cloud.tick_seconds,
            release=int(cloud.release),
            runtimes=_SOURCES[runtimes],
            checkpoint=checkpoint_seconds,
        )
        self.state = _fresh_state(jobs, self.rules)
        self._mode = _cluster.CHOOSING
        self._nodes = np.zeros(cloud.max_nodes, NODE)
        self._waiting = np.zeros(256, JOB)

    @property
    def now(self) -> float:
        """Seconds since the log's start."""
        return float(self.state.scalars[0]["now"])

    @property
    def arrived(self) -> int:
        """Jobs submitted so far."""
        return int(self.state.scalars[0]["arrived"])

    @property
    def policy(self) -> int:
        """Index of the policy that is applied."""
        return int(self.state.scalars[0]["policy"])

    def advance(self, *, chooses: bool) -> bool:
        """Run until a policy is to be chosen (only if ``chooses``) or to the end; True at the end."""
        code = advance(
            self.state, self.rules, self.policies, self._mode if chooses else _cluster.FIXED_POLICY
        )
        self._mode = _cluster.RESUMED
        return bool(code == _cluster.DONE)

    def apply(self, policy: int, max_hold: float, min_hold: float = 0.0) -> None:
        """Apply a policy (index) for ``max_hold`` seconds, less when the queue changes after ``min_hold``."""
        cluster = self.state.scalars[0]
        cluster["last_choice"] = cluster["now"]
        cluster["max_hold"] = max(max_hold, min_hold)
        cluster["min_hold"] = min_hold
        cluster["changes"] = 0
        if policy != cluster["policy"]:
            cluster["policy"] = policy
            weigh(self.state, self.policies)

    def situation(self) -> Situation:
        """The input of a choice. Its arrays are overwritten by the next call."""
        nodes = _cluster.profile(self.state, self._nodes)
        waiting = int(self.state.scalars[0]["waiting"])
        if len(self._waiting) < waiting:
            self._waiting = np.zeros(2 * waiting, JOB)
        _cluster.waiting_jobs(self.state, self._waiting)
        return Situation(now=self.now, profile=self._nodes[:nodes], jobs=self._waiting[:waiting])

    def totals(self) -> Totals:
        """Sums so far; exact at the end."""
        cluster = self.state.scalars[0]
        return Totals(
            charged_seconds=float(cluster["charged"]),
            work_seconds=float(cluster["work"]),
            slowdown_sum=float(cluster["slowdown"]),
            jobs=float(cluster["finished"]),
        )


def _refuse_too_wide(jobs: JobTable, cloud: Cloud) -> None:
    """Raise BadInput for a job that needs more nodes than may be rented, or has no run time."""
    widest = int(jobs.processors.max(initial=0))
    without = int(np.count_nonzero(jobs.run <= 0))
    if widest > cloud.max_nodes or without:
        raise BadInput(
            f"{without} jobs have no run time"
            if without
            else f"the widest job needs {widest} nodes, and {cloud.max_nodes} may be rented",
            where=jobs.name or "jobs",
            mend="Leave such jobs out",
            code="portfolio.too_wide",
        )


def replay_policy(
    jobs: JobTable,
    cloud: Cloud,
    runtimes: Runtimes,
    policy: RentingPolicy,
    checkpoint_seconds: float = 3600.0,
) -> tuple[Totals, Floats, Floats]:
    """One policy through the whole log.

    Returns:
        totals: The totals over all jobs.
        checkpoints: ndarray, shape (c, 4): Charged seconds, work seconds, sum of slowdowns and finished jobs,
            as known at each checkpoint.
        start: ndarray, shape (n,): When each job started, seconds.
    """
    cluster = RentedCluster(jobs, cloud, runtimes, [policy], checkpoint_seconds)
    cluster.advance(chooses=False)
    return cluster.totals(), cluster.state.checkpoints, cluster.state.job["start"].copy()


def _category_codes(jobs: JobTable) -> NDArray[np.int64]:
    """Code of each job's user, requested time and processors together; shape (n,)."""
    requested = np.where(np.isnan(jobs.requested_time), -1.0, jobs.requested_time)
    columns = np.stack([jobs.user.astype(np.float64), requested, jobs.processors.astype(np.float64)], axis=1)
    return np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _fresh_state(jobs: JobTable, rules: Rules) -> KernelArrays:
    count = len(jobs)
    records = np.zeros(count, JOB)
    records["submit"], records["run"], records["requested"] = jobs.submit, jobs.run, jobs.requested_time
    records["processors"] = jobs.processors
    records["user"] = np.unique(jobs.user, return_inverse=True)[1]
    records["category"] = _category_codes(jobs)
    records["start"] = records["end"] = records["estimate"] = math.nan
    records["next_of_user"] = -1
    scalars = np.zeros(1, CLUSTER)
    first = float(jobs.submit[0]) if count else 0.0
    scalars["now"] = math.ceil(first / rules.tick) * rules.tick
    scalars["last_choice"] = scalars["next_ready"] = -math.inf
    scalars["next_checkpoint"] = first + rules.checkpoint
    span = float(jobs.submit[-1]) - first if count else 0.0
    users = int(records["user"].max(initial=0)) + 1
    return KernelArrays(
        job=records,
        node=np.zeros(rules.max_nodes, NODE),
        waiting=np.zeros(count + 1, WAITING),
        scalars=scalars,
        ending=np.zeros(rules.max_nodes + 1, ENDING),
        recent=np.full((users, 2), math.nan),
        recent_of_category=np.full((int(records["category"].max(initial=0)) + 1, 2), math.nan),
        queued=np.full((users, 2), -1, np.int64),
        checkpoints=np.zeros((int(span // rules.checkpoint), 4)),
        scratch=np.zeros(rules.max_nodes),
        start=np.full(count, math.nan),
    )
