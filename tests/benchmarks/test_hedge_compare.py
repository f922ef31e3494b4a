"""What the hedge benchmark makes of its runs, on runs made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.hedge import stream
from benchmarks.hedge_compare import (
    Arrival,
    Ran,
    Record,
    before_the_place,
    by_chance,
    compared,
    integrity,
    requeued_as_they_ended,
)

JOBS = [
    Arrival(at=float(n), cores=4, run_seconds=2.0, limit_minutes=1, stop_seconds=12.0 if n == 0 else None)
    for n in range(3)
]


def here(job_id: int, start: float) -> Ran:
    """A job that ran on-premise."""
    return Ran(
        job_id=job_id,
        begun=[("onprem", start)],
        ended=[("onprem", start + 2.0)],
        state="COMPLETED",
        start=start,
    )


def back(start: float, *, cloud_end: float | None = None, requeued: float = 5.0) -> Ran:
    """Job 1 in a run with places: hedged, and brought back; its placeholder is job 4."""
    ended = [] if cloud_end is None else [("burst", cloud_end)]
    return Ran(
        job_id=1, is_hedged=True,
        begun=[("burst", 0.0), ("onprem", start)], ended=[*ended, ("onprem", start + 2)],
        state="COMPLETED", restarts=1, start=start, place_start=start - 1.0, place_id=4, place_seconds=0.2,
        requeued=requeued,
    )  # fmt: skip


def run_of(*ran: Ran) -> Record:
    return Record(ran=ran, counts={}, kills=0, places_left=0)


WAITED = run_of(here(1, 10.0), here(2, 12.0), here(3, 14.0))


@pytest.mark.parametrize(
    ("second", "passed", "late"),
    [(14.0, 1, 1), (19.0, 0, 0)],
    ids=["one that came in between has started before the placeholder", "it still waits"],
)
def test_who_came_in_between_and_had_the_slot_is_counted(second: float, passed: int, late: int) -> None:
    kept = run_of(back(17.0), here(2, second), here(5, 12.0))  # job 5 came after the placeholder
    found = before_the_place([WAITED], [kept])
    assert found["jobs_in_between"] == {"mean": 1.0, "most": 1, "share_with_none": 0.0}
    assert found["brought_back_passed_by_them"] == passed
    assert found["of_these_later_than_5_s"] == late
    assert found["seconds"]["mean"] == 0.2


def test_nobody_hedged_is_nothing_to_say() -> None:
    found = before_the_place([WAITED], [WAITED])
    assert (found["jobs_in_between"], found["brought_back_passed_by_them"]) == ({}, 0)
    assert compared(JOBS, [WAITED], [WAITED])["hedged"] == 0


def test_chance_is_what_differs_between_runs_in_which_all_wait() -> None:
    other = run_of(here(1, 13.0), here(2, 12.0), here(3, 14.0))
    found = by_chance([WAITED, other], [run_of(back(11.0), here(2, 12.0), here(3, 14.0)), other])
    # only job 1 came back, and only in the first pair
    assert found["the_same_jobs_later_seconds"]["jobs"] == 1
    assert found["the_same_jobs_later_seconds"]["mean"] == 3.0
    assert found["all_jobs_later_seconds"]["jobs"] == 3


@pytest.mark.parametrize(
    ("cloud_end", "requeued", "twice", "as_it_ended"),
    [(None, 5.0, 0, 0), (5.2, 5.0, 0, 1), (5.2, 20.0, 1, 0)],
    ids=[
        "once",
        "its end and its requeue were one moment, and then it waited",
        "it was done, and done again",
    ],
)
def test_a_job_done_twice_is_told_from_one_requeued_as_it_ended(
    *, cloud_end: float | None, requeued: float, twice: int, as_it_ended: int
) -> None:
    kept = run_of(back(60.0, cloud_end=cloud_end, requeued=requeued))
    assert integrity([kept])["ended_twice"] == twice
    assert requeued_as_they_ended([kept]) == as_it_ended


def test_a_stretched_stream_is_the_same_in_slow_motion() -> None:
    plain, slow = stream(20, 10, 60.0, 1), stream(20, 10, 60.0, 1, 2.5)
    for one, other in zip(plain, slow, strict=True):
        expected = replace(
            one,
            at=2.5 * one.at,
            run_seconds=2.5 * one.run_seconds,
            limit_minutes=3 * one.limit_minutes,
            stop_seconds=None if one.stop_seconds is None else 2.5 * one.stop_seconds,
        )
        assert other == expected
