"""What the user of a job reads that was moved while it waited."""

from __future__ import annotations

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.lsf.changing import words_for_user
from tests.decide.cases import ask


def test_a_moved_job_says_why_without_a_command_that_users_may_not_run() -> None:
    said = words_for_user("normal", admin_comment(ask()))
    assert said.startswith("Burst Advisor: starts in the cloud, was in queue normal. It would wait ")
    assert "advisor why" not in said


def test_an_advice_that_cannot_be_read_says_nothing() -> None:
    assert words_for_user("normal", "{") == "Burst Advisor: starts in the cloud, was in queue normal"
