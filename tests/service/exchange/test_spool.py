"""Records on their way to the ledger: never waited for, never handed over half."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from advisor.history.records import AdviceRecord
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimates
from advisor.service.exchange.spool import SpoolWriter, complete_files, complete_leftovers, frame
from tests.full_disk import room_for
from tests.service.site import Clock, FixedEstimator, ask, make_answerer, make_settings, make_snapshot


@pytest.fixture
def records(tmp_path: Path) -> list[AdviceRecord]:
    answerer, _ = make_answerer(make_settings(tmp_path), make_snapshot(), FixedEstimator(), Clock())
    return [answerer.answer(ask(name='q"\n')).record for _ in range(20)]


def read_all(folder: Path) -> list[AdviceRecord]:
    return [record for file in complete_files(folder) for record in file.records]


def test_everything_queued_is_in_complete_files_after_a_stop(
    tmp_path: Path, records: list[AdviceRecord]
) -> None:
    folder = tmp_path / "state" / "spool"
    spool = SpoolWriter(folder, rotate_seconds=60)
    spool.start()
    assert all(spool.append(record) for record in records)
    spool.stop()
    assert read_all(folder) == records
    assert (spool.written, spool.dropped, spool.waiting) == (20, 0, 0)
    assert list(folder.glob("*.open")) == []


def test_files_are_handed_over_in_order(tmp_path: Path, records: list[AdviceRecord]) -> None:
    folder = tmp_path / "spool"
    spool = SpoolWriter(folder, rotate_seconds=60, rotate_bytes=1)
    spool.start()
    for record in records:
        spool.append(record)
    spool.stop()
    assert len(list(complete_files(folder))) == 20
    assert {record.advice.advice_id for record in read_all(folder)} == {r.advice.advice_id for r in records}


def test_a_quiet_file_is_handed_over_after_a_while(tmp_path: Path, records: list[AdviceRecord]) -> None:
    folder = tmp_path / "spool"
    spool = SpoolWriter(folder, rotate_seconds=0.05)
    spool.start()
    spool.append(records[0])
    pause = threading.Event()
    for _ in range(500):
        if read_all(folder):
            break
        pause.wait(0.01)
    assert read_all(folder) == records[:1]
    spool.stop()


def test_a_full_queue_drops_and_counts_and_never_waits(tmp_path: Path, records: list[AdviceRecord]) -> None:
    spool = SpoolWriter(tmp_path / "spool", capacity=5)  # not started: a disk that hangs
    assert [spool.append(record) for record in records[:7]] == [True] * 5 + [False] * 2
    assert spool.dropped == 2


def test_a_disk_that_fails_loses_records_and_goes_on(tmp_path: Path, records: list[AdviceRecord]) -> None:
    folder = tmp_path / "spool"
    spool = SpoolWriter(folder, rotate_seconds=60)
    spool.start()
    moved = tmp_path / "moved"
    folder.rename(moved)
    spool.append(records[0])
    while spool.dropped == 0:
        threading.Event().wait(0.005)
    moved.rename(folder)
    spool.append(records[1])
    spool.stop()
    assert read_all(folder) == [records[1]]


def test_what_has_been_written_outlives_a_killed_server(tmp_path: Path, records: list[AdviceRecord]) -> None:
    spool = SpoolWriter(tmp_path, rotate_seconds=60)
    spool.start()
    spool.append(records[0])
    spool.append(records[1])
    while spool.written < 2:
        threading.Event().wait(0.005)
    (left_open,) = tmp_path.glob("*.open")  # nobody has handed it over
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / left_open.name).write_bytes(left_open.read_bytes())
    spool.stop()
    assert complete_leftovers(killed) == 1
    assert read_all(killed) == records[:2]


def test_a_full_disk_loses_and_counts_what_comes_while_it_is_full(
    tmp_path: Path, records: list[AdviceRecord]
) -> None:
    folder = tmp_path / "spool"
    spool = SpoolWriter(folder, rotate_seconds=60)
    spool.start()
    spool.append(records[0])
    while spool.written < 1:
        threading.Event().wait(0.005)
    with capture_logs() as logged, room_for(len(frame(records[0]))):
        spool.append(records[1])
        while spool.dropped < 1:
            threading.Event().wait(0.005)
        with room_for(0):
            for lost in range(2, 9):
                spool.append(records[lost])
                while spool.dropped < lost:
                    threading.Event().wait(0.005)
    spool.append(records[9])
    spool.stop()
    assert read_all(folder) == [records[0], records[9]]
    assert (spool.written, spool.dropped, spool.waiting) == (2, 8, 0)
    told = [line["dropped"] for line in logged if line["event"] == "spool.write_failed"]
    assert told == [1, 2, 4, 8], "the log is on the same disk"
    assert [path.suffix for path in folder.iterdir()] == [".spool"] * 2  # none is left to the next start


def test_a_record_that_cannot_be_written_costs_itself(tmp_path: Path, records: list[AdviceRecord]) -> None:
    bad = replace(records[0], job=replace(records[0].job, memory_mb=2**70))
    spool = SpoolWriter(tmp_path, rotate_seconds=60)
    spool.start()
    spool.append(bad)
    spool.append(records[1])
    spool.stop()
    assert read_all(tmp_path) == [records[1]]
    assert (spool.written, spool.dropped) == (1, 1)


def test_a_killed_servers_file_is_completed_and_its_half_record_skipped(
    tmp_path: Path, records: list[AdviceRecord]
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    whole = b"".join(frame(record) for record in records[:3])
    (folder / "advice-1-1-1.open").write_bytes(whole + frame(records[3])[:50])
    spool = SpoolWriter(folder)
    spool.start()
    spool.stop()
    (file,) = complete_files(folder)
    assert (file.records, file.unreadable) == (tuple(records[:3]), 1)


def test_the_file_of_another_hosts_server_is_left_to_it(tmp_path: Path, records: list[AdviceRecord]) -> None:
    (tmp_path / "advice-1-1-1.other.site.open").write_bytes(frame(records[0]))
    spool = SpoolWriter(tmp_path)
    spool.start()
    spool.append(records[1])
    spool.stop()
    assert read_all(tmp_path) == [records[1]]
    assert (tmp_path / "advice-1-1-1.other.site.open").exists()


def test_a_damaged_record_costs_itself_a_damaged_length_the_rest(
    tmp_path: Path, records: list[AdviceRecord]
) -> None:
    first, second, third = (frame(record) for record in records[:3])
    damaged = second[:4] + b"\xc1" * (len(second) - 4)
    for name, content, kept, unreadable in (
        ("1", first + damaged + third, [records[0], records[2]], 1),
        ("2", first + b"\xff\xff\xff\xff" + third, [records[0]], 1),
        ("3", first + b"\0\0\0\0" + third, [records[0]], 1),
        ("4", first + b"\0", [records[0]], 1),
        ("5", b"", [], 0),
    ):
        path = tmp_path / f"{name}.spool"
        path.write_bytes(content)
        (file,) = complete_files(tmp_path)
        assert (list(file.records), file.unreadable) == (kept, unreadable), name
        path.unlink()


def test_a_file_that_cannot_be_read_holds_up_no_other(tmp_path: Path, records: list[AdviceRecord]) -> None:
    folder = tmp_path / "spool"
    (folder / "advice-1.host.spool").mkdir(parents=True)
    (folder / "advice-2.host.spool").write_bytes(frame(records[0]))
    found = complete_files(folder)
    assert next(found).records == (records[0],)
    with pytest.raises(IsADirectoryError):
        next(found)


def test_unknown_numbers_survive(tmp_path: Path, records: list[AdviceRecord]) -> None:
    unknown = replace(records[0], estimates=Estimates())
    (tmp_path / "1.spool").write_bytes(frame(unknown))
    (file,) = complete_files(tmp_path)
    wait = file.records[0].estimates.wait
    assert math.isnan(wait.seconds)
    assert wait.variance == math.inf


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput) as caught:
        SpoolWriter(tmp_path / "file" / "spool").start()
    assert caught.value.code == "spool.folder"
