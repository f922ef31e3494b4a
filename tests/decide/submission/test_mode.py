"""Modes of partitions: off, shadow, advise, opt-in, act; and a pilot."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.wording import would_message
from advisor.decide.submission.advise import tells_user
from advisor.decide.submission.rules import not_fallen_back, not_preempting
from advisor.model.advice import Advice, Mode, Placement
from tests.decide.cases import ask, make_job, make_settings


def advice_in(mode: str, comment: str | None = None, **cluster: Any) -> Advice:
    job = make_job(queue="onprem", comment=comment, user="ann", account="physics")
    return ask(job, settings=make_settings(cluster={"modes": {"onprem": mode}} | cluster))


@pytest.mark.parametrize(
    ("mode", "comment", "acts"),
    [
        ("act", None, True),
        ("shadow", "burst", False),
        ("advise", "burst", False),
        ("opt-in", None, False),
        ("opt-in", "no such word", False),
        ("opt-in", "paper; Burst", True),
        ("opt-in", "no-burst", False),
    ],
)
def test_who_is_moved(mode: str, comment: str | None, acts: bool) -> None:  # noqa: FBT001
    advice = advice_in(mode, comment)
    assert (advice.partition == "burst") is acts
    assert advice.mode in {Mode.SHADOW, Mode.ACT}
    if comment != "no-burst":
        assert advice.placement is Placement.BURST
        assert (advice.mode is Mode.ACT) is acts


def test_a_partition_that_is_off_asks_nothing() -> None:
    advice = advice_in("off")
    assert advice.placement is Placement.ON_PREMISE
    assert advice.decisive.reason == Reason.PARTITION_OFF
    assert len(advice.answers) == 1


@pytest.mark.parametrize(
    ("queue", "mode", "reason"),
    [
        ("long,onprem", Mode.SHADOW, Reason.PARTITION_OFF),
        ("onprem, seen", Mode.SHADOW, Reason.PARTITION_OFF),
        ("long,seen", Mode.SHADOW, Reason.SPOT),
        ("long", Mode.ACT, Reason.SPOT),
    ],
)
def test_a_job_of_several_partitions_is_in_the_mode_that_changes_least(
    queue: str, mode: Mode, reason: Reason
) -> None:
    settings = make_settings(
        cluster={
            "on_premise_partitions": ["long", "onprem", "seen"],
            "modes": {"onprem": "off", "seen": "shadow"},
        },
        rules={"move_explicit_partition": True},
    )
    advice = ask(make_job(queue=queue, explicit_partition=True), settings=settings)
    assert (advice.mode, advice.decisive.reason) == (mode, reason)


def test_what_keeps_the_jobs_of_one_partition_keeps_those_that_name_another_as_well() -> None:
    job, settings = make_job(queue="onprem,long"), make_settings()
    assert not_fallen_back(job, {"long": "why"}, settings).reason == Reason.FALLEN_BACK
    assert not_fallen_back(job, {"other": "why"}, settings).reason == Reason.MAY_MOVE
    assert not_preempting(job, {"long": {"": 4}}, settings).reason == Reason.PREEMPTS
    assert not_preempting(job, {"long": {"": 3}}, settings).reason == Reason.MAY_MOVE


@pytest.mark.parametrize(
    ("pilot", "acts"),
    [
        ({"pilot_users": ("ann",)}, True),
        ({"pilot_users": ("bob",)}, False),
        ({"pilot_accounts": ("physics",)}, True),
        ({"pilot_users": ("bob",), "pilot_accounts": ("physics",)}, True),
        ({"pilot_accounts": ("chemistry",)}, False),
    ],
)
def test_a_pilot_moves_only_its_own(pilot: dict[str, Any], acts: bool) -> None:  # noqa: FBT001
    assert (advice_in("act", **pilot).mode is Mode.ACT) is acts
    assert advice_in("shadow", **pilot).mode is Mode.SHADOW


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ({"pilot_users": ("ann",)}, True),
        ({"pilot_users": ("bob",)}, False),
        ({"opt_in_comment": ""}, False),
    ],
)
def test_a_word_that_would_move_nothing_is_not_told(cluster: dict[str, Any], *, told: bool) -> None:
    settings = make_settings(cluster={"modes": {"onprem": "opt-in"}} | cluster)
    assert tells_user(make_job(queue="onprem", user="ann"), settings) is told


@pytest.mark.parametrize("mode", ["advise", "opt-in"])
def test_in_a_pilot_only_its_own_users_are_told(mode: str) -> None:
    """All others are in shadow mode: the word for opt-in would not move their jobs."""
    pilot = make_settings(cluster={"modes": {"onprem": mode}, "pilot_users": ("ann",)})
    told = [user for user in ("ann", "bob") if tells_user(make_job(queue="onprem", user=user), pilot)]
    assert told == ["ann"]


@pytest.mark.parametrize(("mode", "how"), [("advise", "-p burst"), ("opt-in", "--comment=burst")])
def test_the_user_reads_what_the_cloud_would_do_and_how_to_go_there(mode: str, how: str) -> None:
    settings = make_settings(cluster={"modes": {"onprem": mode}})
    job = make_job(queue="onprem")
    assert tells_user(job, settings)
    advice = ask(job, settings=settings)
    said = would_message(advice, job, settings.cluster)
    assert said is not None
    assert said.startswith("Burst Advisor: stays here. It would wait 2 h 00 min")
    assert said.endswith(f"To go there: {how}")
    stays = ask(make_job(queue="onprem", comment="no-burst"), settings=settings)
    assert would_message(stays, job, settings.cluster) is None
