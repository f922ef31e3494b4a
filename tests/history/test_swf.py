"""Standard Workload Format: hostile files, round trips, and the archive's logs with their traps."""

from __future__ import annotations

import gzip
import math
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.files import log_file
from advisor.history import _swf_rows, swf
from advisor.model.errors import BadInput
from advisor.model.job import Job, JobOutcome, JobState
from tests.history.swf_lines import LINE, log
from tests.history.swf_writer import write


def test_a_line_becomes_a_row(tmp_path: Path) -> None:
    table = swf.read_table(log(tmp_path, "; UnixStartTime: 1000", "; MaxProcs: 64", LINE))
    assert (table.job_id[0], table.submit[0], table.wait[0], table.run[0]) == (1, 10, 5, 100)
    assert (table.processors[0], table.requested_time[0], table.status[0]) == (8, 3600, 1)
    assert (table.user[0], table.group[0], table.queue[0]) == (7, 3, 1)
    assert table.executable[0] == 2
    assert (table.start_of_log, table.total_processors, table.name) == (1000, 64, "log")


def test_a_line_becomes_an_outcome(tmp_path: Path) -> None:
    (outcome,) = swf.iter_outcomes(log(tmp_path, LINE))
    assert outcome == JobOutcome(
        job=Job(
            job_id=1,
            submit_time=10,
            processors=8,
            user="7",
            group="3",
            queue="1",
            requested_time=3600,
            name="2",
        ),
        start_time=15,
        end_time=115,
        state=JobState.COMPLETED,
        processors_used=4,
        partition="0",
    )
    (dated,) = swf.iter_outcomes(log(tmp_path, "; UnixStartTime: 1000", LINE))
    assert (dated.job.submit_time, dated.start_time, dated.end_time) == (1010, 1015, 1115)


def test_unknowns_are_unknown(tmp_path: Path) -> None:
    path = log(tmp_path, "1 10 -1 5 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1")
    table = swf.read_table(path)
    assert table.processors[0] == 1
    assert math.isnan(table.requested_time[0])
    assert table.user[0] == table.group[0] == table.queue[0] == -1
    (outcome,) = swf.iter_outcomes(path)
    assert outcome.job.user is outcome.job.requested_time is outcome.job.name is None
    assert outcome.start_time == 10
    assert outcome.state is JobState.UNKNOWN


def test_processors_are_the_requested_else_the_used(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        "1 0 0 9 4 -1 -1 8 -1 -1 1 1 1 1 1 1 -1 -1",
        "2 0 0 9 4 -1 -1 -1 -1 -1 1 1 1 1 1 1 -1 -1",
        "3 0 0 9 4 -1 -1 0 -1 -1 1 1 1 1 1 1 -1 -1",
        "4 0 0 9 0 -1 -1 0 -1 -1 1 1 1 1 1 1 -1 -1",
    )
    assert swf.read_table(path).processors.tolist() == [8, 4, 4, 1]


def test_the_header_is_read_whatever_the_case_of_its_names(tmp_path: Path) -> None:
    header = swf.read_header(log(tmp_path, ";unixstarttime:1000", "; MAXPROCS: 64", "; timezone: 3600", LINE))
    assert (header.unix_start_time, header.max_processors, header.utc_offset_seconds) == (1000, 64, 3600)


def test_a_mark_of_utf_8_at_the_beginning_is_no_part_of_the_header(tmp_path: Path) -> None:
    path = log(tmp_path, "\ufeff; MaxProcs: 64", LINE)
    lines = swf.MalformedLines()
    assert swf.read_table(path, report=lines).total_processors == 64
    assert lines.count == 0


def test_a_header_without_processors_has_them_as_nodes(tmp_path: Path) -> None:
    assert swf.read_header(log(tmp_path, "; MaxNodes: 70 (dual)", LINE)).max_processors == 70
    unknown = log(tmp_path, "; MaxNodes: 70", "; MaxProcs: -1", LINE)
    assert swf.read_header(unknown).max_processors == 70


