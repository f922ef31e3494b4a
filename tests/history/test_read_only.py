"""Readers that may not write: nothing is made or changed, and no right to write is needed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from advisor.history.store import HistoryStore
from advisor.model.errors import BadInput
from advisor.model.job import JobOutcome

Make = Callable[..., JobOutcome]


def test_no_history_yet_is_said_and_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no history yet") as caught:
        HistoryStore(f"sqlite:///{tmp_path}/history.db", read_only=True)
    assert caught.value.code == "history.missing"
    assert list(tmp_path.iterdir()) == []


def test_an_older_release_is_said_and_not_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    sqlite3.connect(path).close()
    path.write_bytes(b"")
    with pytest.raises(BadInput) as caught:
        HistoryStore(f"sqlite:///{path}", read_only=True)
    assert caught.value.code == "history.version"
    assert path.read_bytes() == b""


def test_a_newer_release_is_not_brought_up_to_date_by_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    HistoryStore(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    with pytest.raises(BadInput) as caught:
        HistoryStore(f"sqlite:///{path}", read_only=True)
    assert (caught.value.code, caught.value.mend) == ("history.version", "Upgrade the advisor")


def test_nothing_can_be_written(tmp_path: Path, make_outcome: Make) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    with HistoryStore(url) as store:
        store.add([make_outcome(1)])
    with HistoryStore(url, read_only=True) as reader:
        assert reader.count() == 1
        with pytest.raises(BadInput, match="read-only"):
            reader.add([make_outcome(2)])
        with HistoryStore(url) as store:  # neither waits for the other
            store.add([make_outcome(3)])
            assert reader.count() == 2


@pytest.mark.parametrize("writer", ["at work", "gone"])
def test_a_folder_that_may_only_be_read(
    open_folder: Path,
    make_outcome: Make,
    without_rights: Callable[[], AbstractContextManager[None]],
    writer: str,
) -> None:
    """With a writer its log is read, too; without one the file is all there is."""
    url = f"sqlite:///{open_folder}/history.db"
    with HistoryStore(url) as store:
        store.add([make_outcome(1)])
        if writer == "gone":
            store.close()
            assert [path.name for path in open_folder.iterdir()] == ["history.db"]
        for path in open_folder.iterdir():
            path.chmod(0o644)
        with without_rights(), HistoryStore(url, read_only=True) as reader:
            assert reader.count() == 1
