"""A partition falls back when its forecasts have not held for a week, and comes back when they do."""

from __future__ import annotations

import pytest

from advisor.decide.drift.drift import WEEK, Standing, fallen_back, of_week
from advisor.model.drift import DayMeasured, FallenBack, Measure
from advisor.model.settings_learning import DriftSettings

SETTINGS = DriftSettings()
TODAY = 20_000


def covered(*shares: float, jobs: int = 40, until: int = TODAY) -> list[DayMeasured]:
    """Days that end with `until`, with so many of 100 intervals that held."""
    first = until - len(shares) + 1
    return [DayMeasured(first + n, jobs, round(jobs * share)) for n, share in enumerate(shares)]


def saved(share: float, *, moved: int = 40, days: int = WEEK) -> list[DayMeasured]:
    return [
        DayMeasured(TODAY - n, 40, 36, moved, 3600.0 * moved, share * 3600.0 * moved) for n in range(days)
    ]


def test_the_last_week_is_what_is_shown() -> None:
    days = covered(0.1, *[0.9] * (WEEK - 1), 0.8)
    assert of_week(Measure.COVERAGE, days, TODAY, SETTINGS) == Standing(280, 248 / 280, 0.75)
    assert of_week(Measure.SAVED_TIME, saved(0.6), TODAY, SETTINGS) == Standing(280, pytest.approx(0.6), 0.5)
    assert of_week(Measure.SAVED_TIME, days, TODAY, SETTINGS) == Standing(0, 1.0, 0.5)


def test_intervals_that_hold_let_jobs_move() -> None:
    assert fallen_back(covered(*[0.9] * WEEK), TODAY, None, SETTINGS) is None
    assert fallen_back([], TODAY, None, SETTINGS) is None


def test_a_week_out_of_the_band_falls_back_and_a_shorter_one_does_not() -> None:
    found = fallen_back(covered(*[0.5] * WEEK), TODAY, None, SETTINGS)
    assert found == FallenBack(TODAY, Measure.COVERAGE, 0.5, 0.75)
    assert "only 50 %" in found.words
    for days in range(1, WEEK):
        assert fallen_back(covered(*[0.5] * days), TODAY, None, SETTINGS) is None


@pytest.mark.parametrize(
    "shares",
    [
        (0.95, 0.95, 0.95, 0.0, 0.95, 0.95, 0.95),  # one user's burst
        (0.5, 0.5, 0.5, 0.5, 0.9, 0.9, 0.9),  # it is over
    ],
)
def test_bad_days_are_no_drift(shares: tuple[float, ...]) -> None:
    assert fallen_back(covered(*shares), TODAY, None, SETTINGS) is None


def test_few_jobs_say_nothing_and_the_switch_is_a_switch() -> None:
    assert fallen_back(covered(*[0.5] * WEEK, jobs=10), TODAY, None, SETTINGS) is None
    off = DriftSettings(enabled=False)
    assert fallen_back(covered(*[0.5] * WEEK), TODAY, None, off) is None
    fallen = FallenBack(TODAY - 3, Measure.COVERAGE, 0.5, 0.75)
    assert fallen_back(covered(*[0.5] * WEEK), TODAY, fallen, off) is None


def test_it_comes_back_when_the_last_days_hold_and_stays_so() -> None:
    before: FallenBack | None = None
    shares = [0.9] * 7 + [0.4] * 9 + [0.9] * 14
    fallen = []
    for day in range(len(shares)):
        before = fallen_back(covered(*shares[: day + 1], until=TODAY + day), TODAY + day, before, SETTINGS)
        fallen.append(before is not None)
    first, last = fallen.index(True), len(fallen) - 1 - fallen[::-1].index(True)
    assert 7 + 5 <= first <= 7 + 7
    assert last < 16 + 4
    assert all(fallen[first : last + 1])


def test_days_without_jobs_leave_it_where_it_is_until_a_week_has_none() -> None:
    fallen = FallenBack(TODAY - 2, Measure.COVERAGE, 0.5, 0.75)
    assert fallen_back(covered(*[0.5] * 3, until=TODAY - 2), TODAY, fallen, SETTINGS) == fallen
    assert fallen_back([], TODAY, fallen, SETTINGS) is None


def test_saved_time_falls_back_and_is_tried_again_after_a_week() -> None:
    assert fallen_back(saved(0.8), TODAY, None, SETTINGS) is None
    found = fallen_back(saved(-0.2), TODAY, None, SETTINGS)
    assert found is not None
    assert (found.measure, found.value) == (Measure.SAVED_TIME, pytest.approx(-0.2))
    assert fallen_back(saved(-0.2, days=3), TODAY, None, SETTINGS) is None
    assert fallen_back(saved(-0.2), TODAY + WEEK - 1, found, SETTINGS) == found
    assert fallen_back(saved(-0.2), TODAY + WEEK, found, SETTINGS) is None
