"""Files: found, put in order, read from where one was."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.files import log_file
from advisor.history.ingest_report import IngestReport
from advisor.lsf import lsb_acct
from advisor.lsf.lsb_acct import AcctReader, Place, find_files
from advisor.model.errors import BadInput

Write = Callable[..., str]
RESERVATION = '"EVENT_ADRSV_FINISH" "10.1" 1700000000 1699990000 1699999999 33554434 "ann#0" 1 "node1"'


def lines(write: Write, count: int, first: int = 1) -> list[str]:
    return [
        write(job_id=first + i, event_time=1_700_003_600 + first + i, run_limit=60 * (i + 1))
        for i in range(count)
    ]


BEGINNING = Place()


def read(path: Path, place: Place = BEGINNING, **options: object) -> tuple[list[int], IngestReport, Place]:
    report = IngestReport(source="lsf")
    (file,) = find_files([path])
    reader = AcctReader(file, place=place, report=report, **options)
    return [run.job_id for run in reader], report, reader.place


def test_lines_of_every_kind(tmp_path: Path, write_record: Write) -> None:
    path = tmp_path / "lsb.acct"
    good = lines(write_record, 3)
    killed = write_record(job_id=9, start_time=0, status=32, exit_info=14)
    text = ["# a comment", "", good[0], RESERVATION, "nonsense", good[1], killed, good[2][:-200], good[2], ""]
    path.write_text("\n".join(text))
    jobs, report, place = read(path)
    assert jobs == [1, 2, 3]
    assert (report.never_started, report.malformed, report.unended) == (1, 2, 0)
    assert report.other_records == 1
    assert place == Place(path.stat().st_size, 9)
    nonsense, torn = report.problems
    assert nonsense.startswith("lsb.acct, line 5: field 1 (record type) is 'nonsense'")
    assert torn.startswith("lsb.acct, line 8: a stray quote")


def test_a_malformed_line_is_refused_where_that_is_asked_for(tmp_path: Path, write_record: Write) -> None:
    path = tmp_path / "lsb.acct"
    good = lines(write_record, 2)
    path.write_text(f"{good[0]}\n{good[1].replace('1001', 'x', 1)}\n")
    with pytest.raises(BadInput, match=r"user id.*'x'") as caught:
        read(path, malformed="refuse")
    assert caught.value.where == f"{path}, line 2"
    assert caught.value.code == "lsf.malformed"


def test_problems_are_counted_all_and_kept_some(tmp_path: Path, write_record: Write) -> None:
    path = tmp_path / "lsb.acct"
    path.write_text("\n".join([lines(write_record, 1)[0], *['"JOB_FINISH" oops'] * 3000, ""]))
    jobs, report, _ = read(path)
    assert (jobs, report.malformed, len(report.problems)) == ([1], 3000, 20)


@pytest.mark.parametrize("name", ["lsb.acct.gz", "lsb.acct.1"])
def test_gzip_is_told_by_content(tmp_path: Path, write_record: Write, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress("\n".join([*lines(write_record, 5), ""]).encode()))
    jobs, _, place = read(path)
    assert jobs == [1, 2, 3, 4, 5]
    assert read(path, place)[0] == []
    half = Place(len(lines(write_record, 2)[0]) + 1, 1)
    assert read(path, half)[0] == [2, 3, 4, 5]


def test_a_line_that_is_being_written_is_left_for_the_next_time(tmp_path: Path, write_record: Write) -> None:
    path = tmp_path / "lsb.acct"
    one, two = lines(write_record, 2)
    path.write_text(f"{one}\n{two[:-30]}")
    jobs, report, place = read(path)
    assert (jobs, report.unended, report.malformed) == ([1], 1, 0)
    path.write_text(f"{one}\n{two}\n")
    assert read(path, place)[0] == [2]
    path.write_text(two[:-30])
    assert find_files([path]) == []


def test_a_file_goes_on_where_it_was_left(tmp_path: Path, write_record: Write) -> None:
    path = tmp_path / "lsb.acct"
    some = lines(write_record, 6)
    path.write_text("\n".join([*some[:4], ""]))
    jobs, _, place = read(path)
    path.write_text("\n".join([*some[:5], "nonsense", some[5], ""]))
    more, report, _ = read(path, place)
    assert (jobs, more) == ([1, 2, 3, 4], [5, 6])
    assert report.problems[0].startswith("lsb.acct, line 6:")


def test_a_place_that_is_no_end_of_a_line_counts_for_nothing(tmp_path: Path, write_record: Write) -> None:
    path = tmp_path / "lsb.acct"
    path.write_text("\n".join([*lines(write_record, 3), ""]))
    assert read(path, Place(7, 1))[0] == [1, 2, 3]
    assert read(path, Place(10**9, 1000))[0] == [1, 2, 3]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(size=st.integers(1, 3000), stops=st.lists(st.integers(1, 12), min_size=1, max_size=5))
def test_blocks_and_stops_anywhere(
    tmp_path_factory: pytest.TempPathFactory, write_record: Write, size: int, stops: list[int]
) -> None:
    """However it is cut into blocks and wherever one stops, every job comes once."""
    path = tmp_path_factory.mktemp("acct") / "lsb.acct"
    path.write_text("\n".join([*lines(write_record, 12), "nonsense", ""]))
    (file,) = find_files([path])
    jobs: list[int] = []
    place = Place()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_file, "_BLOCK_BYTES", size)
        for stop in [*stops, 100]:
            reader = AcctReader(file, place=place, report=IngestReport(source="lsf"))
            jobs += [run.job_id for _, run in zip(range(stop), reader, strict=False)]
            place = reader.place if stop == 100 else Place(*place_behind(path, len(jobs)))
    assert jobs == list(range(1, 13))


def place_behind(path: Path, count: int) -> tuple[int, int]:
    whole = path.read_bytes().split(b"\n")[:count]
    return sum(len(line) + 1 for line in whole), len(whole)


def test_files_of_a_folder_are_read_the_oldest_first(tmp_path: Path, write_record: Write) -> None:
    for name, first in (("lsb.acct", 300), ("lsb.acct.1", 200), ("lsb.acct.2", 100)):
        (tmp_path / name).write_text("\n".join([*lines(write_record, 2, first), ""]))
    (tmp_path / "lsb.acct.10.gz").write_bytes(gzip.compress((lines(write_record, 1, 50)[0] + "\n").encode()))
    (tmp_path / "lsb.acct.9").write_text("")
    (tmp_path / "lsb.events").write_text('"JOB_NEW" "10.1" 1\n')
    (tmp_path / "lsb.acct.d").mkdir()
    files = find_files([tmp_path])
    assert [file.path.name for file in files] == ["lsb.acct.10.gz", "lsb.acct.2", "lsb.acct.1", "lsb.acct"]
    assert len({file.fingerprint for file in files}) == 4
    (tmp_path / "lsb.acct").rename(tmp_path / "lsb.acct.0")
    assert find_files([tmp_path / "lsb.acct.0"])[0].fingerprint == files[-1].fingerprint


def refused(path: Path) -> BadInput:
    with pytest.raises(BadInput) as caught:
        read(path)
    return caught.value


def test_bad_input_is_told_with_place_and_mend(tmp_path: Path) -> None:
    assert refused(tmp_path).code == "lsf.no_files"
    assert refused(tmp_path / "lsb.acct").code == "trace.unreadable"
    events = tmp_path / "lsb.events"
    events.write_text('"JOB_NEW" "10.1" 1700000000 1\n"JOB_START" "10.1" 1700000000 1\n')
    assert "lsb.events" in refused(events).what
    swf = tmp_path / "log.swf"
    swf.write_text("; Version: 2.2\n1 0 5 100 4 -1 -1 8 3600 -1 1 7 3 2 1 0 -1 -1\n")
    error = refused(swf)
    assert (error.code, "line 1" in error.what) == ("lsf.not_lsb_acct", True)
    long = tmp_path / "long.txt"
    long.write_text("x\n" * 5000)
    assert refused(long).code == "lsf.not_lsb_acct"
    cut = tmp_path / "lsb.acct.gz"
    cut.write_bytes(gzip.compress(b'"EVENT" "10.1" 7\n' * 1000)[:-20])
    assert refused(cut).code == "trace.truncated"


def test_an_empty_file_and_one_without_jobs_are_none_of_these(tmp_path: Path) -> None:
    (tmp_path / "lsb.acct").write_text("")
    assert find_files([tmp_path]) == []
    (tmp_path / "lsb.acct").write_text(RESERVATION + "\n")
    jobs, report, _ = read(tmp_path / "lsb.acct")
    assert (jobs, report.other_records) == ([], 1)


def test_a_line_without_end_is_not_held_in_memory(
    tmp_path: Path, write_record: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lsb_acct, "_MAX_LINE_BYTES", 5000)
    monkeypatch.setattr(log_file, "_BLOCK_BYTES", 1000)
    path = tmp_path / "lsb.acct"
    one, two = lines(write_record, 2)
    path.write_text(f'{one}\n"JOB_FINISH" "{"x" * 100_000}"\n{two}\n')
    jobs, report, place = read(path)
    assert (jobs, report.malformed) == ([1, 2], 1)
    assert report.problems[0].startswith("lsb.acct, line 2: longer than 5,000 bytes")
    assert place == Place(path.stat().st_size, 3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path: Path, write_record: Write, text: bytes) -> None:
    path = tmp_path / "lsb.acct"
    path.write_bytes(lines(write_record, 1)[0].encode() + b"\n" + text + b"\n")
    jobs, report, _ = read(path)
    assert jobs == [1]
    assert report.malformed <= text.count(b"\n") + 1
