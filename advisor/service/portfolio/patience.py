"""Jobs that get nodes beyond the policy's limit, because the limit cannot help them. No I/O.

The policy limits how many nodes of the burst partition are open; a reservation closes the others to new jobs.
It acts on a simulated cluster, and the simulator knows nothing of gres, memory per processor, excluded nodes
or nodes planned for another job. A job that we moved to the cloud was promised a node after one boot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from advisor.model.snapshot import QueuedJob
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.service.portfolio.portfolio_view import BurstView, Want, nodes_of
from advisor.simulate.portfolio.moment import Moment
from advisor.slurm.steering import Demand

_STUCK_SECONDS: Final = 60.0  # a job gets more nodes when it has waited in vain for so long,
_PERIODS: Final = 3  # and for so many rounds of the loop
_MAX_DOUBLINGS: Final = 16
_NEXT_JOBS: Final = 10  # waiting jobs whose demands count


@dataclass(frozen=True, slots=True)
class Overdue:
    """Nodes to open beyond the limit.

    Attributes:
        stuck: Number of nodes added to the policy's for jobs that could not start on the open nodes.
        promised: At least these, for jobs that we moved to the cloud and that have waited longer than
            promised.
    """

    stuck: tuple[Want, ...] = ()
    promised: tuple[Want, ...] = ()


class Patience:
    """Remembers since when jobs have waited in vain. Used by one thread.

    ``period_seconds`` is the time between two rounds of the loop.
    """

    def __init__(self, period_seconds: float) -> None:
        self._rounds_seconds = _PERIODS * period_seconds
        self._patience = max(_STUCK_SECONDS, self._rounds_seconds)
        # since when, monotonic seconds: jobs wait, jobs could start on idle nodes, open nodes are not used
        self._waiting: dict[int, float] = {}
        self._starting: dict[int, float] = {}
        self._unused: dict[str, float] = {}

    def overdue(
        self,
        view: BurstView,
        moment: Moment,
        *,
        unused: Collection[str],
        boot_seconds: float,
        now: float,
    ) -> Overdue:
        """Tell which jobs get nodes beyond the limit.

        Args:
            unused: Names of the nodes that are open and that Slurm has not powered up.
            now: Monotonic seconds.
        """
        tasks = Counter(queued.job.job_id for queued in view.waiting)
        jobs = {view.waiting[at].job.job_id: view.waiting[at] for at in moment.order}
        self._remember(view, moment, unused, now)
        due = boot_seconds + self._rounds_seconds
        return Overdue(
            stuck=tuple(
                self._want(jobs[job_id], since, view, now)
                for job_id, since in self._stuck_since(view, moment, now).items()
            ),
            promised=tuple(
                Want(queued.job, tasks[job_id] * nodes_of(queued.job, view.processors_per_node))
                for job_id, queued in jobs.items()
                if now - self._waiting[job_id] >= due and moved_by_us(queued) is not None
            ),
        )

    def _remember(self, view: BurstView, moment: Moment, unused: Collection[str], now: float) -> None:
        waiting = {queued.job.job_id for queued in view.waiting}
        self._waiting = {job_id: self._waiting.get(job_id, now) for job_id in waiting}
        # a job that should have started counts until it has: other jobs on those nodes do not help it
        starting = {view.waiting[at].job.job_id: now for at in moment.starting}
        self._starting = {
            job_id: since for job_id, since in (starting | self._starting).items() if job_id in waiting
        }
        self._unused = {name: self._unused.get(name, now) for name in unused} if waiting else {}

    def _stuck_since(self, view: BurstView, moment: Moment, now: float) -> dict[int, float]:
        """Jobs that the policy would start on idle nodes, and the next jobs if open nodes stay unused."""
        found = {job_id: since for job_id, since in self._starting.items() if now - since >= self._patience}
        open_since = [since for since in self._unused.values() if now - since >= self._patience]
        for at in moment.order[: len(open_since)]:
            job_id = view.waiting[at].job.job_id
            since = max(self._waiting[job_id], min(open_since))
            if now - since >= self._patience:
                found[job_id] = min(since, found.get(job_id, since))
        return found

    def _want(self, queued: QueuedJob, since: float, view: BurstView, now: float) -> Want:
        """The job's nodes, doubled each time that they did not help."""
        doublings = min(int((now - since) / self._patience) - 1, _MAX_DOUBLINGS)
        nodes = nodes_of(queued.job, view.processors_per_node) * 2**doublings
        return Want(queued.job, min(nodes, len(view.asleep)), takes_any=doublings > 0)


def asks_for_a_kind(view: BurstView, moment: Moment, demands: Mapping[int, Demand]) -> bool:
    """Whether one of the next jobs asks for nodes that only Slurm can identify."""
    nothing = Demand()
    return any(
        demands.get(queued.job.job_id, nothing).is_particular
        or bool(queued.job.gres)
        or not queued.job.plain_constraint
        for queued in (view.waiting[at] for at in moment.order[:_NEXT_JOBS])
    )
