"""Thousands of stories of launches, faults, reclaims and crashes, and what holds in each (issue 4).

No node has two instances, no instance is an orphan for longer than the grace, no job is lost or ends twice,
none loses its node to us, nothing of other people's is touched, and spending stays under the cap. More
stories, other ones each time: ``ADVISOR_STORIES=20000 pytest tests/service/test_cloud_machine.py``.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings

from advisor.model import Capacity
from tests.service.cloud_stories import CAPS, stories
from tests.service.cloud_world import tell

STORIES = int(os.environ.get("ADVISOR_STORIES", "2000"))
PARTS = 4


def options(examples: int, *phases: Phase) -> Any:
    return hypothesis_settings(
        max_examples=examples,
        phases=phases or (Phase.generate, Phase.shrink),
        deadline=None,
        database=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens(part: int) -> None:
    chosen = part if "ADVISOR_STORIES" not in os.environ else int.from_bytes(os.urandom(4))

    @seed(chosen)
    @options(STORIES // PARTS)
    @given(story=stories(), cap_usd=CAPS)
    def happens(story: Any, cap_usd: float) -> None:
        tell(story, cap_usd=cap_usd)

    happens()


SPOT, ON_DEMAND = Capacity.SPOT, Capacity.ON_DEMAND


def test_a_hand_over_that_comes_again_never_asks_the_cap_about_a_node_that_has_its_instance() -> None:
    """It was refused then, and powered down under its job."""
    tell(
        [
            ("submit", 100.0, 900.0, 1, SPOT, "well"),
            ("submit", 400.0, 100.0, 1, SPOT, "well"),
            ("submit", 20.0, 300.0, 1, SPOT, "well"),
            ("live", 6),
            ("submit", 100.0, 300.0, 1, ON_DEMAND, "well"),
            ("live", 4),
            ("repeat",),
        ],
        cap_usd=0.1,
    )
