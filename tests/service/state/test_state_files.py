"""The table of state files is complete, true, and the one on the page."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import advisor
from advisor.files import whole_file
from advisor.model.errors import RetryLater
from advisor.service.running.clock import Clock
from advisor.service.state import state_files
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.hedge_entries import HedgeRecord
from advisor.service.state.records import OwnWeights
from advisor.service.state.state_files import BUDGET, HEDGE_ENTRIES, STATE_FILES, KnownFile, known_file

SOURCE = Path(advisor.__file__).parent
REGISTRY = SOURCE / "service" / "state" / "state_files.py"
PAGE = SOURCE.parent / "docs" / "state-files.md"


def record_name(file: KnownFile[object]) -> str:
    return "OwnWeights" if file.record is OwnWeights else file.record.__name__


def rows() -> list[list[str]]:
    """The rows of the page's table, as cells."""
    lines = (line for line in PAGE.read_text().splitlines() if line.startswith("| `"))
    return [line.strip("| ").split(" | ") for line in lines]


def test_the_page_has_the_table() -> None:
    told = [(name, record, loss) for name, record, _, _, loss in rows()]
    assert told == [(f"`{file.name}`", record_name(file), file.loss) for file in STATE_FILES]


def test_every_file_of_the_registry_is_in_the_table_once() -> None:
    listed = {name for name, value in vars(state_files).items() if isinstance(value, KnownFile)}
    assert len(STATE_FILES) == len({file.name for file in STATE_FILES}) == len(listed)


def test_a_state_file_is_opened_through_the_table_only() -> None:
    opened = re.compile(r"\bStateFile\(")
    others = {path for path in SOURCE.rglob("*.py") if opened.search(path.read_text())}
    assert others == {REGISTRY, SOURCE / "files" / "state_file.py"}


@pytest.mark.parametrize("file", STATE_FILES, ids=lambda file: file.name)
def test_who_writes_and_reads_is_true(file: KnownFile[object], tmp_path: Path) -> None:
    constant = next(name for name, value in vars(state_files).items() if value is file)
    words = {constant, record_name(file)}
    writer, readers = next((cells[2], cells[3]) for cells in rows() if cells[0] == f"`{file.name}`")
    modules = re.findall(r"`([^`]+)`", f"{writer}, {readers}")
    assert modules, file.name
    for module in modules:
        text = (SOURCE / module).read_text()
        assert any(re.search(rf"\b{word}\b", text) for word in words), module
    assert file.at(tmp_path).load() is None
    assert file.at(tmp_path).path == tmp_path / file.name


@pytest.mark.parametrize(
    "start",
    [
        lambda folder: HedgeRecord(HEDGE_ENTRIES.at(folder)),
        lambda folder: SpendingBudget(BUDGET.at(folder), Clock()),
        lambda folder: CloudRecord(folder, Clock()),
    ],
)
def test_what_cannot_be_opened_for_the_moment_is_neither_set_aside_nor_replaced(
    start: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor_left(path: Path, _: int) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    for name in ("places.json", "budget.json", "cloud.json"):
        (tmp_path / name).write_bytes(b"what an earlier process has written")
    monkeypatch.setattr(whole_file, "_read", no_descriptor_left)
    with pytest.raises(RetryLater, match="limit of open files"):
        start(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_copies_and_what_was_set_aside_belong_to_their_file() -> None:
    for name in ("budget.json", "budget.json.old", "budget.json.old.1.bad", "budget.json.bad"):
        assert known_file(name) is state_files.BUDGET
    assert known_file("history.db.bad") is None
