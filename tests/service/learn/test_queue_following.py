"""From looks to events: what happened to each job, however little of it was seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.model import (
    Advice,
    Answer,
    Job,
    JobOutcome,
    JobState,
    JobTable,
    Mode,
    Placement,
    Question,
    Verdict,
)
from advisor.model.advice import Hedge, HedgeKind
from advisor.model.errors import UseFallback
from advisor.model.job import PLACEHOLDER_COMMENT
from advisor.model.settings import Settings
from advisor.predict.forecast.placement_features import EventKind, PlacementFeatures
from advisor.predict.forecast.placement_replay import retrace
from advisor.predict.forecast.queue_events import KEY, KIND, TIME, apply_event
from advisor.predict.forecast.rolling import TARGETS
from advisor.predict.forecast.submission_features import FEATURES, Codes
from advisor.service.exchange import queue_stream
from advisor.service.learn.queue_following import MAX_TASKS, QueueStream
from tests.service.doubles import make_look, make_queued

NOW = 1_800_000_000.0
BOUNDS = dict.fromkeys(TARGETS, (0.05, 0.95))


@pytest.fixture
def stream() -> QueueStream:
    return QueueStream(Settings(), Codes(), NOW)


def look(stream: QueueStream, time: float, *jobs) -> None:
    stream.look(make_look(NOW + time, jobs=jobs), 64)


def happened(stream: QueueStream, index: int = 0) -> list[tuple[str, int, float]]:
    rows, _ = stream.since(index)
    return [(EventKind(int(row[KIND])).name, int(row[KEY]), float(row[TIME])) for row in rows]


def waits(job_id: int, submit: float, **more):
    return make_queued(job_id, submit_time=NOW + submit, **more)


def runs(job_id: int, submit: float, start: float, **more):
    return make_queued(job_id, "RUNNING", submit_time=NOW + submit, start_time=NOW + start, **more)


def ended(job_id: int, submit: float, start: float, end: float, partition: str = "onprem") -> JobOutcome:
    job = Job(job_id=job_id, submit_time=NOW + submit, processors=2, queue=partition)
    return JobOutcome(job=job, start_time=NOW + start, end_time=NOW + end, partition=partition)


def test_a_life_seen_from_beginning_to_end(stream: QueueStream) -> None:
    look(stream, 10, waits(7, 5))
    look(stream, 20, runs(7, 5, 15))
    look(stream, 30)
    stream.ended([ended(7, 5, 15, 28)])
    look(stream, 40)
    assert happened(stream) == [("SUBMIT", 7, 5), ("START", 7, 15), ("LEAVE", 7, 30), ("END", 7, 28)]


def test_a_life_between_two_looks(stream: QueueStream) -> None:
    look(stream, 10)
    stream.ended([ended(8, 12, 12, 14), ended(7, 11, 13, 15)])
    look(stream, 20)
    assert happened(stream) == [
        ("SUBMIT", 7, 11),
        ("SUBMIT", 8, 12),
        ("START_AT_ONCE", 8, 12),
        ("START", 7, 13),
        ("END", 8, 14),
        ("END", 7, 15),
    ]


def test_a_job_slurm_still_shows_after_its_end_is_not_a_new_one(stream: QueueStream) -> None:
    look(stream, 10, runs(7, 5, 6))
    stream.ended([ended(7, 5, 6, 12)])
    look(stream, 15, runs(7, 5, 6))  # completing
    look(stream, 20)
    assert [name for name, *_ in happened(stream)] == ["SUBMIT", "START", "END"]


def test_requeued_and_started_again(stream: QueueStream) -> None:
    look(stream, 10, runs(7, 5, 6))
    look(stream, 20, waits(7, 5))
    look(stream, 30, runs(7, 5, 25))
    look(stream, 40, runs(7, 5, 35))  # requeued and started between two looks
    assert happened(stream)[2:] == [
        ("REQUEUE", 7, 20),
        ("START_AGAIN", 7, 25),
        ("REQUEUE", 7, 35),
        ("START_AGAIN", 7, 35),
    ]


def test_a_job_that_left_and_never_ended_is_forgotten(stream: QueueStream) -> None:
    look(stream, 10, waits(7, 5))
    look(stream, 20)
    look(stream, 3000)
    assert happened(stream)[-1] == ("LEAVE", 7, 20)
    look(stream, 3700)
    assert happened(stream)[-1] == ("WITHDRAW", 7, 3700)


def test_tasks_of_an_array_leave_as_they_start(stream: QueueStream) -> None:
    look(stream, 10, waits(7, 5, array_tasks=3))
    assert len(happened(stream)) == 3
    look(stream, 20, waits(7, 5, array_tasks=2), runs(8, 5, 15, array_job_id=7))
    names = [name for name, *_ in happened(stream)[3:]]
    assert sorted(names) == ["LEAVE", "START", "SUBMIT"]
    look(stream, 30, waits(9, 25, array_tasks=10 * MAX_TASKS))
    assert len(stream.cut().live) == MAX_TASKS


def test_the_cloud_and_other_partitions_are_not_the_queue(stream: QueueStream) -> None:
    stream.ended([ended(9, 1, 2, 3, partition="burst")])
    look(stream, 10, waits(7, 5, queue="burst"), runs(8, 5, 6, queue="gpu"))
    assert happened(stream) == []


def test_a_new_base_begins_where_it_was_cut(stream: QueueStream) -> None:
    look(stream, 10, waits(7, 5, user="ann"), runs(6, 1, 2, user="bob"))
    look(stream, 20, waits(7, 5, user="ann"))
    cut, known = stream.cut(), stream.codes.copy()
    look(stream, 30, waits(7, 5, user="ann"), waits(9, 25, user="cyd"))
    used = {column: frozenset([0]) for column in ("user", "group", "queue", "executable")}
    following = stream.rebase("second", cut, known.only(used), known)
    assert set(cut.live) == {7}
    assert set(cut.gone) == {6}
    assert happened(stream, following) == [("LEAVE", 6, 20), ("SUBMIT", 9, 25)]
    content = stream.file(BOUNDS)
    assert content is not None
    assert content.names == [("user", "cyd", 2)], "a number is given once"
    assert stream.codes.look_up("user", "cyd") == 2
    assert stream.codes.look_up("user", "bob") == 0
    assert stream.codes.look_up("user", "ann") == 3, "out of the base: a new number when it comes again"


def test_the_file_comes_back_as_it_was(stream: QueueStream, tmp_path: Path) -> None:
    assert stream.file(BOUNDS) is None
    stream.rebase("first", stream.cut(), Codes(), Codes())
    look(stream, 10, waits(7, 5, user="ann", requested_time=60.0))
    content = stream.file(BOUNDS)
    assert content is not None
    queue_stream.write(tmp_path, content)
    found = queue_stream.read(tmp_path)
    assert found == content
    np.testing.assert_array_equal(found.rows, stream.since(0)[0])
    assert [each.name for each in tmp_path.iterdir()] == [queue_stream.FILE_NAME]


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\x93\x01\x02\x03"])
def test_a_damaged_file_is_no_stream(tmp_path: Path, damage: bytes) -> None:
    with pytest.raises(UseFallback) as caught:
        queue_stream.read(tmp_path)
    assert caught.value.code == "queue.missing"
    (tmp_path / queue_stream.FILE_NAME).write_bytes(damage)
    with pytest.raises(UseFallback) as caught:
        queue_stream.read(tmp_path)
    assert caught.value.code == "queue.unreadable"


def test_a_run_cut_short_is_no_end_and_the_next_start_no_wait(stream: QueueStream) -> None:
    """Its node failed; Slurm has put it back into the queue. Accounting tells before a look, or after one."""
    failed = replace(ended(7, 5, 15, 28), state=JobState.NODE_FAIL)
    look(stream, 20, runs(7, 5, 15))
    stream.ended([failed])
    look(stream, 30, waits(7, 28, restarts=1))
    assert happened(stream) == [("SUBMIT", 7, 5), ("START", 7, 15), ("CUT_SHORT", 7, 28), ("SUBMIT", 7, 28)]
    look(stream, 40, runs(7, 28, 35, restarts=1))
    stream.ended([replace(ended(7, 5, 35, 90), restarts=1)])
    look(stream, 100)
    assert happened(stream)[4:] == [("START_AGAIN", 7, 35), ("END", 7, 90)]


def test_a_run_cut_short_that_was_seen_to_be_requeued_is_told_once(stream: QueueStream) -> None:
    failed = replace(ended(7, 5, 15, 28), state=JobState.PREEMPTED)
    look(stream, 20, runs(7, 5, 15))
    look(stream, 30, waits(7, 28, restarts=1))
    cut = stream.cut()
    assert cut.started_before == {7}
    stream.ended([failed])
    look(stream, 40, runs(7, 28, 35, restarts=1))
    names = [name for name, *_ in happened(stream)]
    assert names == ["SUBMIT", "START", "REQUEUE", "START_AGAIN"]


def test_a_run_cut_short_that_nobody_saw_teaches_its_wait(stream: QueueStream) -> None:
    look(stream, 10)
    stream.ended([replace(ended(7, 12, 13, 15), state=JobState.NODE_FAIL)])
    look(stream, 20)
    assert happened(stream) == [("SUBMIT", 7, 12), ("START", 7, 13), ("CUT_SHORT", 7, 15)]


def hedged(job_id: int, submit: float, state: str = "RUNNING", **more):
    """A job that started in the cloud and keeps its place in the queue here."""
    advice = Advice(
        advice_id="a-1",
        time=NOW + submit,
        placement=Placement.BURST,
        partition="burst",
        capacity=None,
        mode=Mode.ACT,
        answers=(Answer(question=Question.FASTER, verdict=Verdict.YES, reason=Reason.HEDGED),),
        hedge=Hedge(kind=HedgeKind.HEDGE, stop_seconds=600.0),
    )
    given = {"start_time": NOW + submit + 1, "queue": "burst", "admin_comment": admin_comment(advice)} | more
    return make_queued(job_id, state, submit_time=NOW + submit, user="mia", **given)


def place(job_id: int, other: int, submit: float, state: str = "PENDING", **more):
    return make_queued(
        job_id,
        state,
        submit_time=NOW + submit,
        user="mia",
        name=f"place-of-{other}",
        comment=PLACEHOLDER_COMMENT,
        **more,
    )


@pytest.mark.parametrize("turn_is_seen", [False, True])
def test_who_comes_back_has_waited_since_he_was_submitted(stream: QueueStream, *, turn_is_seen: bool) -> None:
    """Features at once are those of the next base, which knows by accounting what the job has waited."""
    mine = {"queue": "onprem", "requested_time": 600.0}
    look(stream, 10, hedged(7, 5, requested_time=600.0), place(8, 7, 6, requested_time=600.0))
    if turn_is_seen:
        turn = place(8, 7, 6, "RUNNING", start_time=NOW + 95, requested_time=600.0)
        look(stream, 96, hedged(7, 5, requested_time=600.0), turn)
    back = hedged(7, 98, restarts=1, start_time=NOW + 100, **mine)
    look(stream, 105, back)
    assert stream.restarted == {7}, "nobody asked how long it would wait from then on"
    cut = stream.cut()
    job = replace(ended(7, 5, 100, 400).job, user="mia", **mine)
    outcome = replace(ended(7, 5, 100, 400), job=job, restarts=1, first_start_time=NOW + 100)
    stream.ended([outcome])
    look(stream, 405)
    observer = PlacementFeatures(64)
    for row in stream.since(0)[0]:
        apply_event(observer, row)
    table = JobTable(
        job_id=np.array([7]), submit=np.array([5.0]), wait=np.array([95.0]), run=np.array([300.0]),
        processors=np.array([2]), requested_time=np.array([600.0]), status=np.array([1]), total_processors=64,
        **{column: np.zeros(1, np.int64) for column in ("user", "group", "queue")},
    )  # fmt: skip
    asked = stream.codes.submission(replace(job, submit_time=NOW + 500), 500.0)
    found, base = (
        dict(zip(FEATURES, each.features(asked).tolist(), strict=True))
        for each in (observer, retrace(table, [7]))
    )
    differ = {name for name in FEATURES if name not in {"group", "executable"} and found[name] != base[name]}
    if turn_is_seen:  # by the placeholder's start: a second later than the job, to the same slot
        assert found["user_wait_1"] == 89.0
        differ -= {name for name in FEATURES if "_wait_" in name}
    assert differ == set()
    assert cut.live[7].submission.time == 5.0
    assert (7 in cut.started_before) == turn_is_seen


def test_who_comes_back_without_a_place_has_waited_nobody_knows_how_long(stream: QueueStream) -> None:
    look(stream, 10, hedged(7, 5, admin_comment=""), hedged(9, 6))
    look(stream, 20, waits(7, 18, restarts=1), hedged(9, 18, "PENDING", queue="onprem", restarts=1))
    look(stream, 30, runs(7, 18, 25, restarts=1), hedged(9, 18, queue="onprem", restarts=1))
    stream.ended([replace(ended(9, 6, 19, 26), restarts=1, state=JobState.NODE_FAIL)])
    look(stream, 40, waits(9, 26, restarts=2), runs(7, 18, 25, restarts=1))
    look(stream, 50, runs(9, 26, 45, restarts=2), runs(7, 18, 25, restarts=1))
    assert happened(stream) == [
        ("SUBMIT", 9, 6),
        ("SUBMIT", 7, 18),
        ("START", 9, 19),
        ("START_AGAIN", 7, 25),
        ("CUT_SHORT", 9, 26),
        ("SUBMIT", 9, 26),
        ("START_AGAIN", 9, 45),
    ]


def test_of_a_placeholder_that_has_gone_nobody_will_hear(stream: QueueStream) -> None:
    look(stream, 10, hedged(7, 5), place(8, 7, 6))
    look(stream, 20)
    assert happened(stream) == [("SUBMIT", 8, 6), ("WITHDRAW", 8, 20)]
    assert not stream.cut().gone


def test_who_comes_back_from_the_cloud_is_told_from_new_jobs(stream: QueueStream) -> None:
    look(stream, 10, runs(1, 0, 5), runs(2, 0, 5, queue="burst"))
    assert stream.restarted == frozenset()
    look(stream, 20, waits(1, 18, restarts=1), waits(2, 18, restarts=1), waits(3, 19))
    assert stream.restarted == {2}, "the first was requeued here: its own events say so"
    stream.ended([replace(ended(4, 0, 30, 35), restarts=1)])
    look(stream, 40, runs(2, 18, 21, restarts=1))
    assert stream.restarted == {2, 4}, "also of one that no look has shown"
    stream.ended([ended(2, 0, 21, 50)])
    look(stream, 60)
    for name in ("base", "next"):
        stream.rebase(name, stream.cut(), stream.codes.copy(), stream.codes.copy())
    assert stream.restarted == frozenset(), "not remembered for ever"
