"""How often a job saves its work, as its user writes it."""

from __future__ import annotations

import math

import pytest

from advisor.model.checkpoint_word import at_risk_seconds, checkpoint_of


@pytest.mark.parametrize(
    ("comment", "seconds"),
    [
        ("checkpoint=10min", 600.0),
        ("by=18:00,checkpoint=1.5h", 5400.0),
        ("CHECKPOINT=2m; no-hedge", 120.0),
        ("data=20GB checkpoint=1d", 86_400.0),
    ],
)
def test_a_time_is_read_among_other_words(comment: str, seconds: float) -> None:
    assert checkpoint_of(comment) == at_risk_seconds(comment) == seconds


@pytest.mark.parametrize("comment", [None, "", "standby", "mycheckpoint=10min", "checkpoint"])
def test_other_comments_say_nothing(comment: str | None) -> None:
    assert checkpoint_of(comment) is None
    assert at_risk_seconds(comment) == math.inf


@pytest.mark.parametrize(
    "word", ["", "often", "10", "0min", "-3h", "10min!", "1" * 40 + "h", "+10min", "10m\u0131n", "10m\u0130n"]
)
def test_what_is_no_time_keeps_nothing(word: str) -> None:
    said = checkpoint_of(f"checkpoint={word}")
    assert said is None or math.isnan(said)
    assert at_risk_seconds(f"checkpoint={word}") == math.inf