def test_the_parts_of_a_job_do_not_count_beside_the_whole(tmp_path: Path) -> None:
    whole, alone = LINE, LINE.replace("1", "2", 1).replace(" -1 1 7", " -1 3 7")
    parts = [LINE.replace(" -1 1 7", f" -1 {status} 7") for status in (2, 3, 4)]
    path = log(tmp_path, whole, *parts, alone)
    assert swf.read_table(path).status.tolist() == [1, 3]
    assert [outcome.job.job_id for outcome in swf.iter_outcomes(path)] == [1, 2]


def test_keep_says_which_rows(tmp_path: Path) -> None:
    never = LINE.replace(" 100 ", " 0 ", 1)
    cancelled = LINE.replace(" 100 ", " -1 ", 1)
    path = log(tmp_path, never, LINE, cancelled)
    assert swf.read_table(path).run.tolist() == [100]
    assert swf.read_table(path, keep="all").run.tolist() == [0, 100, -1]
    assert [outcome.run_seconds for outcome in swf.iter_outcomes(path)] == [100]


def test_header_as_the_archive_writes_it(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        ";  UnixStartTime: 1091615532",
        ";       TimeZone: 3600\t # DEPRECATED; use TimeZoneString + tzset()",
        "; TimeZoneString: Europe/Paris",
        "; MaxNodes: 184  ( 6,  171,   7)",
        "; MaxProcs: 1664 (72, 1368, 224)",
        "; Computer: IBM p655/p690",
        "; Queue:  1  express   (p655 /  2hr)",
        "; Queues: Queues enforce a limit",
        "; Partition: 0 gpu",
        ";    Note: MaxProcs: 3",
        LINE,
        "; MaxProcs: 9",
    )
    header = swf.read_header(path)
    assert header.max_processors == 1664
    assert header.unix_start_time == 1091615532
    assert header.utc_offset_seconds == 3600


@pytest.mark.parametrize(
    ("lines", "offset"),
    [
        (["; TimeZoneString: Europe/Paris", "; UnixStartTime: 1091615532"], 3600),  # August, yet winter's
        (["; TimeZoneString: Nowhere/Land"], 0),
        (["; TimeZoneString: ../../etc/passwd"], 0),
        (["; TimeZoneString: "], 0),
        (["; TimeZone: 99999999"], 0),
        (["; TimeZone: -28800"], -28800),
        ([], 0),
    ],
)
def test_offset_from_utc(tmp_path: Path, lines: list[str], offset: float) -> None:
    assert swf.read_header(log(tmp_path, *lines, LINE)).utc_offset_seconds == offset


@pytest.mark.parametrize("value", ["9" * 400, "-5", "soon", "", "1e99"])
def test_a_header_without_sense_is_no_header(tmp_path: Path, value: str) -> None:
    header = swf.read_header(log(tmp_path, f"; UnixStartTime: {value}", f"; MaxProcs: {value}", LINE))
    assert header.unix_start_time in (0, 1)
    assert header.max_processors >= 0


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    packed = tmp_path / "log.swf"
    packed.write_bytes(gzip.compress(f"{LINE}\n".encode()))
    plain = log(tmp_path, LINE, name="other.swf.gz")
    assert len(swf.read_table(packed)) == len(swf.read_table(plain)) == 1
    assert swf.read_table(plain).name == "other"


MALFORMED = {
    "seventeen columns": "1 10 5 100 4 -1 -1 8 3600 -1 1 7 3 2 1 0 -1",
    "nineteen columns": LINE + " 1",
    "text": LINE.replace("3600", "hour"),
    "not a number": LINE.replace("3600", "nan"),
    "infinite": LINE.replace("3600", "inf"),
    "overflow": LINE.replace("3600", "1e400"),
    "huge": LINE.replace("3600", "9" * 30),
    "underscore": LINE.replace("3600", "3_600"),
    "two minuses": LINE.replace("3600", "--3600"),
    "joined by a minus": LINE.replace("3600", "36-00"),
    "joined by a point": LINE.replace("3600", "3.6.0"),
    "a lone minus": LINE.replace("3600", "-"),
    "a lone point": LINE.replace("3600", "."),
    "hexadecimal": LINE.replace("3600", "0x10"),
    "fraction of a processor": LINE.replace(" 8 ", " 8.5 "),
    "fraction of a job": "1.5" + LINE[1:],
    "negative submit time": LINE.replace("1 10 ", "1 -10 ", 1),
    "NUL": LINE.replace("3600", "36\x0000"),
    "other digits": LINE.replace("3600", "\u0663\u0666"),
    "too long": LINE + " " * 10_000,
    "very long": "1 " * 20_000,
}


