"""A live day: its past has the same programs, the budget is its share, and it begins with a price."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.model.settings import Settings
from advisor.service.state.state_files import BUDGET, PRICE
from benchmarks.live_day import (
    EARLIER_DAYS,
    NODE_PROCESSORS,
    PROCESSORS,
    USD_PER_NODE_HOUR,
    LiveDay,
    draw_live_day,
    program,
)
from benchmarks.live_site import PATIENT

BEGIN = 1_790_000_000.0


@pytest.fixture(scope="module")
def day() -> LiveDay:
    return draw_live_day(1, jobs=60, seconds=60.0, budget_share=0.5).begun_at(BEGIN)


def test_every_job_takes_whole_nodes_and_ends_within_its_limit(day: LiveDay) -> None:
    window = day.window
    assert len(day) == 60
    assert day.begins_at == BEGIN
    assert not np.any(window.processors % NODE_PROCESSORS)
    assert window.processors.max() <= PROCESSORS
    assert np.all(window.run < window.limit)
    assert 0 < day.may_requeue.sum() < 60


def test_its_settings_are_settings(day: LiveDay) -> None:
    for slices in (True, False):
        settings = day.settings(slices=slices) | {"submit": dict(PATIENT)}
        assert Settings.model_validate(settings).hedge.enabled is slices


def test_the_past_ended_before_the_day_and_has_its_programs(day: LiveDay) -> None:
    past = day.past()
    assert len(past) == 60 * EARLIER_DAYS
    assert all(one.job.submit_time <= one.start_time < one.end_time < BEGIN for one in past)
    executable = day.window.table.executable[day.window.first :]
    assert {program(int(code)) for code in executable} <= {one.job.name for one in past}


def test_the_budget_is_its_share_of_the_core_hours(day: LiveDay) -> None:
    usd = 0.5 * day.window.core_seconds / 3600.0 * USD_PER_NODE_HOUR / NODE_PROCESSORS
    assert day.usd == pytest.approx(usd, abs=1e-4)


def test_the_price_begins_with_the_demand_of_the_days_before(day: LiveDay, tmp_path: Path) -> None:
    day.write_price(tmp_path)
    record = PRICE.at(tmp_path).read()
    assert BUDGET.at(tmp_path).read().began == BEGIN - 86_400.0
    assert record.price > 0.0
    assert record.seen
    assert all(time <= BEGIN for time, _, _ in record.seen.values())


def test_overhead_lengthens_the_day_and_not_its_past(day: LiveDay) -> None:
    longer = day.with_overhead(np.full(len(day), 1.5))
    np.testing.assert_allclose(longer.window.run - day.window.run, 1.5)
    assert longer.past() == day.past()
