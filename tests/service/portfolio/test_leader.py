"""Why a champion is in charge is said as it is: the best score may be another policy's."""

from __future__ import annotations

import pytest

from advisor.service.portfolio.judge import Verdict
from advisor.service.portfolio.leader import _why_champion

ODA, LXF, WARM = "ODA-UNICEF-FirstFit", "ODA-LXF-FirstFit", "ODA-UNICEF-FirstFit+h4"


def why(scores: dict[str, float], jobs: int = 1200) -> str:
    verdict = Verdict(
        champion=ODA, leader=None, scores=scores, charged_seconds=1.0, slowdown_sum=1.0, jobs=jobs, time=0.0
    )
    return _why_champion(verdict)


def test_best_of_all():
    assert (
        why({ODA: 10.0, LXF: 10.05}) == "of all policies it would have done best on 1,200 finished burst jobs"
    )
    assert why({ODA: 10.0}, jobs=0).endswith("best on synthetic workloads")


@pytest.mark.parametrize("jobs", [5, 1200])
def test_another_order_scores_higher_but_not_day_by_day(jobs):
    said = why({ODA: 10.0, LXF: 12.0}, jobs)
    assert f"{jobs:,} finished burst jobs" in said
    assert f"{LXF} would have done 20% better, but not day by day" in said


def test_another_number_of_warm_nodes_scores_higher_with_the_prior_in_full():
    said = why({ODA: 10.0, WARM: 12.0})
    assert WARM in said
    assert "warm nodes" in said
    assert "day by day" not in said
