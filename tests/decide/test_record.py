"""The record: what moves brought, what is at risk, and how much of it counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.decide.record import RecordKeeper, trusted_seconds
from advisor.model import TrackRecord
from advisor.model.settings import PlacementSettings


def test_by_hand() -> None:
    keeper = RecordKeeper()
    keeper.moved("a", 50.0)
    keeper.moved("b", 70.0)
    assert keeper.record == TrackRecord(at_risk_seconds=120.0)
    keeper.ended("a", 30.0)
    keeper.ended("never moved", -10.0)
    assert keeper.record == TrackRecord(
        saved_seconds=20.0, absolute_seconds=40.0, squared_seconds=1000.0, at_risk_seconds=70.0
    )
    settings = PlacementSettings(record_discount=0.1, record_deviations=2.0)
    assert trusted_seconds(keeper.record, settings) == pytest.approx(20 - 4 - 2 * math.sqrt(1000))


def test_one_lucky_job_counts_for_nothing() -> None:
    keeper = RecordKeeper()
    keeper.ended("lucky", 1e6)
    assert trusted_seconds(keeper.record, PlacementSettings()) < 0
    for job in range(100):
        keeper.ended(job, 1e5)
    assert trusted_seconds(keeper.record, PlacementSettings()) > 0


@given(st.lists(st.floats(0, 1e9), max_size=30), st.randoms())
def test_nothing_is_at_risk_when_all_have_ended(stakes: list[float], order) -> None:
    keeper = RecordKeeper()
    for key, stake in enumerate(stakes):
        keeper.moved(key, stake)
    keys = list(range(len(stakes)))
    order.shuffle(keys)
    for key in keys:
        assert keeper.record.at_risk_seconds >= 0
        keeper.ended(key, 1.0)
    assert keeper.record.at_risk_seconds == 0.0
