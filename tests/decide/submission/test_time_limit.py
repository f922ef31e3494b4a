"""A moved job's time limit: as much longer as the cloud is slower, within bounds, and noted."""

from __future__ import annotations

import math
from typing import Any

import pytest

from advisor.decide.explanation import wording
from advisor.decide.explanation.admin_comment import RecordedAdvice, parse_admin_comment
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.model.advice import TimeLimit
from advisor.model.site import PerformanceRatios
from tests.decide.cases import ask, make_job, make_settings


def limit_of(
    job: dict[str, Any] | None = None, placement: dict[str, Any] | None = None, **sections: Any
) -> TimeLimit | None:
    asked = {"processors": 10, "requested_time": 3600.0, "explicit_time_limit": True} | (job or {})
    settings = make_settings(placement=placement or {}, **sections)
    return ask(make_job(**asked), settings=settings).time_limit


@pytest.mark.parametrize(
    ("job", "placement", "minutes"),
    [
        ({}, {}, 66),  # s(10) = 0.01 * 10 + 1: exactly 66 minutes, not 67 by rounding
        ({"processors": 1}, {}, 61),  # 60.6 minutes: Slurm counts whole ones
        ({}, {"max_time_limit_seconds": 3800.0}, 3800 / 60),
    ],
)
def test_it_grows_with_the_clouds_slowness(
    job: dict[str, Any], placement: dict[str, Any], minutes: float
) -> None:
    assert limit_of(job, placement) == TimeLimit(asked_seconds=3600.0, given_seconds=60.0 * minutes)


@pytest.mark.parametrize(
    ("job", "placement"),
    [
        ({"explicit_time_limit": False}, {}),  # the partition's default is no word of the user's
        ({"requested_time": None}, {}),
        ({"requested_time": float("inf")}, {}),
        ({}, {"stretch_time_limit": False}),
        ({}, {"baseline": 0.5}),  # a faster cloud takes nothing away
        ({}, {"max_time_limit_seconds": 1800.0}),  # the site's bound is below what he asked for
        ({"comment": "no-burst"}, {}),  # it stays
    ],
)
def test_it_is_left_alone(job: dict[str, Any], placement: dict[str, Any]) -> None:
    assert limit_of(job, placement) is None


def test_shadow_mode_changes_no_limit() -> None:
    assert limit_of(cluster={"default_mode": "shadow"}) is None


def test_it_is_told_and_read_back() -> None:
    job = make_job(processors=10, requested_time=3600.0, explicit_time_limit=True)
    advice = ask(job)
    assert "Time limit raised from 1 h 00 min to 1 h 06 min" in wording.explanation(advice)
    recorded = parse_admin_comment(admin_comment(advice))
    assert recorded is not None
    assert recorded.time_limit == advice.time_limit
    assert "1 h 06 min" in wording.recorded_explanation(recorded)
    assert wording.recorded_headline(recorded) == wording.headline(advice)


@pytest.mark.parametrize(
    ("now", "users"), [(3960.0, 3600.0), (3700.0, 3600.0), (1800.0, 1800.0), (7200.0, 7200.0), (None, None)]
)
def test_the_users_own_limit_is_found_again(now: float | None, users: float | None) -> None:
    recorded = RecordedAdvice(
        advice_id="a", placement="burst", mode="act", reason="capacity.spot", size="large",
        time_limit=TimeLimit(asked_seconds=3600.0, given_seconds=3960.0),
    )  # fmt: skip
    assert recorded.users_limit(now) == users


@pytest.mark.parametrize(
    "text", ["[60]", "[120,60]", "[0,60]", '["60","120"]', "[60,1e99]", "null", "[1,2,3]"]
)
def test_a_damaged_limit_is_none(text: str) -> None:
    recorded = parse_admin_comment(f'{{"burst_advisor":1,"id":"a","limit":{text}}}')
    assert recorded is not None
    assert recorded.time_limit is None


@pytest.mark.parametrize(("deviation", "factor"), [(0.6, 1.5 * math.exp(0.6)), (2.0, 4.0)])  # at most 4
def test_a_learned_ratio_counts_with_one_deviation_of_its_logarithm(deviation: float, factor: float) -> None:
    job = make_job(processors=1, requested_time=36_000.0, explicit_time_limit=True)
    learned = PerformanceRatios(overhead=0.0, baseline=1.5, deviation=deviation, jobs=9)
    limit = ask(job, ratios=learned).time_limit
    assert limit is not None
    assert limit.given_seconds == 60.0 * math.ceil(600.0 * factor)
