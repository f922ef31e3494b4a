"""With what priority a new job begins, by the jobs of its user that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.model.job import ANYBODY
from advisor.model.snapshot import QueuedJob
from advisor.service.control.first_priorities import FirstPriorities
from advisor.slurm.steering import Ageing
from tests.decide.cases import ask, make_estimates, make_job, make_settings
from tests.service.doubles import make_queued

NOW = 1_800_000_000.0
DAY = 86_400.0
MULTIFACTOR = {"PriorityType": "priority/multifactor"}
AGEING = Ageing(weight=1000.0, seconds=10 * DAY)


def waits(job_id: int, priority: int, age: float = 0.0, **changes: Any) -> QueuedJob:
    known = {"user": "ann", "queue": "cpu", "account": "chem", "qos": "normal", "reason": "Priority"}
    found = make_queued(job_id, submit_time=NOW - age, **(known | changes))
    return replace(found, priority=priority)


def first(*jobs: QueuedJob, ageing: Ageing | None = AGEING, offset: int = 0) -> dict[str, float]:
    return FirstPriorities().update(jobs, ageing, offset, NOW)


@pytest.mark.parametrize(
    ("config", "ageing"),
    [
        ({"PriorityType": "priority/basic", "PriorityWeightAge": "5"}, None),
        ({}, None),
        (
            {
                "PriorityType": "priority/multifactor",
                "PriorityWeightAge": "1000",
                "PriorityMaxAge": "7-00:00:00",
                "AccountingStorageType": "accounting_storage/slurmdbd",
            },
            Ageing(1000.0, 7 * DAY),
        ),
        # without slurmdbd no job's priority grows: tried with 22.05
        ({**MULTIFACTOR, "PriorityWeightAge": "1000", "PriorityMaxAge": "1-00:00:00"}, Ageing(0.0, DAY)),
    ],
)
def test_the_configuration_says_what_age_adds(config: dict[str, str], ageing: Ageing | None) -> None:
    assert Ageing.of(config) == ageing


def test_it_is_what_a_waiting_job_has_without_its_age() -> None:
    found = first(waits(1, 5100, age=DAY), waits(2, 9000, age=30 * DAY, user="bob", queue="cpu,gpu"))
    assert found == {
        "ann\ncpu\nchem\nnormal": 5000.0,
        "ann\ncpu": 5000.0,
        "bob\ncpu\nchem\nnormal": 8000.0,
        "bob\ncpu": 8000.0,
    }


def test_the_newest_job_counts_and_held_or_requeued_ones_do_not() -> None:
    jobs = (
        waits(1, 4000, age=100.0),
        waits(2, 5000, age=10.0),
        waits(3, 6000, reason="JobHeldUser"),
        replace(waits(4, 7000), restarts=1),
        waits(5, 0),
    )
    assert round(first(*jobs)["ann\ncpu"]) == 5000


def test_what_the_advisor_has_added_to_a_small_job_is_taken_off() -> None:
    settings = make_settings(size={"enabled": True})
    advice = ask(make_job(), make_estimates(wait=0.0), settings=settings)
    small = replace(waits(1, 6000), admin_comment=admin_comment(structs.replace(advice, size="small")))
    assert first(small, offset=1000)["ann\ncpu"] == 5000.0


def test_it_is_kept_for_a_day_and_forgotten_where_each_new_job_is_the_last() -> None:
    book = FirstPriorities()
    book.update([waits(1, 5000)], AGEING, 0, NOW)
    assert "ann\ncpu" in book.update([waits(2, 7000, user="bob")], AGEING, 0, NOW + DAY)
    assert "ann\ncpu" not in book.update([], AGEING, 0, NOW + DAY + 1.0)
    assert book.update([waits(1, 5000)], None, 0, NOW) == {}
    assert book.update([], AGEING, 0, NOW) == {}


def test_a_user_who_is_not_known_begins_in_the_middle_of_those_who_are() -> None:
    few = [waits(n, 1000 * n, user=f"u{n}") for n in range(1, 5)]
    assert ANYBODY not in first(*few)
    many = [waits(n, 1000 * n, user=f"u{n}") for n in range(1, 10)]
    assert first(*many)[ANYBODY] == 5000.0


def test_of_very_many_users_those_seen_last_are_kept() -> None:
    book = FirstPriorities()
    book.update([waits(1, 5000, user="old")], AGEING, 0, NOW)
    crowd = [waits(n, 5000, user=f"u{n}") for n in range(2600)]
    found = book.update(crowd, AGEING, 0, NOW + 60.0)
    assert len(found) == 5001
    assert "old\ncpu" not in found
