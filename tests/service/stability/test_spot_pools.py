"""What control says of spot pools: each one's own price, how long it lasts, and whether it has room."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from advisor.ec2.prices import Prices, Quote
from advisor.model.settings import Settings
from advisor.service.running.clock import Clock
from advisor.service.stability.outlook import LIVES_NEEDED, StabilityKnowledge

A, B = "spot|c5.xlarge|subnet-a", "spot|c5.xlarge|subnet-b"
READ = Prices(Quote(0.06, 1.0), Quote(0.17, 1.0), spot_of_pools={A: 0.05})


def knowledge(seen: int) -> StabilityKnowledge:
    record: Any = SimpleNamespace(seen=seen, changes=0, lives=list)
    settings = Settings.model_validate({"ec2": {"subnet_ids": ["subnet-a", "subnet-b"]}})
    context: Any = SimpleNamespace(settings=settings, clock=Clock(), interruptions=None)
    return StabilityKnowledge(context, record=record, instances=lambda: ((), None))


def test_a_pool_has_its_own_price_and_is_open_or_not() -> None:
    pools = {pool.key: pool for pool in knowledge(LIVES_NEEDED).spot_pools(READ, closed=(B, "spot|other"))}
    assert {key: (pool.usd_per_hour, pool.is_open) for key, pool in pools.items()} == {
        A: (0.05, True),
        B: (0.06, False),  # its zone's price is not known: the highest of its type
    }


def test_nothing_is_said_while_too_little_is_known() -> None:
    assert knowledge(LIVES_NEEDED - 1).spot_pools(READ) == ()
    assert knowledge(LIVES_NEEDED).spot_pools(Prices(Quote(0.06), Quote(0.17))) == ()
