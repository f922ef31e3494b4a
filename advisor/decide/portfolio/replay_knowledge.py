"""The knowledge of a replayed portfolio at each moment: scores, run times, jobs that may arrive.

The live judge takes the policies' priors from here as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.decide.portfolio.portfolio_lead import rows_of
from advisor.decide.portfolio.portfolio_options import Options, prior_jobs
from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.simulate.portfolio.arrivals import (
    NO_HINDRANCE,
    REMEMBERED,
    REMEMBERED_LONG,
    RENEWED,
    ExpectedJob,
    Hindrance,
    rate_of,
)
from advisor.simulate.portfolio.cluster import Cloud, RentedCluster, Runtimes, replay_policy
from advisor.simulate.portfolio.policies import RentingPolicy
from advisor.simulate.portfolio.state import Readiness
from advisor.simulate.workload import workload

WIDEST: Final = 64
"""Processors of the widest job that is kept (section 5.2)."""
PRIOR_PROCESSORS: Final = 128
"""Processors of the machine for which the synthetic workloads are drawn."""
PRIOR_WORKLOADS: Final = tuple(f"synthetic:2000:{seed}" for seed in range(1, 9))
"""There are several, because the bursts of a single workload decide which policy is best on it."""


def prepared(table: JobTable, cloud: Cloud, jobs: int | None) -> JobTable:
    """The paper's jobs: the first ones that ran on at most 64 processors.

    Raises:
        BadInput: None is left.
    """
    fitting = table.select((table.processors <= min(WIDEST, cloud.max_nodes)) & (table.run > 0))
    if jobs is not None:
        fitting = fitting.select(slice(0, jobs))
    if not len(fitting):
        raise BadInput(
            f"no job ran on at most {WIDEST} processors",
            where=table.name,
            mend="Give a log of smaller jobs",
            code="trace.empty",
        )
    return fitting


def prior_of(
    policies: Sequence[RentingPolicy], options: Options, tell: Callable[[int, int], None] = lambda *_: None
) -> Floats:
    """Result of each policy on the synthetic workloads, scaled to the weight of `prior_jobs` jobs.

    It has a row of totals (`rows_of`) for each policy.
    ``tell`` is called with the number of policies that are done, and of all.
    """
    workloads = [prepared(_drawn(name), options.cloud, None) for name in PRIOR_WORKLOADS]
    found = np.zeros((len(policies), 4))
    for at, policy in enumerate(policies):
        tell(at, len(policies))
        found[at] = rows_of(
            [replay_policy(workload, options.cloud, options.runtimes, policy)[0] for workload in workloads]
        ).sum(axis=0)
    tell(len(policies), len(policies))
    return found * (prior_jobs(options) / sum(map(len, workloads)))


@functools.cache
def _drawn(name: str) -> JobTable:
    """A synthetic workload; drawing it takes longer than a policy does with it."""
    _, jobs, seed = name.split(":")
    return workload(np.random.default_rng(int(seed)), jobs=int(jobs), processors=PRIOR_PROCESSORS)


@dataclass(frozen=True, slots=True, eq=False)
class Leadership:
    """The leader by the number of known checkpoints; the last entry holds for more."""

    champions: NDArray[np.int64]
    leaders: Sequence[int] | NDArray[np.int64]

    def after(self, known: int) -> tuple[int, int]:
        """Champion, and leading selection or ``CHAMPION``."""
        return (
            int(self.champions[min(known, len(self.champions) - 1)]),
            int(self.leaders[min(known, len(self.leaders) - 1)]),
        )


class Knowledge:
    """How many checkpoints of the clusters simulated alongside may be known to a cluster.

    If true run times are known, these are all checkpoints up to now. Otherwise a checkpoint may be known only
    if no simulated cluster had at that time run any job for longer than this cluster has: how much longer
    the job runs is not known yet.

    Args:
        options: Which run times are known, and how often there are checkpoints.
        earliest: ndarray, shape (n,): When each job first started in any of those clusters.
    """

    def __init__(self, jobs: JobTable, options: Options, earliest: Floats) -> None:
        self._first = float(jobs.submit[0])
        self._every = options.checkpoint_seconds
        self._foresees = options.runtimes is Runtimes.ACTUAL
        self._earliest = earliest
        self._ended = 0

    def checkpoints(self, cluster: RentedCluster) -> int:
        """Number of checkpoints known now."""
        moment = cluster.now if self._foresees else min(self._known_until(cluster), cluster.now)
        return max(int((moment - self._first) // self._every), 0)

    def _known_until(self, cluster: RentedCluster) -> float:
        """Time until which no other cluster had run a job for longer than this one; infinite: all ended."""
        job = cluster.state.job[: cluster.arrived]
        while self._ended < len(job) and not np.isnan(job["end"][self._ended]):
            self._ended += 1
        job = job[self._ended :]
        unfinished = np.isnan(job["end"])
        ran = cluster.now - job["start"][unfinished]
        known = self._earliest[self._ended : cluster.arrived][unfinished] + np.where(np.isnan(ran), 0.0, ran)
        return float(np.min(known, initial=np.inf))


class Expected:
    """The jobs that are expected next, judged by the newest ones."""

    def __init__(self, options: Options) -> None:
        self._foresees = options.runtimes is Runtimes.ACTUAL
        self._next: ExpectedJob | None = None
        self._hindrance = NO_HINDRANCE
        self._after = 0

    def ready(self, cluster: RentedCluster) -> Readiness:
        """The value of idle nodes to the expected jobs now; running jobs count with their estimates."""
        arrived = cluster.arrived
        job = cluster.state.job
        if self._next is None or arrived >= self._after + min(self._after, RENEWED):
            recent = job[max(0, arrived - REMEMBERED_LONG) : arrived]
            is_known = self._foresees | ~np.isnan(recent["end"])
            run = np.where(is_known, recent["run"], recent["estimate"])
            processors = recent["processors"]
            self._next = ExpectedJob.of(processors[-REMEMBERED:], run[-REMEMBERED:], cluster.rules)
            self._hindrance = Hindrance.of(
                processors, run, cluster.now - float(recent["submit"][0]), cluster.rules.max_nodes
            )
            self._after = arrived
        return self._next.at(rate_of(job["submit"][:arrived], cluster.now), self._hindrance)
