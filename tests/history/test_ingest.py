"""From logs and accounting into the history, any number of times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from advisor.history import ingest, sacct, swf
from advisor.history.store import HistoryStore
from advisor.model.errors import BadInput
from advisor.model.job import JobState

DATA = Path(__file__).parent / "data"
HELP = (DATA / "sacct-helpformat-22.05.txt").read_text()
NOT_RECORDED = {"AllocTRES", "Eligible", "ElapsedRaw"}
FIELDS = [name for name in sacct.choose_fields(HELP) if name not in NOT_RECORDED]
DELIMITER = "\x1efieldend"


def recorded() -> list[str]:
    return (DATA / "sacct-22.05.txt").read_text().split("\n")[:-1]


def feed(store: HistoryStore, lines: list[str]) -> ingest.IngestReport:
    return ingest.ingest_sacct(store, lines, fields=FIELDS, delimited_by=DELIMITER)


def run(job_id: int, state: str, submit: int, start: int | str, end: int) -> str:
    values = dict.fromkeys(FIELDS, "") | {
        "JobIDRaw": str(job_id),
        "JobID": str(job_id),
        "State": state,
        "Submit": str(submit),
        "Start": str(start),
        "End": str(end),
        "ReqCPUS": "1",
        "AllocCPUS": "1",
        "Partition": "onprem",
        "DBIndex": "1",
    }
    return DELIMITER.join(values[name] for name in FIELDS)


def log(tmp_path: Path, jobs: int, name: str = "site.swf") -> Path:
    lines = [f"{i} {i} 5 {i + 1} 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1" for i in range(jobs)]
    path = tmp_path / name
    path.write_text("; UnixStartTime: 1000000000\n" + "\n".join(lines) + "\n")
    return path


def test_a_log_becomes_history(store: HistoryStore, tmp_path: Path) -> None:
    report = ingest.ingest_swf(store, log(tmp_path, 300))
    assert (report.source, report.read, report.added, report.malformed) == ("swf:site", 300, 300, 0)
    first = next(store.outcomes())
    assert (first.job.submit_time, first.wait_seconds, first.run_seconds) == (1e9, 5.0, 1.0)


def test_the_same_log_again_adds_nothing(store: HistoryStore, tmp_path: Path) -> None:
    path = log(tmp_path, 300)
    ingest.ingest_swf(store, path)
    again = ingest.ingest_swf(store, path)
    assert (again.read, again.added) == (300, 0)
    store.set_cursor("swf:site", "not ours")
    assert ingest.ingest_swf(store, path).added == 0
    assert store.count() == 300


def test_a_longer_log_adds_what_is_new(store: HistoryStore, tmp_path: Path) -> None:
    ingest.ingest_swf(store, log(tmp_path, 300))
    assert ingest.ingest_swf(store, log(tmp_path, 310)).added == 10


def test_a_stopped_ingestion_goes_on(
    store: HistoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_BATCH_JOBS", 50)
    path = log(tmp_path, 300)
    real = swf.iter_outcomes

    def stopped(*arguments: object, **options: object) -> Iterator[object]:
        for number, outcome in enumerate(real(*arguments, **options)):
            if number == 120:
                raise KeyboardInterrupt
            yield outcome

    monkeypatch.setattr(swf, "iter_outcomes", stopped)
    with pytest.raises(KeyboardInterrupt):
        ingest.ingest_swf(store, path)
    assert store.count() == 100
    monkeypatch.setattr(swf, "iter_outcomes", real)
    report = ingest.ingest_swf(store, path)
    assert (report.read, report.added) == (300, 200)
    assert store.count() == 300


def test_malformed_lines_are_named(store: HistoryStore, tmp_path: Path) -> None:
    path = log(tmp_path, 5)
    path.write_text(path.read_text() + "1 2 3\n")
    report = ingest.ingest_swf(store, path, source="mine")
    assert (report.malformed, report.added, report.source) == (1, 5, "mine")
    assert report.problems == ["line 7: 3 columns instead of 18: 1 2 3"]
    with pytest.raises(BadInput, match="line 7"):
        ingest.ingest_swf(store, path, malformed="refuse")


def test_a_log_that_is_not_there(store: HistoryStore, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        ingest.ingest_swf(store, tmp_path / "none.swf")
    assert caught.value.code == "trace.unreadable"
    assert store.cursor("swf:none") is None


def test_what_a_real_slurmdbd_said(store: HistoryStore) -> None:
    report = feed(store, recorded())
    assert (report.added, report.malformed) == (10, 0)
    requeued = store.of_job(8)
    assert requeued is not None
    assert requeued.restarts == 1
    assert requeued.job.submit_time == 1795240579.0  # the first, not the requeue's
    assert requeued.start_time == 1795240583.0
    again = feed(store, recorded())
    assert (again.read, again.added) == (10, 0)
    assert float(store.cursor("slurm") or 0) == max(outcome.end_time for outcome in store.outcomes())


REQUEUED_TWICE = [
    run(5, "REQUEUED", 1000, 1010, 1100),
    run(5, "PREEMPTED", 1100, 1150, 1200),
    run(5, "COMPLETED", 1200, 1300, 1400),
]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("apart", [True, False])
def test_runs_of_a_requeued_job_are_one_outcome(
    store: HistoryStore, order: tuple[int, ...], *, apart: bool
) -> None:
    lines = [REQUEUED_TWICE[index] for index in order]
    for part in [[line] for line in lines] if apart else [lines]:
        feed(store, part)
        feed(store, part)  # the overlap: every record is seen again
    feed(store, REQUEUED_TWICE)
    (outcome,) = store.outcomes()
    assert (outcome.job.submit_time, outcome.start_time, outcome.end_time) == (1000.0, 1300.0, 1400.0)
    assert (outcome.restarts, outcome.state) == (2, JobState.COMPLETED)


RESIZED_TWICE = [  # as slurmdbd 22.05 tells it: SubmitTime is the resize's, the start stays
    run(5, "RESIZING", 1000, 1010, 1100),
    run(5, "RESIZING", 1100, 1010, 1200),
    run(5, "COMPLETED", 1200, 1010, 1400),
]


@pytest.mark.parametrize("apart", [True, False])
def test_a_job_that_was_resized_is_one_run(store: HistoryStore, *, apart: bool) -> None:
    for part in [[line] for line in RESIZED_TWICE] if apart else [RESIZED_TWICE]:
        feed(store, part)
    assert (feed(store, RESIZED_TWICE).never_started, store.count()) == (0, 1)
    (outcome,) = store.outcomes()
    assert (outcome.job.submit_time, outcome.start_time, outcome.end_time) == (1000.0, 1010.0, 1400.0)
    assert (outcome.restarts, outcome.wait_seconds) == (0, 10.0)


def test_of_a_resized_job_no_wait_is_made_up(store: HistoryStore) -> None:
    """Its first submission comes with the record before the resize."""
    report = feed(store, RESIZED_TWICE[-1:])
    assert (report.never_started, store.count()) == (1, 0)


def test_a_failed_node_is_the_end_until_another_run_ends(store: HistoryStore) -> None:
    feed(store, [run(5, "NODE_FAIL", 1000, 1010, 1100)])
    (outcome,) = store.outcomes()
    assert (outcome.state, outcome.restarts) == (JobState.NODE_FAIL, 0)
    feed(store, [run(5, "COMPLETED", 1100, 1200, 1300)])
    (outcome,) = store.outcomes()
    assert (outcome.state, outcome.restarts, outcome.wait_seconds) == (JobState.COMPLETED, 1, 200.0)


def test_a_run_within_one_second_is_not_its_own_predecessor(store: HistoryStore) -> None:
    lines = [run(5, "NODE_FAIL", 1000, 1000, 1000)]
    feed(store, lines)
    feed(store, lines)
    (outcome,) = store.outcomes()
    assert outcome.restarts == 0


def test_an_id_that_wrapped_around_is_another_job(store: HistoryStore) -> None:
    feed(store, [run(5, "REQUEUED", 1000, 1010, 1100), run(5, "COMPLETED", 1100, 1200, 1300)])
    feed(store, [run(5, "COMPLETED", 90_000_000, 90_000_010, 90_000_020)])
    assert [(outcome.job.submit_time, outcome.restarts) for outcome in store.outcomes()] == [
        (1000.0, 1),
        (90_000_000.0, 0),
    ]


def test_the_place_is_the_last_end_seen_less_the_overlap(store: HistoryStore) -> None:
    now = 2e9
    assert ingest.sacct_since(store, now) == now - 365 * 86400
    feed(store, [run(5, "COMPLETED", 1_999_990_000, 1_999_990_000, 1_999_995_000)])
    assert ingest.sacct_since(store, now) == 1_999_995_000 - ingest.OVERLAP_SECONDS
    feed(store, [run(4, "COMPLETED", 1_999_980_000, 1_999_980_000, 1_999_990_000)])  # late: no step back
    assert ingest.sacct_since(store, now) == 1_999_995_000 - ingest.OVERLAP_SECONDS
    feed(store, [])
    assert ingest.sacct_since(store, 1_999_000_000) == 1_999_000_000 - ingest.OVERLAP_SECONDS  # clock stepped
    store.set_cursor("slurm", "nonsense")
    assert ingest.sacct_since(store, now) == now - 365 * 86400
    feed(store, [run(6, "COMPLETED", 1_999_990_000, 1_999_990_000, 1_999_995_000)])
    assert ingest.sacct_since(store, now) == 1_999_995_000 - ingest.OVERLAP_SECONDS


def test_how_long_a_job_might_not_start_is_kept(store: HistoryStore) -> None:
    """But not of the last run of a requeued job, which was submitted before it was requeued."""
    fields = [*FIELDS, "Eligible"]
    lines = [run(5, "COMPLETED", 1000, 1300, 1400), run(6, "REQUEUED", 1000, 1010, 1100)]
    lines.append(run(6, "COMPLETED", 1100, 1300, 1400))
    asked = [f"{line}{DELIMITER}1221" for line in lines]
    ingest.ingest_sacct(store, asked, fields=fields, delimited_by=DELIMITER)
    assert [(one.job.job_id, one.ineligible_seconds) for one in store.outcomes()] == [(5, 221.0), (6, 0.0)]
    table = store.table()
    assert table.ineligible_seconds.tolist() == [221.0, 0.0]
    # what it waited for teaches nothing about the queue
    assert [one.first_wait_seconds for one in store.outcomes()] == [None, 10.0]
    assert np.isnan(table.first_wait).tolist() == [True, False]


def test_a_clock_that_was_ahead_does_not_skip_what_ends_until_then(store: HistoryStore) -> None:
    """A day in which `advisor control` did not run would be missing for ever."""
    now, day = 2_000_000_000.0, 86_400.0
    ahead = run(5, "COMPLETED", 1_999_990_000, 1_999_990_010, 2_100_000_000)
    store.set_cursor("slurm", "2100000000.0")  # of an earlier release
    for lines in ([ahead], [ahead, run(6, "COMPLETED", 1_999_990_000, 1_999_990_010, 1_999_995_000)]):
        ingest.ingest_sacct(store, lines, fields=FIELDS, delimited_by=DELIMITER, now=now)
        assert ingest.sacct_since(store, now + day) == now - ingest.OVERLAP_SECONDS
    assert store.count() == 2


def test_jobs_cancelled_before_their_start_are_counted(store: HistoryStore) -> None:
    report = feed(store, [run(5, "CANCELLED by 0", 1000, "None", 1100)])
    assert (report.read, report.added, report.never_started) == (0, 0, 1)
