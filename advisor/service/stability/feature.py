"""The feature for nodes that are likely to last: matching, acquisition, and their undoing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import structs

from advisor.ec2.pools import Pool
from advisor.model.cluster import Node
from advisor.model.site import SiteState
from advisor.model.spot_pools import SpotPool
from advisor.service.cloud.feature import CloudFeature
from advisor.service.cloud.interrupting import SpotParts
from advisor.service.running.feature import Feature, Gauges
from advisor.service.running.loops import LoopRunner
from advisor.service.stability.acquirer import REASON, AcquireLoop
from advisor.service.stability.match_loop import MatchLoop
from advisor.service.stability.outlook import HORIZON_SECONDS, PoolOrder, StabilityKnowledge
from advisor.service.state.life_record import LifeRecord
from advisor.service.state.state_files import LIVES


class StabilityFeature(Feature):
    """The match loop, and the acquirer if it is to keep nodes.

    The match loop always observes; it changes jobs and nodes only if ``matching.enabled`` is on.

    Args:
        pool_order: Orders the pools of a launch; of spot pools, the one whose instances last longest comes
            first.
    """

    def __init__(
        self,
        cloud: CloudFeature,
        *,
        spot: SpotParts,
        pool_order: PoolOrder | None,
        closed_pools: Callable[[], Collection[str]],
        lost_together: Callable[[Pool], None],
    ) -> None:
        self._context = context = cloud.context
        settings = context.settings
        knowledge = StabilityKnowledge(
            context,
            record=LifeRecord(LIVES.at(settings.paths.state)),
            instances=cloud.listed,
            lost_together=lost_together,
        )
        self.knowledge = knowledge
        self._closed_pools = closed_pools
        self.match = MatchLoop(context, knowledge=knowledge, jobs=spot.jobs)
        self.acquire: AcquireLoop | None = None
        keeps_nodes = settings.acquirer.kept_nodes > 0
        if pool_order is not None and (keeps_nodes or settings.matching.enabled):
            pool_order.use(knowledge.longest_lived_first)
        if keeps_nodes:
            self.acquire = AcquireLoop(context, knowledge=knowledge, closed=closed_pools)
        loops = (self.match,) if self.acquire is None else (self.match, self.acquire)
        self.runners = tuple(LoopRunner(loop, context.clock) for loop in loops)
        self.steering = tuple(loop.name for loop in loops)

    def kept_nodes(self) -> Collection[str]:
        """Nodes that the acquirer has requested and that are not up yet."""
        return () if self.acquire is None else self.acquire.wanted()

    def spot_pools(self) -> tuple[SpotPool, ...]:
        """How long instances of each spot pool last, as far as that is known and used."""
        if not self._context.settings.capacity.spot_by_survival:
            return ()
        return self.knowledge.spot_pools(self._context.prices_now(), self._closed_pools())

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`Feature`."""
        return structs.replace(site, cloud=structs.replace(site.cloud, spot_pools=self.spot_pools()))

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        report = {"matching": self.match.report()}
        return report if self.acquire is None else {**report, "acquirer": self.acquire.report()}

    def gauges(self) -> Gauges:
        """See :class:`Feature`."""
        return {**self.match.gauges(), **({} if self.acquire is None else self.acquire.gauges())}

    def release(self) -> None:
        """See :class:`Feature`."""
        self.match.release()


def stability_columns(stability: StabilityFeature | None, node: Node | None) -> dict[str, Any]:
    """Columns of the table of nodes: a node's expected survival, and whether the acquirer retires it."""
    outlook = stability.match.outlook.get(node.name) if stability is not None and node is not None else None
    reason = (node.reason or "") if node is not None else ""
    return {
        "tier": outlook.tier.value if outlook is not None else None,
        "survival_probability": outlook.survives if outlook is not None else None,
        "survival_horizon_seconds": HORIZON_SECONDS,
        "retiring": node is not None and node.is_draining and reason.startswith(REASON),
        "weight": node.weight if node is not None else None,
    }
