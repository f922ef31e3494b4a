"""Advice that an esub asked for, and the job that it was for."""

from __future__ import annotations

from typing import Any

from advisor.history.records import AdviceRecord
from advisor.lsf.joining import joined, token_of
from advisor.lsf.live_job import LiveJob
from advisor.model.advice import Advice, Mode, Placement
from advisor.model.job import Job

BURST = frozenset({"aws"})
NOW = 1_800_000_000


def record(advice_id: str, **changes: Any) -> AdviceRecord:
    moves = changes.pop("moves", False)
    said = {"time": NOW - 0.3, "mode": Mode.ACT, "partition": "aws" if moves else None} | {
        name: changes.pop(name) for name in ("time", "mode") if name in changes
    }
    placement = Placement.BURST if moves else Placement.ON_PREMISE
    job = {"job_id": 0, "submit_time": NOW, "processors": 4, "user": "ann", "name": "flow", "account": "one"}
    return AdviceRecord(
        advice=Advice(advice_id=advice_id, placement=placement, answers=(), capacity=None, **said),
        job=Job(**(job | changes)),
    )


def live(job_id: int, **changes: Any) -> LiveJob:
    usual = {
        "user": "ann",
        "queue": "normal",
        "processors": 4,
        "submit_time": NOW,
        "name": "flow",
        "project": "one",
    }
    return LiveJob(job_id=job_id, **(usual | changes))


def ids(jobs: list[LiveJob], records: list[AdviceRecord]) -> dict[int, str]:
    return {job: one.advice.advice_id for job, one in joined(jobs, records, burst_queues=BURST).items()}


def test_by_the_id_that_the_esub_left() -> None:
    jobs = [live(1, description="Burst Advisor: advice b"), live(2, description="Burst Advisor: advice a")]
    assert ids(jobs, [record("a"), record("b")]) == {1: "b", 2: "a"}
    assert token_of("Burst Advisor: starts in the cloud") == token_of("mine") == ""


def test_what_a_description_claims_is_not_believed() -> None:
    claims = live(1, description="Burst Advisor: advice a")
    assert ids([claims], [record("a", user="bob")]) == {}
    assert ids([claims], [record("a", time=NOW - 90.0)]) == {}
    assert ids([claims], [record("a", job_id=77)]) == {}
    assert ids([live(1, description="Burst Advisor: advice x")], [record("a")]) == {}


def test_by_what_was_submitted_where_the_user_has_a_description() -> None:
    mine = live(1, description="mine")
    assert ids([mine], [record("a", name="other"), record("b", processors=2), record("c", user="bob")]) == {}
    assert ids([mine], [record("a", account="two"), record("b", time=NOW + 9.0)]) == {}
    assert ids([mine], [record("d")]) == {1: "d"}
    assert ids([live(1, name="")], [record("d", name=None, account=None)]) == {1: "d"}


def test_jobs_that_are_alike_get_advice_in_their_order() -> None:
    jobs = [live(3, submit_time=NOW + 1), live(2), live(4, submit_time=NOW + 1)]
    assert ids(jobs, [record("b", time=NOW + 0.5), record("a")]) == {2: "a", 3: "b"}


def test_the_elements_of_an_array_share_one() -> None:
    elements = [live(5, array_index=n, name=f"flow[{n}]") for n in (1, 2)]
    assert ids(elements, [record("a"), record("b")]) == {5: "a"}


def test_an_advice_that_moves_is_not_joined_to_a_job_that_was_left_alone() -> None:
    assert ids([live(1)], [record("a", moves=True)]) == {}
    assert ids([live(1, queue="aws")], [record("a", moves=True)]) == {1: "a"}
    assert ids([live(1)], [record("a", moves=True, mode=Mode.SHADOW)]) == {1: "a"}
