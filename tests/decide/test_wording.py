"""Sentences for people, and the AdminComment."""

from __future__ import annotations

import json
import math
import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from advisor.decide.phrases import HEADINGS, NAMES, PHRASES, UNITS
from advisor.decide.reasons import Reason
from advisor.decide.wording import (
    ADMIN_COMMENT_LIMIT,
    MESSAGE_LIMIT,
    admin_comment,
    clean,
    duration,
    explanation,
    headline,
    message,
    parse_admin_comment,
    quantity,
    recorded_headline,
    recorded_sentence,
    sentence,
)
from advisor.model import Answer, Quantity, Question, Verdict
from tests.decide.cases import ask, make_cloud, make_estimates, make_job, make_settings

NASTY = 'a\nb\x1b[31m"quoted"\t\\ \u202egnp.exe\u2028\x00' + "z" * 10_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (45.4, "45 s"),
        (99.4, "99 s"),
        (99.6, "2 min"),
        (3540.0, "59 min"),
        (3599.0, "1 h 00 min"),
        (7500.0, "2 h 05 min"),
        (273_600.0, "3 d 04 h"),
        (-7500.0, "-2 h 05 min"),
        (math.nan, "unknown"),
        (math.inf, "unlimited"),
        (-math.inf, "-unlimited"),
    ],
)
def test_durations(value, text):
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Quantity(60.0), "60 s"),
        (Quantity(1.239, "USD"), "1.24 USD"),
        (Quantity(0.0213, "USD/core-h"), "0.0213 USD per core hour"),
        (Quantity(12.0, "cores"), "12 cores"),
        (Quantity(1.5, ""), "1.5"),
        (Quantity(1.23456e9, "s^2"), "1.235e+09 s^2"),
        (Quantity(math.nan, "USD"), "unknown"),
        (Quantity(math.inf, "s^2"), "unlimited"),
    ],
)
def test_every_number_has_its_unit(value, text):
    assert quantity(value) == text


def test_every_reason_has_a_sentence_and_every_number_a_name():
    assert set(PHRASES) == set(Reason)
    assert set(HEADINGS) == set(Question)
    words = {
        name for phrase in PHRASES.values() for _, name, _, _ in string.Formatter().parse(phrase) if name
    }
    assert words <= set(NAMES) | {"detail", "reason"}
    assert set(UNITS) <= set(NAMES)


def test_a_reason_of_a_newer_release_is_shown_as_its_code():
    answer = Answer(question=Question.FASTER, verdict=Verdict.NO, reason="turnaround.hedged")
    assert "turnaround.hedged" in sentence(answer)


def test_numbers_an_old_record_lacks_are_unknown():
    answer = Answer(question=Question.WORTH_PAYING, verdict=Verdict.NO, reason=Reason.SHORT_WAIT)
    assert sentence(answer) == "A wait of unknown is under unknown: short waits wait."


@given(st.text(max_size=300), st.integers(1, 50))
def test_clean_text_is_short_printable_and_one_line(text, limit):
    shown = clean(text, limit)
    assert len(shown) <= limit
    assert "\n" not in shown
    assert all(unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in shown)


def test_clean_keeps_what_is_harmless():
    assert clean("  naïve  ≤ text ") == "naïve ≤ text"
    assert clean("x" * 81) == "x" * 79 + "…"
    assert clean("x" * 80) == "x" * 80


def test_the_user_hears_only_of_a_move():
    text = message(ask(), opt_out_comment="no-burst")
    assert text == (
        "Burst Advisor: starts in the cloud, partition burst (spot node): expected wait here 2 h 00 min, "
        "done about 1 h 56 min sooner. To stay: --comment=no-burst"
    )
    assert message(ask(estimates=make_estimates(wait=0.0))) is None
    assert message(ask(make_job(queue="burst", explicit_partition=True))) is None
    assert message(ask(settings=make_settings(cluster={"default_mode": "shadow"}))) is None


def test_the_message_promises_no_saving_it_does_not_know():
    settings = make_settings(placement={"overhead_per_processor": 0.0})
    advice = ask(estimates=make_estimates(run=math.nan), settings=settings)
    answers = tuple(
        replace(answer, numbers=tuple(n for n in answer.numbers if n[0] != "predicted_saving"))
        for answer in advice.answers
    )
    assert "sooner" not in (message(replace(advice, answers=answers)) or "")


def test_nothing_a_user_typed_reaches_a_terminal_unclean():
    job = make_job(licenses=NASTY, account=NASTY)
    for advice in (ask(job), ask(cloud=make_cloud(protected=NASTY))):
        for text in (explanation(advice), headline(advice)):
            assert all(c == "\n" or unicodedata.category(c)[0] != "C" for c in text)
            assert max(map(len, text.splitlines())) < 400
    moved = message(ask(settings=make_settings(cluster={"burst_partition": NASTY[:50]})))
    assert moved is not None
    assert "\n" not in moved
    assert len(moved) <= MESSAGE_LIMIT


def test_the_explanation_asks_all_that_was_asked():
    text = explanation(ask())
    for heading in HEADINGS.values():
        assert heading in text
    assert "Starts in the cloud on spot capacity." in text
    assert "advice-1" in text
    assert "[capacity.spot]" in text
    stays = explanation(ask(make_job(comment="no-burst")))
    assert HEADINGS[Question.FASTER] not in stays
    assert "Starts in the on-premise cluster." in stays


def test_headlines():
    assert "shadow mode" in headline(ask(settings=make_settings(cluster={"default_mode": "shadow"})))
    assert headline(ask(make_job(queue="burst"))) == "Left in the burst partition, as the user asked."


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
        ask(settings=make_settings(placement={"cutoff_scale": 1.0})),
        ask(settings=make_settings(waiting={"daily_cap_usd": 0.01})),
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
    assert recorded_headline(recorded) == "Left in the burst partition, as the user asked."


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
