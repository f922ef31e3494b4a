"""A log's jobs on rented nodes, under one policy or under a choice made again and again."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.simulate.portfolio import _cluster
from advisor.simulate.portfolio._cluster import ClusterState, advance, weigh
from advisor.simulate.portfolio.online import Situation
from advisor.simulate.portfolio.policies import Release, RentingPolicy, as_records
from advisor.simulate.portfolio.state import (
    ACTUAL,
    ALIKE,
    CLUSTER,
    JOB,
    NODE,
    PREDICTED,
    REQUESTED,
    WAITING,
    Floats,
    Rules,
)
from advisor.simulate.state import ENDING

KAPPA: Final = 100.0
_MAX_EXPECTED: Final = 500  # arrivals repeated at most: bursts come in thousands, and cost time


class Runtimes(enum.StrEnum):
    """Which run times policies and online simulator know."""

    ACTUAL = "actual"
    PREDICTED = "predicted"
    """Mean of the user's last two finished jobs (section 3.2), never above the request."""
    REQUESTED = "requested"
    OURS = "ours"
    """As predicted, of the user's last two jobs that asked for the same time and processors."""


_SOURCES: Final = {
    Runtimes.ACTUAL: ACTUAL,
    Runtimes.PREDICTED: PREDICTED,
    Runtimes.REQUESTED: REQUESTED,
    Runtimes.OURS: ALIKE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """What is rented, and how it is paid (Deng et al., section 5.1).

    Attributes
    ----------
    release : Release
        Billing and release rule.
    max_nodes : int
        Nodes that may be rented at once; each runs one processor's part of a job.
    boot_seconds : float
        From renting to ready.
    tick_seconds : float
        Policies act at whole multiples.
    """

    release: Release = Release.HOUR
    max_nodes: int = 256
    boot_seconds: float = 120.0
    tick_seconds: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over finished jobs and rented nodes, from which the utility follows (section 2).

    Attributes
    ----------
    charged_seconds : float
        R_V, node-seconds charged.
    work_seconds : float
        R_J, processor-seconds worked.
    slowdown_sum : float
        Bounded slowdowns added up.
    jobs : float
        Finished jobs.
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
    """A cluster that goes through a log; stops whenever its policy is to be chosen, if wanted.

    Parameters
    ----------
    jobs : JobTable
        In submission order; run times above 0, no job wider than ``cloud.max_nodes``.
    cloud : Cloud
        What is rented.
    runtimes : Runtimes
        Which run times the policies know.
    policies : sequence of RentingPolicy
        Those that may be applied.
    checkpoint_seconds : float
        Totals are written down so often, from the log's first submission on.
    """

    def __init__(
        self,
        jobs: JobTable,
        cloud: Cloud,
        runtimes: Runtimes,
        policies: Sequence[RentingPolicy],
        checkpoint_seconds: float = 3600.0,
    ) -> None:
        refuse_too_wide(jobs, cloud)
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
        self._expected = np.zeros(_MAX_EXPECTED, JOB)

    @property
    def now(self) -> float:
        """Seconds since the log's start."""
        return float(self.state.cluster[0]["now"])

    @property
    def arrived(self) -> int:
        """Jobs submitted so far."""
        return int(self.state.cluster[0]["arrived"])

    @property
    def policy(self) -> int:
        """Index of the policy in charge."""
        return int(self.state.cluster[0]["policy"])

    def advance(self, *, chooses: bool) -> bool:
        """Go on until the policy is to be chosen (only if ``chooses``) or to the end; True at the end."""
        code = advance(self.state, self.rules, self.policies, self._mode if chooses else _cluster.ALONE)
        self._mode = _cluster.RESUMED
        return bool(code == _cluster.DONE)

    def apply(self, policy: int, period: float, rest: float = 0.0) -> None:
        """Put a policy in charge: for ``period`` seconds, less when the queue changes, ``rest`` at least."""
        it = self.state.cluster[0]
        it["last_choice"] = it["now"]
        it["period"] = max(period, rest)
        it["rest"] = rest
        it["changes"] = 0
        if policy != it["policy"]:
            it["policy"] = policy
            weigh(self.state, self.policies)

    def situation(self, lookahead_seconds: float = 0.0) -> Situation:
        """What a choice is made from; the arrivals of the last ``lookahead_seconds`` are expected once more.

        Its arrays are overwritten by the next call.
        """
        it = self.state.cluster[0]
        nodes = _cluster.profile(self.state, self._nodes)
        most = int(it["waiting"]) + _MAX_EXPECTED
        if len(self._expected) < most:
            self._expected = np.zeros(2 * most, JOB)
        count = _cluster.expected_jobs(self.state, lookahead_seconds, self._expected[:most])
        return Situation(
            now=self.now,
            profile=self._nodes[:nodes],
            jobs=self._expected[:count],
            present=int(it["waiting"]),
        )

    def totals(self) -> Totals:
        """Sums so far; exact at the end."""
        it = self.state.cluster[0]
        return Totals(
            charged_seconds=float(it["charged"]),
            work_seconds=float(it["work"]),
            slowdown_sum=float(it["slowdown"]),
            jobs=float(it["finished"]),
        )


def refuse_too_wide(jobs: JobTable, cloud: Cloud) -> None:
    """Refuse jobs that could never start.

    Raises
    ------
    BadInput
        A job needs more nodes than may be rented, or has no run time.
    """
    if len(jobs) and (int(jobs.processors.max()) > cloud.max_nodes or float(jobs.run.min()) <= 0):
        raise BadInput(
            f"a job needs {int(jobs.processors.max())} of {cloud.max_nodes} nodes, or has no run time",
            where=jobs.name or "jobs",
            mend="Rent more nodes or leave such jobs out",
            code="portfolio.too_wide",
        )


def replay_policy(
    jobs: JobTable,
    cloud: Cloud,
    runtimes: Runtimes,
    policy: RentingPolicy,
    checkpoint_seconds: float = 3600.0,
) -> tuple[Totals, Floats, Floats]:
    """One policy on its own through the whole log.

    Returns
    -------
    totals : Totals
        Of all jobs.
    checkpoints : ndarray, shape (c, 4)
        Charged seconds, work seconds, sum of slowdowns and finished jobs at each checkpoint: known then.
    start : ndarray, shape (n,)
        When each job started.
    """
    cluster = RentedCluster(jobs, cloud, runtimes, [policy], checkpoint_seconds)
    cluster.advance(chooses=False)
    return cluster.totals(), cluster.state.checkpoints, cluster.state.job["start"].copy()


def codes_of_alike(jobs: JobTable) -> NDArray[np.int64]:
    """Code of each job's user, requested time and processors together."""
    requested = np.where(np.isnan(jobs.requested_time), -1.0, jobs.requested_time)
    columns = np.stack([jobs.user.astype(np.float64), requested, jobs.processors.astype(np.float64)], axis=1)
    return np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _fresh_state(jobs: JobTable, rules: Rules) -> ClusterState:
    count = len(jobs)
    job = np.zeros(count, JOB)
    job["submit"], job["run"], job["requested"] = jobs.submit, jobs.run, jobs.requested_time
    job["processors"] = jobs.processors
    job["user"] = np.unique(jobs.user, return_inverse=True)[1]
    job["alike"] = codes_of_alike(jobs)
    job["start"] = job["end"] = job["estimate"] = math.nan
    job["later"] = -1
    cluster = np.zeros(1, CLUSTER)
    first = float(jobs.submit[0]) if count else 0.0
    cluster["now"] = math.ceil(first / rules.tick) * rules.tick
    cluster["last_choice"] = cluster["next_ready"] = -math.inf
    cluster["next_checkpoint"] = first + rules.checkpoint
    span = float(jobs.submit[-1]) - first if count else 0.0
    users = int(job["user"].max(initial=0)) + 1
    return ClusterState(
        job=job,
        node=np.zeros(rules.max_nodes, NODE),
        waiting=np.zeros(count + 1, WAITING),
        cluster=cluster,
        ending=np.zeros(rules.max_nodes + 1, ENDING),
        recent=np.full((users, 2), math.nan),
        recent_alike=np.full((int(job["alike"].max(initial=0)) + 1, 2), math.nan),
        queued=np.full((users, 2), -1, np.int64),
        checkpoints=np.zeros((int(span // rules.checkpoint), 4)),
        scratch=np.zeros(rules.max_nodes),
        start=np.full(count, math.nan),
    )