@pytest.mark.parametrize("line", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_lines_are_reported_by_number(tmp_path: Path, line: str) -> None:
    path = log(tmp_path, "; comment", LINE, line, "", LINE.replace("1 ", "2 ", 1), line)
    problems = swf.MalformedLines()
    table = swf.read_table(path, report=problems)
    assert table.job_id.tolist() == [1, 2]
    assert [problem.number for problem in problems.first] == [3, 6]
    assert all(problem.text.isprintable() and problem.reason for problem in problems.first)
    with pytest.raises(BadInput, match=r"log\.swf, line 3") as caught:
        swf.read_table(path, malformed="refuse")
    assert caught.value.code == "trace.malformed"


WELL_FORMED = {
    "exponent": LINE.replace("3600", "3.6e3"),
    "plus": LINE.replace("3600", "+3600"),
    "no digit before the point": LINE.replace("3600", "3600").replace(" -1 -1 8", " .5 -1 8"),
    "no digit after the point": LINE.replace("3600", "3600."),
    "tabs": LINE.replace(" ", "\t"),
    "carriage return": LINE + "\r",
    "blanks around": f"   {LINE}   ",
}


@pytest.mark.parametrize("line", WELL_FORMED.values(), ids=WELL_FORMED.keys())
def test_unusual_but_right(tmp_path: Path, line: str) -> None:
    table = swf.read_table(log(tmp_path, LINE, line, LINE), malformed="refuse")
    assert table.requested_time.tolist() == [3600] * 3


def test_errors_that_cancel_out_in_a_count_are_found(tmp_path: Path) -> None:
    """One line reads as nineteen numbers for numpy, another as seventeen: the sum is right."""
    path = log(tmp_path, LINE, LINE.replace("3600", "3-6"), LINE.rsplit(" ", 1)[0] + " -")
    problems = swf.MalformedLines()
    assert len(swf.read_table(path, report=problems)) == 1
    assert problems.count == 2


def test_a_line_without_end_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.swf"
    path.write_bytes(gzip.compress(f"{LINE}\n".encode() + b"1" * 50_000_000 + f"\n{LINE}\n".encode(), 1))
    problems = swf.MalformedLines()
    assert len(swf.read_table(path, report=problems)) == 2
    assert [problem.number for problem in problems.first] == [2]


def test_blocks_are_cut_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{i} {i} 0 {i + 1} 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1" for i in range(300)]
    lines[10] = lines[20] = "; a comment in between"
    lines[30] = "nonsense"
    path = log(tmp_path, *lines)
    whole = swf.read_table(path)
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr(log_file, "_BLOCK_BYTES", size)
        problems = swf.MalformedLines()
        table = swf.read_table(path, report=problems)
        np.testing.assert_array_equal(table.job_id, whole.job_id)
        np.testing.assert_array_equal(table.run, whole.run)
        assert [problem.number for problem in problems.first] == [31]


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(LINE + "\n" + LINE)
    assert len(swf.read_table(path)) == 2


def test_progress_ends_at_the_files_size(tmp_path: Path) -> None:
    path = log(tmp_path, *[LINE] * 100)
    seen: list[tuple[int, int]] = []
    swf.read_table(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


seconds = st.integers(0, 10**9).map(float) | st.floats(0, 1e9).map(lambda x: round(x, 3))

names = st.none() | st.integers(0, 10**6).map(str)

outcomes_in_swf = st.builds(
    lambda job, wait, run, state, used, partition: JobOutcome(
        job=job,
        start_time=job.submit_time + wait,
        end_time=job.submit_time + wait + run,
        state=state,
        processors_used=used,
        partition=partition,
    ),
    job=st.builds(
        Job,
        job_id=st.integers(0, 10**9),
        submit_time=seconds,
        processors=st.integers(1, 10**6),
        user=names,
        group=names,
        queue=names,
        name=names,
        requested_time=st.none() | st.integers(1, 10**8).map(float),
        memory_mb=st.none() | st.integers(1, 10**7),
    ),
    wait=st.integers(0, 3 * 10**8).map(float),
    run=st.integers(1, 3 * 10**8).map(float),
    state=st.sampled_from([JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.UNKNOWN]),
    used=st.integers(1, 10**6),
    partition=names,
)


@given(outcomes=st.lists(outcomes_in_swf, min_size=1, max_size=20), packed=st.booleans())
@settings(deadline=None)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, *, outcomes: list[JobOutcome], packed: bool
) -> None:
    path = tmp_path_factory.mktemp("swf") / ("log.swf.gz" if packed else "log.swf")
    header = swf.SwfHeader(utc_offset_seconds=3600, max_processors=99)
    write(path, outcomes, header)
    back = list(swf.iter_outcomes(path, malformed="refuse"))
    assert [outcome.job for outcome in back] == [outcome.job for outcome in outcomes]
    for found, given_ in zip(back, outcomes, strict=True):
        assert (found.state, found.processors_used, found.partition) == (
            given_.state,
            given_.processors_used,
            given_.partition,
        )
        assert found.start_time == pytest.approx(given_.start_time, abs=1e-5)
        assert found.end_time == pytest.approx(given_.end_time, abs=1e-5)
    read = swf.read_header(path)
    assert read == header


@given(data=st.binary(max_size=3000) | st.text("0123456789 .-+e\n;\t", max_size=3000).map(str.encode))
@settings(deadline=None)
def test_any_bytes_give_rows_or_a_clear_refusal(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    path.write_bytes(data)
    table = None
    with suppress(BadInput):  # any other exception fails the test
        table = swf.read_table(path, keep="all")
    if table is not None:
        assert len(table) > 0
        assert np.isfinite(table.submit).all()


WHOLE = (0, 4, 7, 10, 11, 12, 13, 14, 15)

numbers = st.integers(-(10**14), 10**14)

processors = st.integers(-1, 10**8)

columns = st.tuples(*(processors if i in (4, 7) else numbers for i in range(18))).map(list)


@given(rows=st.lists(columns, min_size=1, max_size=5))
@settings(deadline=None, max_examples=50)
def test_numbers_of_any_size_are_read_exactly(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]]
) -> None:
    """Numbers with up to 14 digits and up to six of them behind the point."""
    words = [
        [f"{number}" if i in WHOLE else f"{number / 10**6:.6f}" for i, number in enumerate(row)]
        for row in rows
    ]
    for row in words:
        row[1] = row[1].lstrip("-")
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    path.write_text("".join(" ".join(row) + "\n" for row in words))
    (values,) = _swf_rows.iter_rows(path, malformed="refuse")
    assert values.tolist() == [[float(word) for word in row] for row in words]


