"""Sentences for people."""

from __future__ import annotations

import math
import string
import unicodedata

import pytest
from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.display import quantity
from advisor.decide.explanation.phrases import HEADINGS, NAMES, PHRASES, UNITS
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import MESSAGE_LIMIT, message
from advisor.decide.explanation.wording import (
    explanation,
    headline,
    in_general,
    recorded_explanation,
    sentence,
    with_unread_checkpoint,
)
from advisor.model.advice import Answer, Quantity, Question, Verdict
from tests.decide.cases import ask, make_cloud, make_estimates, make_job, make_settings

NASTY = 'a\nb\x1b[31m"quoted"\t\\ \u202egnp.exe\u2028\x00' + "z" * 10_000


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


def test_a_chance_is_shown_in_per_cent():
    assert [quantity(Quantity(chance, "chance")) for chance in (0.1171, 0.996, 0.002, 1.0, math.nan)] == [
        "11.7 %",
        "99.6 %",
        "0.2 %",
        "100 %",
        "unknown",
    ]


def test_numbers_an_old_record_lacks_are_unknown():
    answer = Answer(question=Question.WORTH_PAYING, verdict=Verdict.NO, reason=Reason.SHORT_WAIT)
    assert sentence(answer) == (
        "A wait of unknown is expected, and jobs that likely start here within unknown wait."
    )


def test_the_user_hears_only_of_a_move():
    text = message(ask(), opt_out_comment="no-burst")
    assert text == (
        "Burst Advisor: starts in the cloud, partition burst (spot node): expected wait here 2 h 00 min, "
        "done about 1 h 56 min sooner. To stay: --comment=no-burst"
    )
    assert message(ask(estimates=make_estimates(wait=0.0))) is None
    assert message(ask(make_job(queue="burst", explicit_partition=True))) is None
    assert message(ask(settings=make_settings(cluster={"default_mode": "shadow"}))) is None


def test_how_to_write_a_checkpoint_is_not_cut_from_a_long_line():
    said = with_unread_checkpoint("Burst Advisor: " + "word " * 76, "checkpoint=often")
    assert said is not None
    assert len(said) <= MESSAGE_LIMIT
    assert said.endswith("write checkpoint=10min or checkpoint=1h")


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
    told = "Left in the burst partition, as the user asked. A node that is launched for it is spot capacity."
    assert headline(ask(make_job(queue="burst"))) == told


@pytest.mark.parametrize("reason", list(Reason))
def test_day_one_34_every_reason_has_words_without_a_jobs_numbers(reason: Reason) -> None:
    words = in_general(reason)
    assert "{" not in words
    assert "...." not in words
    assert "()" not in words
    assert words.endswith(".")


def test_a_probability_in_an_admin_comment_is_no_time():
    comment = (
        '{"burst_advisor":1,"id":"a","to":"on-premise","mode":"act","why":"price.too_dear",'
        '"size":"unknown","n":{"hour_costs":2,"slice_chance":0.31}}'
    )
    recorded = parse_admin_comment(comment)
    assert recorded is not None
    assert " 31 %\n" in recorded_explanation(recorded)


def test_what_a_job_prefers_or_gets_by_default_is_not_said_to_be_asked_for() -> None:
    assert sentence(ask(make_job(prefer=("onprem",))).decisive) == (
        "It wants the feature onprem, which not all cloud nodes have."
    )
    memory = ask(make_job(memory_mb=10**9), cloud=make_cloud(memory_mb_per_node=4_000)).decisive
    assert memory.reason is Reason.MORE_MEMORY_THAN_BURST
    assert sentence(memory).startswith("It needs ")
