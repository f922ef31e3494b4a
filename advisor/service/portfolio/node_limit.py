"""Which powered-down nodes the leading policy leaves open, and in which order they are opened.

A node that is not open is in a reservation of ours, so slurmctld powers it up for no job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from advisor.model.cluster import Node, NodePower
from advisor.model.settings import Settings
from advisor.service.portfolio.patience import Overdue, Patience, asks_for_a_kind
from advisor.service.portfolio.portfolio_view import BurstView, Want, nodes_of, wanted_first
from advisor.simulate.portfolio.moment import Moment
from advisor.slurm.steering import BurstSteering, Demand


class NodeLimit:
    """Computes the limit on nodes. Used by one thread.

    ``steering`` is asked what the waiting jobs need beyond what the queue shows.
    """

    def __init__(self, settings: Settings, steering: BurstSteering) -> None:
        self._partition = settings.cluster.burst_partition
        self._steering = steering
        self._patience = Patience(settings.portfolio.period_seconds)

    def to_open(
        self,
        view: BurstView,
        moment: Moment,
        *,
        closed: Collection[str],
        boot_seconds: float,
        now: float,
    ) -> tuple[list[Node], int | None]:
        """Powered-down nodes, the first to be opened first, and how many to open; None: all.

        ``closed`` are the nodes that are closed at present, ``now`` is in monotonic seconds.
        """
        asleep = list(view.asleep)
        if moment.allowed is None:
            return asleep, None
        unused = {n.name for n in asleep if n.power is NodePower.DOWN and n.name not in closed}
        overdue = self._patience.overdue(view, moment, unused=unused, boot_seconds=boot_seconds, now=now)
        demands: Mapping[int, Demand] = {}
        if asleep and view.waiting:
            demands = self._steering.demands(self._partition)
        if asks_for_a_kind(view, moment, demands):
            return asleep, None
        beyond_limit = sum(want.nodes for want in overdue.stuck)
        by_policy = moment.allowed - (len(view.rented) - len(moment.back))
        may_start = max(by_policy, sum(want.nodes for want in overdue.promised)) + beyond_limit
        wanted = wanted_first(asleep, _wants(view, moment, overdue, demands), most=may_start)
        nodes = {node.name: node for node in asleep}
        return [nodes[name] for name in wanted], may_start


def _wants(view: BurstView, moment: Moment, overdue: Overdue, demands: Mapping[int, Demand]) -> list[Want]:
    """The demand of jobs, the most urgent first, each with its requested memory."""
    queue = (view.waiting[at].job for at in moment.order)
    wants = [
        *overdue.stuck,
        *overdue.promised,
        *(Want(job, nodes_of(job, view.processors_per_node)) for job in queue),
    ]
    nothing = Demand()
    return [replace(w, memory_mb=demands.get(w.job.job_id, nothing).memory_mb) for w in wants]
