"""A log is parsed once; whatever is wrong with the cache, the log is read."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.history import swf
from advisor.model.table import JobTable
from advisor.replay import cached_logs
from advisor.replay.sources import load_table

HEADER = "; UnixStartTime: 1000000000\n; MaxProcs: 128\n"


def line(job: int) -> str:
    return f"{job} {10 * job} 5 {60 + job} 4 -1 -1 4 600 -1 1 {job % 7} 1 -1 1 -1 -1 -1\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cached_logs, "_SMALLEST_LOG", 100)
    return tmp_path / "cache" / "burst-advisor"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The logs that were parsed, one entry each time."""
    found: list[Path] = []
    whole = swf.read_table

    def read(path: Path, **how: Any) -> JobTable:
        found.append(path)
        return whole(path, **how)

    monkeypatch.setattr(swf, "read_table", read)
    return found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.swf.gz"
    path.write_bytes(gzip.compress((HEADER + "".join(map(line, range(1, 200)))).encode()))
    return path


def same(first: JobTable, second: JobTable) -> bool:
    columns = ("job_id", "processors", "submit", "run", "user")
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in columns)


def test_a_log_is_parsed_once(log: Path, parsed: list[Path]) -> None:
    first, second = load_table(log), load_table(log)
    assert same(first, second)
    assert second.name == "a"
    assert len(parsed) == 1
    load_table(log, keep="all")
    assert len(parsed) == 2
    other = log.with_name("b.swf.gz")
    shutil.copy(log, other)
    assert load_table(other).name == "b"


def test_a_log_that_has_changed_is_parsed_anew(log: Path, parsed: list[Path]) -> None:
    load_table(log)
    log.write_bytes(gzip.compress((HEADER + "".join(map(line, range(1, 150)))).encode()))
    assert len(load_table(log)) == 149
    assert len(parsed) == 2


def test_a_damaged_cache_is_read_around(log: Path, parsed: list[Path], cache: Path) -> None:
    first = load_table(log)
    for path in cache.rglob("output.pkl"):
        path.write_bytes(b"\x80nonsense")
    assert same(load_table(log), first)
    assert len(parsed) == 2


def test_a_folder_that_others_may_write_is_not_used(log: Path, parsed: list[Path], cache: Path) -> None:
    load_table(log)
    cache.chmod(0o777)
    load_table(log)
    assert len(parsed) == 2


def test_without_a_folder_the_log_is_read(
    log: Path, parsed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    load_table(log)
    load_table(log)
    assert len(parsed) == 2
