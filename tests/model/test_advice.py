"""Advice as data."""

from __future__ import annotations

from advisor.model.advice import Advice, Answer, Mode, Placement, Quantity, Question, Verdict


def test_a_number_is_found_by_its_name_and_the_later_one_counts() -> None:
    first = Answer(
        question=Question.FASTER,
        verdict=Verdict.YES,
        reason="a",
        numbers=(("wait", Quantity(3.0)), ("run", Quantity(5.0))),
    )
    second = Answer(
        question=Question.CAPACITY, verdict=Verdict.YES, reason="b", numbers=(("wait", Quantity(4.0)),)
    )
    advice = Advice(
        advice_id="1",
        time=0.0,
        placement=Placement.ON_PREMISE,
        partition=None,
        capacity=None,
        mode=Mode.ACT,
        answers=(first, second),
    )
    assert [advice.number(name) for name in ("wait", "run", "other")] == [4.0, 5.0, None]
