"""Standard Workload Format: files and lines that are refused."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest

from advisor.history import _swf_header, _swf_rows, swf
from advisor.model.errors import BadInput
from tests.history.swf_lines import LINE, log

ENDLESS = {
    "zeros": b"\0" * 65536,
    "one line": b"1" * 65536,
    "blank lines": b"\n" * 65536,
    "comments": b"; Computer: x\n" * 5000,
    "comments without end": b";" * 65536,
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_d10_an_endless_file_ends_in_a_header_and_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Two gigabytes of zeros were read for 90 s at 1.6 GB of memory."""

    def endless(_path: Path, _progress: object = None) -> Iterator[bytes]:
        yield from repeat(ENDLESS[kind])

    path = log(tmp_path, LINE)
    monkeypatch.setattr(_swf_header, "iter_bytes", endless)
    monkeypatch.setattr(_swf_rows, "iter_bytes", endless)
    monkeypatch.setattr(_swf_rows, "_MAX_BYTES_WITHOUT_A_ROW", 1_000_000)
    tracemalloc.start()
    swf.read_header(path)
    with pytest.raises(BadInput) as refused:
        list(_swf_rows.iter_rows(path))
    assert refused.value.code == "trace.not_swf"
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_d10_a_pipe_and_a_device_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(BadInput, match="not a plain file"):
            swf.read_table(path)


@pytest.mark.parametrize(
    "line",
    [
        LINE.replace(" 100 ", " 1e14 "),
        LINE.replace(" 8 ", " 1000000000 "),
        LINE.replace("1 10 ", "1 1.7e12 ", 1),
    ],
)
def test_d12_a_job_that_no_machine_can_have_run_is_malformed(tmp_path: Path, line: str) -> None:
    problems = swf.MalformedLines()
    assert len(swf.read_table(log(tmp_path, LINE, line), report=problems)) == 1
    assert problems.first[0].reason.endswith("is out of range")


def _missing(tmp_path: Path) -> Path:
    return tmp_path / "missing.swf"


def _folder(tmp_path: Path) -> Path:
    return tmp_path


def _empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").write_bytes(b"")
    return tmp_path / "empty"


def _empty_gzip(tmp_path: Path) -> Path:
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
    return tmp_path / "empty.gz"


def _comments_only(tmp_path: Path) -> Path:
    return log(tmp_path, "; MaxProcs: 5")


def _truncated(tmp_path: Path) -> Path:
    lines = "".join(f"{i} {LINE[2:]}\n" for i in range(10_000))
    (tmp_path / "cut.swf.gz").write_bytes(gzip.compress(lines.encode())[:-2000])
    return tmp_path / "cut.swf.gz"


def _damaged(tmp_path: Path) -> Path:
    packed = bytearray(gzip.compress("".join(f"{i} {LINE[2:]}\n" for i in range(10_000)).encode()))
    packed[len(packed) // 2 : len(packed) // 2 + 20] = b"\xff" * 20
    (tmp_path / "damaged.swf.gz").write_bytes(packed)
    return tmp_path / "damaged.swf.gz"


def _binary(tmp_path: Path) -> Path:
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 100)
    return tmp_path / "binary"


def _web_page(tmp_path: Path) -> Path:
    return log(tmp_path, "<html>", *["<p>404 not found"] * 5000)


def _xz(tmp_path: Path) -> Path:
    (tmp_path / "log.xz").write_bytes(b"\xfd7zXZ\x00data")
    return tmp_path / "log.xz"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (_missing, "trace.unreadable"),
        (_folder, "trace.unreadable"),
        (_empty, "trace.empty"),
        (_empty_gzip, "trace.empty"),
        (_comments_only, "trace.empty"),
        (_truncated, "trace.truncated"),
        (_damaged, "trace.damaged"),
        (_binary, "trace.not_swf"),
        (_web_page, "trace.not_swf"),
        (_xz, "trace.compression"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, make, code: str) -> None:
    path = make(tmp_path)
    for read in (swf.read_table, lambda path: list(swf.iter_outcomes(path))):
        with pytest.raises(BadInput) as caught:
            read(path)
        assert caught.value.code == code
        assert str(path) in caught.value.where
        assert caught.value.mend


def test_a_file_that_may_not_be_read(open_folder: Path, without_rights) -> None:
    path = log(open_folder, LINE)
    path.chmod(0o000)
    with without_rights(), pytest.raises(BadInput, match="Permission denied") as caught:
        swf.read_table(path)
    assert caught.value.code == "trace.unreadable"
