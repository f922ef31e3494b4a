"""Finished jobs, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields, replace
from sqlalchemy import event
from sqlalchemy.engine import Engine

from advisor.history.store import Attempt, HistoryStore
from advisor.model.errors import BadInput
from advisor.model.job import Job, JobOutcome, JobState

Make = Callable[..., JobOutcome]

FULL = JobOutcome(
    job=Job(
        job_id=2**40,
        submit_time=1000.25,
        processors=8,
        user="ann",
        group="physics",
        queue="long",
        requested_time=3600.0,
        nodes=2,
        memory_mb=4096,
        name='it\'s "quoted" | {}; DROP TABLE job; --\n\x1b[31m',
        account="acc",
        qos="high",
        comment="no-burst \u00e9\U0001f680",
        features=("gpu", "a,b"),
        requeue=False,
        array_tasks=7,
        array_job_id=2**39,
        licenses="matlab:1",
        reservation="maint",
        dependency="afterok:1",
        interactive=True,
        explicit_partition=True,
        heterogeneous=True,
        **{field.name: "given" for field in fields(Job) if field.name in ("gres", "node_list")},
    ),
    start_time=2000.5,
    end_time=3000.75,
    state=JobState.TIMEOUT,
    processors_used=16,
    memory_held_mb=32_000,
    gpus_held=2,
    restarts=2,
    partition="burst",
    nodes="burst[1-2]",
    advice_id="a-1",
)


# what only the decision at a submission looks at: the history does not keep it
NOT_KEPT = {
    "memory_mb_per_node",
    "explicit_time_limit",
    "interruptions",
    "plain_constraint",
    "deferred",
    "burst_buffer",
    "whole_nodes",
    "node_processors",
    "tmp_disk",
    "array_at_once",
    "layout",
    "task_processors",
    "prefer",
    "whole_cores",
    "most_nodes",
}


def test_the_full_record_uses_every_field() -> None:
    kept = [field for field in fields(Job) if field.name not in NOT_KEPT]
    defaults = [field for field in kept if getattr(FULL.job, field.name) == field.default]
    assert defaults == [], "give FULL a value there, so that the round trip below covers it"


def test_every_field_comes_back(store: HistoryStore) -> None:
    store.add([FULL])
    assert list(store.outcomes()) == [FULL]
    assert store.recent(5) == [FULL]
    assert store.of_job(2**40) == FULL
    assert store.of_job(3) is None


def test_unknowns_come_back_as_unknowns(store: HistoryStore) -> None:
    bare = JobOutcome(job=Job(job_id=1, submit_time=0.0, processors=1), start_time=0.0, end_time=0.0)
    store.add([bare])
    assert list(store.outcomes()) == [bare]


def test_adding_again_adds_nothing(store: HistoryStore, make_outcome: Make) -> None:
    jobs = [make_outcome(i, submit=float(i)) for i in range(2500)]
    assert store.add(iter(jobs), source="a") == 2500
    assert store.add(jobs, source="a") == 0
    assert store.add([*jobs[:3], make_outcome(9999)], source="a") == 1
    assert store.add(jobs[:5], source="b") == 5
    assert store.count() == 2506


def test_twice_in_one_batch_counts_once(store: HistoryStore, make_outcome: Make) -> None:
    first, last = make_outcome(run=5.0), make_outcome(run=50.0)
    assert store.add([first, last, first]) == 1
    assert list(store.outcomes()) == [last]


def test_an_id_may_come_again_after_years(store: HistoryStore, make_outcome: Make) -> None:
    assert store.add([make_outcome(7, submit=1e9), make_outcome(7, submit=1.5e9)]) == 2
    found = store.of_job(7)
    assert found is not None
    assert found.job.submit_time == 1.5e9


def test_a_later_end_of_the_same_job_replaces_the_earlier(store: HistoryStore, make_outcome: Make) -> None:
    failed = make_outcome(run=5.0, state=JobState.NODE_FAIL, advice_id="a-9")
    done = make_outcome(wait=200.0, run=50.0, restarts=1)
    assert store.add([failed]) == 1
    assert store.add([done]) == 0
    assert store.add([failed]) == 0
    (kept,) = store.outcomes()
    assert kept == replace(done, advice_id="a-9")


def test_a_period_begins_with_its_first_second_and_is_in_order_of_the_end(
    store: HistoryStore, make_outcome: Make
) -> None:
    store.add([make_outcome(i, submit=0.0, wait=0.0, run=float(100 - i)) for i in range(1, 100)])
    found = [outcome.end_time for outcome in store.outcomes(since=10.0)]
    assert found == [float(end) for end in range(10, 100)]
    assert [outcome.end_time for outcome in store.recent(3)] == [97.0, 98.0, 99.0]


def test_reading_goes_page_by_page(
    store: HistoryStore, make_outcome: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.history._jobs._PAGE_JOBS", 7)
    # many equal ends: the place is kept by end and position
    store.add([make_outcome(i, submit=float(i % 3), wait=0.0, run=0.0) for i in range(50)])
    assert sorted(outcome.job.job_id for outcome in store.outcomes()) == list(range(50))
    assert len(store.table()) == 50
    assert [outcome.job.job_id for _, outcome in store.added_after(0)] == list(range(50))


def test_a_reader_may_write_meanwhile(store: HistoryStore, make_outcome: Make) -> None:
    store.add([make_outcome(i) for i in range(20)])
    for number, _ in enumerate(store.outcomes()):
        store.set_cursor("learner", str(number))
    assert store.cursor("learner") == "19"


def test_what_was_added_after_a_position(store: HistoryStore, make_outcome: Make) -> None:
    store.add([make_outcome(1, submit=500.0)], source="a")
    ((position, _),) = store.added_after(0)
    store.add([make_outcome(2, submit=1.0), make_outcome(3, submit=2.0)], source="b")
    assert [outcome.job.job_id for _, outcome in store.added_after(position)] == [2, 3]
    assert list(store.added_after(position, source="a")) == []


def test_what_is_new_is_found_without_sorting_the_whole_history(tmp_path: Path, make_outcome: Make) -> None:
    """SQLite took the index of the source: of two million jobs, 5 s for the last 10,000."""
    asked: list[tuple[str, Any]] = []
    path = tmp_path / "history.db"

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    with HistoryStore(f"sqlite:///{path}") as store:
        store.add([make_outcome(number, restarts=1) for number in range(1, 4)])
        event.listen(Engine, "before_cursor_execute", note)
        try:
            assert [position for position, _ in store.added_after(2, source="slurm")] == [3]
            assert len(store.recent(2, source="slurm")) == 2
        finally:
            event.remove(Engine, "before_cursor_execute", note)
    with closing(sqlite3.connect(path)) as connection:
        queries = [one for one in asked if one[0].startswith("SELECT job")]
        plans = [
            connection.execute(f"EXPLAIN QUERY PLAN {query}", given).fetchall() for query, given in queries
        ]
    assert len(plans) == 4  # each with the earlier runs of the jobs that it has found
    slow = ("TEMP B-TREE", "job_once", "SCAN job_attempt")
    assert not [step for plan in plans for *_, step in plan if any(words in step for words in slow)]


def test_a_run_cut_short_comes_to_learners_again_with_its_end(
    store: HistoryStore, make_outcome: Make
) -> None:
    """Whoever keeps his place by position would keep the first half of a run for ever."""
    failed = make_outcome(1, run=5.0, state=JobState.NODE_FAIL)
    done = make_outcome(1, wait=200.0, run=50.0, restarts=1)
    store.add([failed, make_outcome(2)])
    *_, (position, _) = store.added_after(0)
    for _ in range(2):  # the overlap
        store.add([done, make_outcome(2)])
        store.add([failed])
    ((last, outcome),) = store.added_after(position)
    assert (outcome.run_seconds, last) == (50.0, store.last_position())
    assert store.count() == 2
    store.add([make_outcome(1, wait=200.0, run=60.0, restarts=1), make_outcome(3)])
    assert [found.job.job_id for _, found in store.added_after(last)] == [3], "a whole run is told once"


def test_the_first_start_of_a_requeued_job_is_known_by_its_runs(
    store: HistoryStore, make_outcome: Make
) -> None:
    """Of the queue it ended in: while it was in the cloud its place was kept, and that is waiting, too."""

    def run(job_id: int, submit: float, start: float | None, end: float, partition: str | None) -> Attempt:
        return Attempt(
            job_id=job_id,
            submit_time=submit,
            start_time=start,
            end_time=end,
            first_submit_time=1000.0,
            partition=partition,
        )

    store.add_attempts(
        [
            run(1, 1000.0, 1010.0, 1100.0, "onprem"),
            run(2, 1000.0, 1010.0, 1100.0, "burst"),
            run(3, 1000.0, 1010.0, 1100.0, None),
        ]
    )
    store.add(
        make_outcome(number, wait=300.0, restarts=restarts, partition="onprem", **more)
        for number, restarts, more in (
            (1, 1, {}),
            (2, 1, {}),
            (3, 1, {}),
            (4, 1, {}),
            (5, 0, {"state": JobState.PREEMPTED}),
        )
    )
    waits = [10.0, 300.0, None, None, 300.0]
    assert [outcome.first_wait_seconds for outcome in store.outcomes()] == waits
    assert [outcome.first_wait_seconds for outcome in store.recent(5)] == waits
    assert [outcome.first_wait_seconds for _, outcome in store.added_after(0)] == waits
    table = store.table()
    assert [None if np.isnan(wait) else wait for wait in table.first_wait] == waits
    assert table.wait.tolist() == [300.0] * 5
    assert np.isnan(table.whole_run).tolist() == [False] * 4 + [True]


def test_when_the_newest_jobs_begin_to_end(store: HistoryStore, make_outcome: Make) -> None:
    store.add([make_outcome(number, submit=100.0 * number) for number in (3, 1, 2)])
    ends = [outcome.end_time for outcome in store.outcomes()]
    assert [store.end_of_newest(count) for count in (1, 2, 3, 4)] == [*ends[::-1], -math.inf]


def test_columns_of_the_history(store: HistoryStore, make_outcome: Make) -> None:
    store.add(
        [
            make_outcome(2, submit=1e9 + 60.5, wait=5.0, run=7.0, user="bob", requested_time=60.0),
            make_outcome(1, submit=1e9 + 0.5, wait=90.0, run=20.0, user="ann", state=JobState.CANCELLED),
            make_outcome(3, submit=1e9 + 99.0, user=None, queue="q", state=JobState.OUT_OF_MEMORY),
            make_outcome(4, submit=1e9 + 99.0, user="bob", state=JobState.UNKNOWN),
        ]
    )
    table = store.table(utc_offset_seconds=3600.0, total_processors=64)
    assert table.job_id.tolist() == [1, 2, 3, 4]
    assert table.submit.tolist() == [0.5, 60.5, 99.0, 99.0]
    assert table.wait.tolist()[:2] == [90.0, 5.0]
    assert table.run.tolist()[:2] == [20.0, 7.0]
    assert table.status.tolist() == [5, 1, 0, -1]
    assert table.user[1] == table.user[3] != table.user[0]
    assert table.user[2] == -1
    assert table.executable.tolist() == [-1] * 4
    assert np.isnan(table.requested_time).tolist() == [True, False, True, True]
    assert (table.start_of_log, table.utc_offset_seconds, table.total_processors) == (1e9, 3600.0, 64)


def test_columns_of_what_run_times_are_learned_by(store: HistoryStore, make_outcome: Make) -> None:
    """Accounts beside groups, and names without their counters beside names."""
    names = ["run_017", "run_018", "17", "18", None]
    store.add([make_outcome(job_id, name=name, account="acc") for job_id, name in enumerate(names)])
    table = store.table()
    assert table.names["account"] == ("acc",)
    assert table.account.tolist() == [0] * 5
    assert len(set(table.executable.tolist())) == 5
    assert [*table.names["application"]] == ["run_#", "17", "18"]
    assert table.application.tolist() == [0, 0, 1, 2, -1]


def test_columns_of_what_jobs_held(store: HistoryStore, make_outcome: Make) -> None:
    """An earlier release kept no more than what jobs asked for."""
    asked = make_outcome(1, processors=4, memory_mb=900)
    store.add([asked, replace(asked, job=replace(asked.job, job_id=2), processors_used=6, gpus_held=1)])
    store.add([replace(asked, job=replace(asked.job, job_id=3), memory_held_mb=1000)])
    assert store.table().held.tolist() == [[4, 900, 0], [6, 900, 1], [4, 1000, 0]]


def test_an_empty_history_has_empty_columns(store: HistoryStore) -> None:
    assert len(store.table()) == 0
    assert store.recent(10) == list(store.outcomes()) == list(store.added_after(0)) == []


def test_the_cursor_is_stored_with_the_last_jobs(store: HistoryStore, make_outcome: Make) -> None:
    assert store.cursor("s") is None
    store.add([make_outcome(1)], source="s", cursor="one")
    assert store.cursor("s") == "one"
    store.add([], source="s", cursor="two")
    assert store.cursor("s") == "two"

    def breaks() -> Iterator[JobOutcome]:
        yield make_outcome(2)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        store.add(breaks(), source="s", cursor="three")
    assert store.cursor("s") == "two"


def test_whole_batches_stay_when_a_source_breaks(store: HistoryStore, make_outcome: Make) -> None:
    def breaks() -> Iterator[JobOutcome]:
        yield from (make_outcome(i) for i in range(2500))
        raise ConnectionError

    with pytest.raises(ConnectionError):
        store.add(breaks())
    assert store.count() == 1000
    assert store.add([make_outcome(i) for i in range(2500)]) == 1500


@pytest.mark.parametrize("bad", [{"submit": math.nan}, {"wait": math.inf}, {"job_id": 2**63}])
def test_what_no_database_can_hold_is_refused(store: HistoryStore, make_outcome: Make, bad: dict) -> None:
    refused = make_outcome(**bad)
    with pytest.raises(BadInput) as caught:
        store.add([make_outcome(1), refused])
    assert caught.value.where.endswith(f", job {refused.job.job_id}")
    assert store.count() == 0


def test_hostile_text_is_cut_and_cleaned(store: HistoryStore, make_outcome: Make) -> None:
    store.add([make_outcome(name="a\0b\ud800c", comment="x" * 100_000)])
    (kept,) = store.outcomes()
    assert kept.job.name == "ab?c"
    assert kept.job.comment == "x" * 4096


@given(text=st.text(max_size=50))
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_is_stored(store: HistoryStore, make_outcome: Make, text: str) -> None:
    store.add([make_outcome(5, submit=5.0, name=text)], source=f"{store.count()}")
    (kept,) = [outcome for _, outcome in store.added_after(store.count() - 1)][-1:]
    assert kept.job.name == text.replace("\0", "")


def test_costs_are_noted(store: HistoryStore, make_outcome: Make) -> None:
    store.add([make_outcome(1)])
    assert store.set_costs({1: 0.25}) == 1
    assert store.set_costs({2: 0.25}) == 0
    assert store.set_costs({1: 0.25}, source="other") == 0
    assert store.set_costs({1: 0.5, 2: 0.5}) == 1


def test_attempts_are_remembered_once(store: HistoryStore) -> None:
    one = Attempt(
        job_id=1, submit_time=10.0, start_time=12.0, end_time=20.0, first_submit_time=10.0,
        partition="burst", nodes="burst[1-2]",
    )  # fmt: skip
    two = Attempt(job_id=1, submit_time=20.0, end_time=30.0, first_submit_time=10.0, restarts=1)
    store.add_attempts([one, two])
    store.add_attempts([one])
    assert store.attempts([1, 5]) == [one, two]
    assert store.attempts([1], source="other") == []


def test_runs_that_come_in_the_wrong_order_are_joined(store: HistoryStore, make_outcome: Make) -> None:
    store.add([make_outcome(1, submit=20.0, wait=5.0, run=50.0)])
    store.add_attempts(
        [Attempt(job_id=1, submit_time=10.0, start_time=12.0, end_time=20.0, first_submit_time=10.0)]
    )
    (kept,) = store.outcomes()
    assert (kept.job.submit_time, kept.start_time, kept.restarts) == (10.0, 25.0, 1)


def test_threads_share_a_store(store: HistoryStore, make_outcome: Make) -> None:
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for job in range(20):
                store.add([make_outcome(job)], source=f"thread {number}")
                list(store.outcomes())
        except BaseException as error:  # noqa: BLE001 - looked at below
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert store.count() == 80
