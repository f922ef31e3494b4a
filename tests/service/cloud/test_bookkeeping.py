"""The budget's record is lost and the history cannot be read: until when nothing is launched."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from advisor.model.errors import RetryLater, TellAdmin
from advisor.model.settings import Settings
from advisor.service.cloud.bookkeeping import Bookkeeping
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.state_files import BUDGET
from advisor.testing.manual_clock import ManualClock

DAY = 86_400.0
OCTOBER_31 = 1_793_404_800.0  # 2026, midnight UTC


def test_a_lost_record_is_in_the_way_until_the_next_period_and_not_until_midnight(tmp_path: Path) -> None:
    clock = ManualClock(wall=OCTOBER_31 - DAY)
    unused: Any = None

    def unreadable(_since: float) -> NoReturn:
        raise RetryLater("the database is locked")

    def known() -> NoReturn:
        raise KeyError

    budget: Any = SimpleNamespace(budget=SpendingBudget(BUDGET.at(tmp_path), clock.clock))
    context = CloudContext(
        settings=Settings.model_validate({"budget": {"usd": 100.0, "period": "month"}}),
        fleet=unused,
        slurm=unused,
        view=unused,
        cloud=budget,
        clock=clock.clock,
        interruptions=unused,
        prices=known,
        paid_since=unreadable,
    )
    keeper = Bookkeeping(context)
    for _ in range(2):
        with pytest.raises(TellAdmin, match="until the next period of each budget has begun"):
            keeper.settle(list)
        clock.wall += DAY
    with pytest.raises(KeyError):  # it goes on without the history
        keeper.settle(list)