LOGS = {
    "CTC-SP2-1996-3.1-cln": (77222, 77205, 338),
    "DOST-ASTI-COARE-Saliksik-2020-cln": (19760, 19760, 1728),
    "HPC2N-2002-2.2-cln": (202871, 202871, 240),
    "KTH-SP2-1996-2.1-cln": (28476, 28468, 100),
    "LPC-EGEE-2004-1.2-cln": (234889, 214322, 140),
    "SDSC-BLUE-2000-4.2-cln": (243306, 232536, 1152),
    "SDSC-DS-2004-2.1-cln": (96069, 84893, 1664),
    "SDSC-SP2-1998-4.2-cln": (59715, 54034, 128),
}


@pytest.mark.traces
@pytest.mark.parametrize("name", LOGS)
def test_real_logs(traces: Path, name: str) -> None:
    rows, ran, processors = LOGS[name]
    table = swf.read_table(traces / f"{name}.swf.gz", keep="all", malformed="refuse")
    assert len(table) == rows
    assert int((table.run > 0).sum()) == ran
    assert table.total_processors == processors
    assert table.processors.min() >= 1
    assert (np.diff(table.submit) >= 0).all()
    if name.startswith("SDSC-DS"):
        assert int((table.wait < 0).sum()) == 149
    if name.startswith("HPC2N"):
        assert int((table.status == -1).sum()) == 878
