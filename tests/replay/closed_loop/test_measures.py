"""What is reported of a policy, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.replay.closed_loop.log import loop_jobs
from advisor.replay.closed_loop.measures import measured
from advisor.replay.closed_loop.world import LoopResult
from tests.replay.closed_loop.hand_made import log


def test_figures_of_three_jobs() -> None:
    jobs = loop_jobs(log([(0.0, 1, 100.0), (0.0, 1, 3600.0), (0.0, 1, 30.0)], machine=1))
    usual = LoopResult(end=np.array([100.0, 3700.0, 3730.0]), cost=np.zeros(3), moved=np.zeros(3, np.bool_))
    result = LoopResult(
        end=np.array([200.0, 3720.0, 150.0]),
        cost=np.array([0.0, 0.0, 3600.0]),
        moved=np.array([False, False, True]),
    )
    row = measured("any", jobs, result, usual, budget_usd=0.5, usd_per_core_hour=0.2, seconds=1.0)
    assert row.mean_wait_seconds == pytest.approx((100.0 + 120.0 + 120.0) / 3)
    assert row.mean_turnaround_seconds == pytest.approx((200.0 + 3720.0 + 150.0) / 3)
    # a run of 30 s counts as one of 60 s
    assert row.mean_bounded_slowdown == pytest.approx((2.0 + 3720.0 / 3600.0 + 150.0 / 60.0) / 3)
    assert row.saved_hours == pytest.approx((3580.0 - 20.0 - 100.0) / 3600.0)
    assert row.cost_usd == pytest.approx(0.2)
    assert row.budget_share_spent == pytest.approx(0.4)
    assert row.moved_jobs == 1
    # the second job is 20 s later: less than 60 s
    assert row.later_share == pytest.approx(1 / 3)
