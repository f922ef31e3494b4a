"""The rows of the shipped loops: their budget is the window's."""

from __future__ import annotations

import pytest

from advisor.model.advice import Mode
from advisor.model.periods import period_span
from advisor.rehearsal.cloud_market import CloudMarket
from advisor.rehearsal.shipped import rehearse_shipped, window_of
from advisor.replay.closed_loop.log import loop_jobs
from advisor.replay.closed_loop.rehearse import Rehearsal
from advisor.replay.closed_loop.world import WorldOptions
from tests.rehearsal.test_rehearsal import log, settings


def test_the_plan_of_the_budget_ends_with_the_last_submission() -> None:
    jobs = loop_jobs(log(), skip=60)
    begin, last = (jobs.table.start_of_log + float(jobs.submit[row]) for row in (0, -1))
    assert period_span(begin - 60.0, window_of(jobs)) == (begin - 60.0, pytest.approx(last, abs=1.0))
    assert period_span(last - 1.0, window_of(jobs)) == period_span(begin, window_of(jobs))


def test_no_more_is_spent_than_the_share_of_the_window() -> None:
    jobs = loop_jobs(log(), skip=120)
    asked = Rehearsal(
        policies=("all-on-premise",), world=WorldOptions(budget_share=0.1), usd_per_core_hour=0.36
    )
    shipped = {"shipped": settings(Mode.ACT, "price", hedge={"enabled": True})}
    (row,), _ = rehearse_shipped(jobs, asked, shipped, CloudMarket())
    assert 0.0 < row["cost_usd"] <= row["machine_usd"] <= row["budget_usd"]
