"""Records on their way to the ledger: never waited for, never handed over half."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from advisor.history.records import AdviceRecord, encode
from advisor.model import BadInput
from advisor.service.spool import SpoolWriter, complete_files
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


def test_a_killed_servers_file_is_completed_and_its_half_line_skipped(
    tmp_path: Path, records: list[AdviceRecord]
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    lines = b"".join(encode(record) + b"\n" for record in records[:3])
    (folder / "advice-1-1-1.open").write_bytes(lines + encode(records[3])[:50])
    spool = SpoolWriter(folder)
    spool.start()
    spool.stop()
    (file,) = complete_files(folder)
    assert (file.records, file.unreadable) == (tuple(records[:3]), 1)


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput) as caught:
        SpoolWriter(tmp_path / "file" / "spool").start()
    assert caught.value.code == "spool.folder"
