"""The forecast survival of each cloud node, from Slurm's nodes, EC2's instances and the pools' survival.

The match and acquire loops act on it; launches and question 4 use that of the pools.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from advisor.decide.matching.tiers import Tier, tiers
from advisor.decide.submission.capacity import is_never_spot
from advisor.ec2.instances import Instance
from advisor.ec2.interruptions import NoticeKind
from advisor.ec2.pools import Pool, instance_types, pools_for
from advisor.ec2.prices import Prices
from advisor.ec2.reports import pool_of
from advisor.model.advice import Capacity
from advisor.model.cluster import Node, NodePower
from advisor.model.snapshot import ClusterSnapshot
from advisor.model.spot_pools import SpotPool
from advisor.predict.survival.pool_survival import PoolSurvival, pool_survival
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.observation.site_view import burst_nodes
from advisor.service.state.life_record import NO_LIVES, LifeRecord

log = structlog.get_logger(__name__)

HORIZON_SECONDS: Final = 3600.0
"""The time for which a node's chance of survival is forecast. An hour separates good from bad pools, and most
steered jobs end within a few of them."""
LIVES_NEEDED: Final = 20
"""Spot instances that must have been seen before their survival decides; until then a fixed limit does."""
_REFIT_SECONDS: Final = 300.0
_MIN_HAZARD: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutlook:
    """A node that is up, and what is expected of it.

    Attributes:
        instance_id: Its instance; empty while EC2 lists none.
        pool: Its spot pool, empty while unknown; None: the node is not spot.
        age: Seconds since its launch.
        survives: Probability that it lasts ``HORIZON_SECONDS`` more; None: the node is not spot.
    """

    node: Node
    instance_id: str
    pool: str | None
    age: float
    survives: float | None
    tier: Tier


class StabilityKnowledge:
    """Fits the pools' survival and computes the nodes' outlook. Thread-safe.

    Args:
        instances: Our instances as last listed, and when that was (epoch seconds; None: never).
        lost_together: Called once for each loss of several instances of a pool.
    """

    def __init__(
        self,
        context: CloudContext,
        *,
        record: LifeRecord,
        instances: Callable[[], tuple[Sequence[Instance], float | None]],
        lost_together: Callable[[Pool], None] = lambda _: None,
    ) -> None:
        self._settings, self._clock = context.settings, context.clock
        self._interruptions = context.interruptions
        self._lost_together = lost_together
        self._instances = instances
        self._lock = threading.Lock()
        self._fitted: tuple[PoolSurvival, float, int] | None = None
        self.record = record

    @property
    def instances(self) -> Sequence[Instance]:
        """Our instances as last listed."""
        return self._instances()[0]

    @property
    def is_ready(self) -> bool:
        """Whether EC2 has been read since the start; before that, no node's capacity is known."""
        return self._instances()[1] is not None

    def learn(self) -> None:
        """Note what EC2 lists now."""
        instances, listed_at = self._instances()
        if listed_at is not None:
            together = self.record.observe(
                instances, lambda name: self._interruptions.said(name, NoticeKind.INTERRUPTION), listed_at
            )
            for key in together:
                log.warning("spot.lost_together", pool=key)
            for pool in self._spot_pools():
                if pool.key in together:
                    self._lost_together(pool)

    def model(self) -> PoolSurvival:
        """Survival by pool; fitted again when an instance has ended, and every five minutes."""
        with self._lock:
            now, changes = self._clock.wall(), self.record.changes
            if self._fitted is not None:
                model, fitted_at, seen = self._fitted
                if seen == changes and 0.0 <= now - fitted_at < _REFIT_SECONDS:
                    return model
            model = pool_survival(self.record.lives(), now, [pool.key for pool in self._spot_pools()])
            self._fitted = (model, now, changes)
            return model

    def _spot_pools(self) -> list[Pool]:
        pools = pools_for(Capacity.SPOT, self._settings.ec2, instance_types(self._settings.ec2))
        return [pool for pool in pools if pool.option is Capacity.SPOT]

    def outlook(self, snapshot: ClusterSnapshot) -> dict[str, NodeOutlook]:
        """The outlook of every burst node that is up, by name."""
        up = [n for n in burst_nodes(snapshot, self._settings) if n.power is NodePower.UP and not n.is_down]
        model, now = self.model(), self._clock.wall()
        instances: dict[str | None, Instance] = {}
        for each in sorted(self._instances()[0], key=lambda one: (one.is_alive, one.launch_time)):
            instances[each.node] = each  # the living instance, else the last one
        pools, ages, survives = {}, {}, {}
        for node in up:
            item = instances.get(node.name)
            pools[node.name] = _pool(node, item)
            ages[node.name] = (
                max(0.0, now - item.launch_time) if item is not None and item.launch_time else 0.0
            )
            survives[node.name] = self._survives(model, item, pools[node.name], ages[node.name])
        found = tiers(survives)
        return {
            node.name: NodeOutlook(
                node=node,
                instance_id=instances[node.name].instance_id if node.name in instances else "",
                pool=pools[node.name],
                age=ages[node.name],
                survives=survives[node.name],
                tier=found[node.name],
            )
            for node in up
        }

    def _survives(
        self, model: PoolSurvival, item: Instance | None, pool: str | None, age: float
    ) -> float | None:
        if pool is None:
            return None
        if item is not None and not item.is_alive:
            return 0.0  # Slurm has not noticed yet
        if item is not None and self._interruptions.said(
            item.instance_id, NoticeKind.INTERRUPTION, NoticeKind.REBALANCE
        ):
            return 0.0  # EC2 has announced its end, or a higher risk of it
        return model.survives(pool, age, HORIZON_SECONDS)

    def spot_pools(self, prices: Prices, closed: Collection[str] = ()) -> tuple[SpotPool, ...]:
        """How long instances of each spot pool last; none while too few were seen or a price is not read.

        ``closed`` has pools whose breakers are open.
        """
        ec2 = self._settings.ec2
        pools = self._spot_pools()
        if self.record.seen < LIVES_NEEDED or not all(
            prices.of(kind).spot.is_read and prices.of(kind).on_demand.is_read for kind in instance_types(ec2)
        ):
            return ()
        model = self.model()
        serves: dict[str, tuple[str, ...]] = {ec2.instance_type: ("",)}
        for name, each in ec2.classes.items():
            for kind in each.instance_types:
                serves[kind] = (*serves.get(kind, ()), name)
        return tuple(
            SpotPool(
                key=pool.key,
                usd_per_hour=prices.of_spot_pool(pool),
                lasts=model.lasts(pool.key),
                classes=serves[pool.instance_type],
                is_open=pool.key not in closed,
            )
            for pool in pools
        )

    def fresh_survives(self, pool: str) -> float:
        """Probability that a node launched now in a pool lasts for the horizon."""
        return self.model().survives(pool, 0.0, HORIZON_SECONDS)

    def fresh_hazard(self, closed: Collection[str] = ()) -> float | None:
        """Hazard of a node launched now, from the best pool that is open; None if no spot pool is open.

        ``closed`` has pools and purchase options whose breakers are open.
        """
        if Capacity.SPOT.value in closed:
            return None
        pools = [pool.key for pool in self._spot_pools() if pool.key not in closed]
        return min((hazard_of(self.fresh_survives(pool)) for pool in pools), default=None)

    def longest_lived_first(self, pools: Sequence[Pool]) -> tuple[Pool, ...]:
        """Pools in the order to try, by survival; the order of the purchase options stays."""
        options = list(dict.fromkeys(pool.option for pool in pools))
        return tuple(
            sorted(
                pools,
                key=lambda pool: (
                    options.index(pool.option),
                    -round(self.fresh_survives(pool.key), 2) if pool.option is Capacity.SPOT else 0.0,
                ),
            )
        )

    def table(self) -> list[dict[str, Any]]:
        """Every pool that was seen or is in the settings, for people."""
        seen = self.record.table()
        names = sorted({*seen, *(pool.key for pool in self._spot_pools())})
        return [
            {"pool": name, **seen.get(name, NO_LIVES), "fresh_survives": self.fresh_survives(name)}
            for name in names
        ]


class PoolOrder:
    """The order in which a fleet tries pools: that of the settings until `use` gives another."""

    def __init__(self) -> None:
        self._order: Callable[[Sequence[Pool]], Sequence[Pool]] = tuple

    def use(self, order: Callable[[Sequence[Pool]], Sequence[Pool]]) -> None:
        """Use this order from now on."""
        self._order = order

    def __call__(self, pools: Sequence[Pool]) -> Sequence[Pool]:
        """Pools in the order to try."""
        return self._order(pools)


def _pool(node: Node, item: Instance | None) -> str | None:
    """A node's spot pool; empty while EC2 does not list its instance, None if the node is not spot."""
    if item is None:
        return None if is_never_spot(node.features) else ""
    return pool_of(item).key if item.option is Capacity.SPOT else None


def hazard_of(survives: float | None) -> float:
    """Expected number of times that EC2 takes a node within the horizon, 0 if the node is not spot."""
    if survives is None:
        return 0.0
    return -math.log(min(1.0, max(_MIN_HAZARD, survives)))
