"""How estimates and their intervals are judged."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.papers.placement.placement_results import EstimatorQuality, MonthCoverage

OCTOBER_LAST_SECOND = 1_793_491_199.0  # 2026-10-31 23:59:59


def test_g17_19_coverage_by_month_and_what_width_bought() -> None:
    found = EstimatorQuality.of(
        seconds=np.array([5.0, 5.0, 5.0, np.nan, 5.0]),
        lower=np.array([0.0, 4.0, 2.0, np.nan, 0.0]),
        upper=np.array([10.0, 6.0, 4.0, np.nan, 9.0]),
        interval=0.9,
        truth=np.array([10.0, 1.0, 9.0, 3.0, np.nan]),
        epoch=OCTOBER_LAST_SECOND + np.array([0.0, 0.9, 1.0, 2.0, 3.0]),
    )
    assert found.interval_coverage == pytest.approx(1 / 3)
    assert found.months == (
        MonthCoverage(month="2026-10", jobs=2, coverage=0.5),
        MonthCoverage(month="2026-11", jobs=1, coverage=0.0),
    )
    assert found.interval_mean_width == pytest.approx((10.0 + 2.0 + 2.0) / 3)
    assert found.interval_score == pytest.approx((10.0 + 2.0 + 2.0 + 20.0 * (3.0 + 5.0)) / 3)
