"""`advisor status` says which placement rule really decides."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.service.admin.status_report import _price_troubles, placement_notes

EARNED = {"rule": "advisor", "record_trusted_seconds": 5.0, "record_earned": True}
GROWING = {"rule": "published", "finished_jobs": 500, "first_forest_after_jobs": 1000}


@pytest.mark.parametrize(
    ("placement", "serve", "said"),
    [
        (EARNED, {"running": True, "placement_version": "3"}, ""),
        (EARNED, {"running": True, "placement_version": None}, "advisor serve has not loaded the forests"),
        (EARNED, {"running": False}, ""),
        (
            EARNED | {"record_trusted_seconds": 0.0},
            {"running": True, "placement_version": "3"},
            "shows no gain yet",
        ),
        (GROWING, {"running": True, "placement_version": None}, "500 of 1,000 finished jobs"),
        (None, {"running": True, "placement_version": None}, ""),
    ],
)
def test_the_rule_that_decides_is_said(
    placement: dict[str, Any] | None, serve: dict[str, Any], said: str
) -> None:
    notes = list(placement_notes({"control": {"placement": placement}, "serve": serve}))
    assert len(notes) == bool(said)
    assert said in "".join(notes)


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
