"""Who is better day by day: by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.decide.portfolio.portfolio_options import Options
from tests.decide.portfolio_days import DAILY, days, evidence_of


def test_one_day_of_great_gains_is_no_evidence():
    champion = days(*[100.0] * 9)
    reigning = np.zeros(9, np.int64)
    lucky = evidence_of([champion], reigning, days(100, 100, 101, 99, 20, 101, 99, 101, 101), DAILY)
    steady = evidence_of([champion], reigning, days(*[98.0] * 9), DAILY)
    assert lucky[-1] < 1.0
    assert steady[-1] == pytest.approx(math.sqrt(9.0))
    assert evidence_of([champion], reigning, champion, DAILY).tolist() == [0.0] * 9


def test_evidence_is_of_the_champion_that_reigns():
    worse, better = days(*[200.0] * 9), days(*[100.0] * 9)
    contender = days(*[150.0] * 9)
    reigns = np.array([0] * 9), np.array([1] * 9)
    first, second = (evidence_of([worse, better], reign, contender, DAILY)[-1] for reign in reigns)
    assert first == pytest.approx(-second)
    assert first > 2.0


def test_evidence_of_hours_counts_whole_days():
    hours = np.cumsum([[100.0, 1.0, 10.0, 10.0]] * 72, axis=0)
    found = evidence_of([hours], np.zeros(len(hours), np.int64), hours * [0.9, 1.0, 1.0, 1.0], Options())
    assert found == pytest.approx([1.0, math.sqrt(2.0), math.sqrt(3.0)])


def test_days_with_hardly_a_job_tell_nothing():
    idle = days(*[100.0] * 9)
    idle[:, 3] = np.arange(9)
    assert evidence_of([idle], np.zeros(9, np.int64), days(*[50.0] * 9), DAILY).tolist() == [0.0] * 9
