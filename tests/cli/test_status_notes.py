"""What `advisor status` says of the price, and of what was learned."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.service.admin.status_report import _price_troubles


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ({"unknown": "no budget is set"}, ["there is no price, so no job moves: no budget is set"]),
        ({"unknown": None}, []),
        (None, []),
    ],
)
def test_a_price_that_is_unknown_is_said(price: dict[str, Any] | None, said: list[str]) -> None:
    assert list(_price_troubles({"control": {"price": price}})) == said


def test_g17_16_status_shows_what_was_learned_of_the_clouds_speed() -> None:
    from advisor.service.admin.status_words import ratios_in_words

    kept = {"factor": 2.0, "deviation": 0.1, "jobs": 9}
    ratios = {
        "overhead": 0.03,
        "baseline": 1.4,
        "deviation": 0.12,
        "jobs": 48,
        "partitions": {},
        "applications": {"md_#": kept, "cfd": kept | {"factor": 0.95}},
    }
    said = ratios_in_words(ratios)
    assert said == (
        "run times are 0.03*c + 1.4 times those on-premise for c processors (±12%, from 48 cloud runs); "
        "multiplied by md_# 2.00, cfd 0.95"
    )
