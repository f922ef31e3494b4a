"""From lsb.acct into the history, any number of times."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.history.store import HistoryStore
from advisor.lsf import ingest
from advisor.lsf.ingest import ingest_lsb_acct
from advisor.lsf.lsb_acct import AcctReader
from advisor.model.errors import BadInput
from advisor.model.job import JobState

Write = Callable[..., str]
SUBMIT = 1_700_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HistoryStore]:
    with HistoryStore(f"sqlite:///{tmp_path / 'history.db'}") as opened:
        yield opened


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    folder = tmp_path / "logdir"
    folder.mkdir()
    return folder


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def jobs(write: Write, first: int, count: int) -> list[str]:
    return [write(job_id=first + i, event_time=1_700_003_600 + first + i) for i in range(count)]


def test_a_folder_becomes_history(store: HistoryStore, logdir: Path, write_record: Write) -> None:
    append(logdir / "lsb.acct", *jobs(write_record, 100, 5), "nonsense")
    append(logdir / "lsb.acct.1", *jobs(write_record, 1, 5), '"JOB_RESIZE" "10.1" 1700000000')
    append(logdir / "lsb.acct.1", write_record(job_id=50, start_time=0, status=32, exit_info=14))
    report = ingest_lsb_acct(store, [logdir])
    assert (report.source, report.read, report.added) == ("lsf", 10, 10)
    assert (report.malformed, report.other_records, report.never_started) == (1, 1, 1)
    assert [ended.job.job_id for ended in store.outcomes()] == [*range(1, 6), *range(100, 105)]


def test_again_adds_nothing_and_reads_what_is_new(
    store: HistoryStore, logdir: Path, write_record: Write
) -> None:
    append(logdir / "lsb.acct", *jobs(write_record, 1, 5))
    ingest_lsb_acct(store, [logdir])
    again = ingest_lsb_acct(store, [logdir])
    assert (again.read, again.added) == (0, 0)
    append(logdir / "lsb.acct", *jobs(write_record, 6, 2))
    assert ingest_lsb_acct(store, [logdir]).read == 2
    store.set_cursor("lsf", "not ours")
    forgotten = ingest_lsb_acct(store, [logdir])
    assert (forgotten.read, forgotten.added) == (7, 0)


def test_a_new_file_is_begun_between_two_times(
    store: HistoryStore, logdir: Path, write_record: Write
) -> None:
    acct = logdir / "lsb.acct"
    append(acct, *jobs(write_record, 1, 5))
    ingest_lsb_acct(store, [logdir])
    append(acct, *jobs(write_record, 6, 2))  # and then mbatchd begins a new one
    acct.rename(logdir / "lsb.acct.1")
    append(acct, *jobs(write_record, 8, 3))
    report = ingest_lsb_acct(store, [logdir])
    assert (report.read, report.added) == (5, 5)
    packed = gzip.compress((logdir / "lsb.acct.1").read_bytes())  # an admin saves room
    (logdir / "lsb.acct.1").unlink()
    (logdir / "lsb.acct.2.gz").write_bytes(packed)
    acct.rename(logdir / "lsb.acct.1")
    acct.touch()
    report = ingest_lsb_acct(store, [logdir])
    assert (report.read, report.added, store.count()) == (0, 0, 10)


def test_a_stopped_ingestion_goes_on(
    store: HistoryStore, logdir: Path, write_record: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_BATCH_RUNS", 10)
    append(logdir / "lsb.acct", *jobs(write_record, 1, 35))
    real = AcctReader.__iter__

    def stopped(self: AcctReader) -> Iterator[Any]:
        for number, run in enumerate(real(self)):
            if number == 25:
                raise KeyboardInterrupt
            yield run

    with monkeypatch.context() as patch:
        patch.setattr(AcctReader, "__iter__", stopped)
        with pytest.raises(KeyboardInterrupt):
            ingest_lsb_acct(store, [logdir])
    assert store.count() == 20
    report = ingest_lsb_acct(store, [logdir])
    assert (report.read, report.added, store.count()) == (15, 15, 35)


def test_what_was_read_before_a_fault_stays(
    store: HistoryStore, logdir: Path, write_record: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_BATCH_RUNS", 10)
    append(logdir / "lsb.acct", *jobs(write_record, 1, 15), "nonsense", *jobs(write_record, 16, 5))
    for _ in range(2):
        with pytest.raises(BadInput, match="line 16"):
            ingest_lsb_acct(store, [logdir], malformed="refuse")
    assert store.count() == 10
    report = ingest_lsb_acct(store, [logdir])
    assert (report.read, report.added, report.malformed) == (10, 10, 1)


def test_a_requeued_job_is_one_job(store: HistoryStore, logdir: Path, write_record: Write) -> None:
    def run(start: int, end: int, **how: Any) -> str:
        return write_record(start_time=SUBMIT + start, event_time=SUBMIT + end, **how)

    append(
        logdir / "lsb.acct",
        run(10, 50, status=32, exit_info=11),
        run(60, 90, status=32, exit_info=10),
        run(100, 500),
    )
    assert ingest_lsb_acct(store, [logdir]).added == 1
    (ended,) = store.outcomes()
    assert (ended.restarts, ended.state) == (2, JobState.COMPLETED)
    assert (ended.wait_seconds, ended.run_seconds) == (100.0, 400.0)
    store.set_cursor("lsf", "{}")
    ingest_lsb_acct(store, [logdir])
    (again,) = store.outcomes()
    assert again == ended


def test_runs_of_a_job_that_come_at_different_times(
    store: HistoryStore, logdir: Path, write_record: Write
) -> None:
    acct = logdir / "lsb.acct"
    append(acct, write_record(start_time=SUBMIT + 10, event_time=SUBMIT + 50, status=32, exit_info=1))
    ingest_lsb_acct(store, [logdir])
    (ended,) = store.outcomes()
    assert (ended.state, ended.restarts) == (JobState.PREEMPTED, 0)
    append(acct, write_record(start_time=SUBMIT + 100, event_time=SUBMIT + 500))
    report = ingest_lsb_acct(store, [logdir])
    assert (report.read, report.added) == (1, 0)  # the job was known
    (ended,) = store.outcomes()
    assert (ended.state, ended.restarts, ended.run_seconds) == (JobState.COMPLETED, 1, 400.0)


def test_an_array_is_many_jobs(store: HistoryStore, logdir: Path, write_record: Write) -> None:
    append(logdir / "lsb.acct", *[write_record(array_index=i, name="scan[1-30]") for i in range(1, 31)])
    assert ingest_lsb_acct(store, [logdir]).added == 30
    assert {ended.job.name for ended in store.outcomes()} == {"scan"}


def test_clusters_are_kept_apart(store: HistoryStore, logdir: Path, write_record: Write) -> None:
    append(logdir / "lsb.acct", *jobs(write_record, 1, 3))
    for source in ("lsf:a", "lsf:b"):
        assert ingest_lsb_acct(store, [logdir], source=source).added == 3
    assert store.count() == 6


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "[]",
        "7",
        '{"files": 7}',
        '{"files": {"a": 7}}',
        '{"files": {"a": [1]}}',
        '{"files": {"a": ["1", 2]}}',
        '{"files": {"a": [-1, 2]}}',
        '{"files": {"a": null}}',
    ],
)
def test_any_cursor_is_survived(store: HistoryStore, logdir: Path, write_record: Write, cursor: str) -> None:
    append(logdir / "lsb.acct", *jobs(write_record, 1, 3))
    store.set_cursor("lsf", cursor)
    assert ingest_lsb_acct(store, [logdir]).added == 3


def test_places_of_many_files_do_not_grow_forever(
    store: HistoryStore, logdir: Path, write_record: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_MAX_FILES", 3)
    for number in range(6):
        append(logdir / f"lsb.acct.{number}", *jobs(write_record, 10 * number + 1, 2))
    ingest_lsb_acct(store, [logdir])
    cursor = store.cursor("lsf")
    assert cursor is not None
    assert len(json.loads(cursor)["files"]) == 3
    assert ingest_lsb_acct(store, [logdir]).added == 0


def test_progress_is_told(store: HistoryStore, logdir: Path, write_record: Write) -> None:
    append(logdir / "lsb.acct", *jobs(write_record, 1, 3))
    told: list[tuple[int, int]] = []
    ingest_lsb_acct(store, [logdir], progress=lambda done, total: told.append((done, total)))
    size = (logdir / "lsb.acct").stat().st_size
    assert told[-1] == (size, size)


def test_numbers_that_no_host_has_do_not_stop_it(
    store: HistoryStore, logdir: Path, write_record: Write
) -> None:
    """The history has 64 bits for a number, and one line that it refuses would be met each time."""
    asked = "rusage[mem=999999999999999P] span[hosts=1]"
    append(logdir / "lsb.acct", write_record(job_id=1, resource_request=asked))
    append(logdir / "lsb.acct", write_record(job_id=2, array_index=10**15), write_record(job_id=3))
    report = ingest_lsb_acct(store, [logdir])
    assert (report.added, report.malformed) == (2, 1)
    assert [ended.job.job_id for ended in store.outcomes()] == [1, 3]


def test_a_limit_that_was_raised_for_the_cloud_is_not_the_users(
    store: HistoryStore, logdir: Path, write_record: Write
) -> None:
    """As of sacct: else each move teaches that jobs of this user ask for more time."""
    advice = parse_admin_comment('{"burst_advisor":1,"id":"a-1","to":"burst","limit":[3600,5400]}')
    append(logdir / "lsb.acct", *(write_record(job_id=number, run_limit=5400) for number in (1, 2)))
    ingest_lsb_acct(store, [logdir], advice_of=lambda job_id: advice if job_id == 1 else None)
    found = {ended.job.job_id: ended for ended in store.outcomes()}
    assert (found[1].advice_id, found[1].job.requested_time) == ("a-1", 3600.0)
    assert (found[2].advice_id, found[2].job.requested_time) == (None, 5400.0)
