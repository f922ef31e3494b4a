"""The AdminComment says what the advice said, in little room, and is read back with care."""

from __future__ import annotations

import json
import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.phrases import UNITS
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import ADMIN_COMMENT_LIMIT, admin_comment
from advisor.decide.explanation.wording import recorded_headline, recorded_sentence, sentence
from advisor.model.advice import Answer, Quantity, Question, Verdict
from tests.decide.cases import ask, make_cloud, make_estimates, make_job, make_settings


def test_an_admin_comment_is_read_back():
    advice = ask()
    text = admin_comment(advice)
    found = parse_admin_comment(text)
    assert found is not None
    assert text.isascii()
    assert found.advice_id == "advice-1"
    assert (found.placement, found.mode, found.capacity) == ("burst", "act", "spot")
    assert found.reason == "capacity.spot"
    assert found.size == "unknown"
    assert found.numbers["predicted_wait"] == 7200.0
    assert found.numbers["wait_deviation"] == 10.0


@pytest.mark.parametrize(
    "advice",
    [
        ask(),
        ask(make_job(requeue=False)),
        ask(make_job(licenses="matlab:1")),
        ask(make_job(processors=65), settings=make_settings(rules={"max_processors": 64})),
        ask(make_job(memory_mb=9000), cloud=make_cloud(memory_mb_per_node=8000)),
        ask(make_job(processors=9), cloud=make_cloud(nodes_total=2, processors_per_node=4)),
        ask(estimates=make_estimates(wait_variance=1e12)),
        ask(settings=make_settings(budget={"usd": 0.01})),
        ask(estimates=make_estimates(wait=0.0)),
        ask(cloud=make_cloud(reserved_free_nodes=4)),
    ],
)
def test_an_admin_comment_says_the_same_as_the_advice(advice):
    found = parse_admin_comment(admin_comment(advice))
    assert found is not None
    assert recorded_sentence(found) == sentence(advice.decisive)
    for answer in advice.answers:
        for name, value in answer.numbers:
            assert value.unit == UNITS.get(name, "s")


def test_an_admin_comment_of_a_job_that_stays():
    found = parse_admin_comment(admin_comment(ask(make_job(comment="no-burst"))))
    assert found is not None
    assert (found.placement, found.capacity, found.reason) == ("on-premise", None, "rule.opt_out_comment")


@given(
    st.lists(st.tuples(st.text(max_size=60), st.floats()), max_size=60),
    st.text(max_size=300),
    st.text(alphabet=string.ascii_letters + string.digits + "-", min_size=1, max_size=64),
)
def test_an_admin_comment_stays_under_its_limit_and_keeps_its_id(numbers, detail, advice_id):
    answer = Answer(
        question=Question.MAY_MOVE,
        verdict=Verdict.NO,
        reason=Reason.LICENSES,
        detail=detail,
        numbers=tuple((name, Quantity(value)) for name, value in numbers),
    )
    text = admin_comment(replace(ask(), answers=(answer,), advice_id=advice_id))
    assert len(text.encode()) < ADMIN_COMMENT_LIMIT
    assert "\n" not in text
    found = parse_admin_comment(text)
    assert found is not None
    assert found.advice_id == advice_id
    assert all(math.isfinite(value) for value in found.numbers.values())


def test_numbers_and_then_the_detail_leave_a_full_admin_comment():
    numbers = tuple((f"number_{i:02d}_{'x' * 20}", Quantity(float(i))) for i in range(60))
    strange = (("not a name", Quantity(1.0)), ('"quoted"', Quantity(2.0)))
    answer = Answer(
        question=Question.MAY_MOVE,
        verdict=Verdict.NO,
        reason=Reason.LICENSES,
        detail="mine",
        numbers=(*strange, *numbers),
    )
    crowded = admin_comment(replace(ask(), answers=(answer,), advice_id="a"))
    found = parse_admin_comment(crowded)
    assert found is not None
    assert found.detail == "mine"
    assert list(found.numbers) == [name for name, _ in numbers[: len(found.numbers)]]
    assert 20 < len(found.numbers) < 60
    found = parse_admin_comment(admin_comment(replace(ask(), answers=(answer,), advice_id="a" * 900)))
    assert found is not None
    assert (found.advice_id, found.detail, found.numbers) == ("a" * 900, "", {})


def test_an_admin_comment_of_a_job_its_user_placed():
    recorded = parse_admin_comment(admin_comment(ask(make_job(queue="burst"))))
    assert recorded is not None
    asked = "Left in the burst partition, as the user asked. A node that is launched for it is spot capacity."
    assert recorded_headline(recorded) == asked


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "site's own comment",
        "[1,2]",
        '{"burst_advisor":2,"id":"x"}',
        '{"burst_advisor":1}',
        '{"burst_advisor":1,"id":7}',
        '{"burst_advisor":1,"id":""}',
        "[" * 3000,
        '{"burst_advisor":1,"id":"x"}' + " " * 10_000,
    ],
)
def test_a_foreign_comment_is_not_ours(text):
    assert parse_admin_comment(text) is None


def test_a_damaged_comment_keeps_its_id():
    found = parse_admin_comment(
        json.dumps({"burst_advisor": 1, "id": "x", "to": 3, "n": {"a": "b", "c": True}})
    )
    assert found is not None
    assert (found.advice_id, found.placement, found.numbers) == ("x", "", {})
    assert parse_admin_comment('{"burst_advisor":1,"id":"x","n":[1]}') is not None
