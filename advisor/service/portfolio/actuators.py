"""The changes of the portfolio in Slurm, and how the loop or an admin undoes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from advisor.model.cluster import Node
from advisor.model.settings import Settings
from advisor.service.cloud.node_weights import NodeWeights
from advisor.service.portfolio.held_nodes import ClosedNodes
from advisor.service.portfolio.order import OrderedJobs
from advisor.service.running.isolating import do_all
from advisor.service.state.state_files import PORTFOLIO_WEIGHTS, SITE_FACTORS
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.steering import BurstSteering

_MAX_ORDERED_JOBS: Final = 50
"""Waiting jobs that are put in the policy's order; each change is one command to slurmctld."""
UNDO: Final = "advisor portfolio undo"
"""The command that undoes everything while no loop runs."""


@dataclass(frozen=True, slots=True)
class PortfolioActuators:
    """Closes nodes, orders jobs, and sets the weights of nodes."""

    closed: ClosedNodes
    order: OrderedJobs
    weights: NodeWeights

    @classmethod
    def of(cls, settings: Settings, *, slurm: SlurmBackend, steering: BurstSteering) -> PortfolioActuators:
        """The actuators of a site, with the changes that an earlier process has made."""
        folder, ours = settings.paths.state, settings.portfolio
        return cls(
            ClosedNodes(steering, lease_seconds=ours.lease_seconds),
            OrderedJobs(
                steering,
                SITE_FACTORS.at(folder),
                partition=settings.cluster.burst_partition,
                most=_MAX_ORDERED_JOBS,
            ),
            NodeWeights(slurm, PORTFOLIO_WEIGHTS.at(folder)),
        )

    def restore(self, nodes: Callable[[], Sequence[Node]]) -> None:
        """Restore everything in Slurm; ``nodes`` gives the burst partition's nodes as they are now.

        Raises:
            AdvisorError: Something could not be restored; the rest is.
        """
        do_all(self.closed.open_all, self.order.restore, lambda: self.weights.apply(nodes(), {}))
