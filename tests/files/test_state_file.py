"""One small JSON file: what is read of a broken one, and what is left of a write that fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from advisor.files.state_file import StateFile
from advisor.model.errors import BadInput


def test_what_was_written_is_read(tmp_path):
    file = StateFile(tmp_path / "state.json")
    for content in ({"a": [1, 2]}, {"b": "é"}):
        file.write(content)
        assert StateFile(file.path).read() == content
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("content", [None, b"", b'{"a": 1', b"[1, 2]", b"7", b"\xff\xfe"])
def test_a_file_that_is_missing_or_no_object_is_an_empty_one(tmp_path, content):
    path = tmp_path / "state.json"
    if content is not None:
        path.write_bytes(content)
    assert StateFile(path).read() == {}


@pytest.mark.parametrize("content", [b'{"a": 1', b"[1, 2]", b"\xff\xfe", b"[" * 100_000])
def test_d5_a_damaged_file_is_said_once_and_kept_aside(tmp_path, content):
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with capture_logs() as logs:
        assert StateFile(path).read() == {}
        assert StateFile(path).read() == {}
    assert [(line["event"], line["log_level"]) for line in logs] == [("state.damaged", "error")]
    assert (tmp_path / "state.json.bad").read_bytes() == content


def test_d5_whoever_has_to_know_is_told(tmp_path):
    file = StateFile(tmp_path / "state.json")
    assert file.load() is None
    file.path.write_bytes(b"half a {")
    with pytest.raises(BadInput) as caught:
        file.load()
    assert caught.value.code == "state.damaged"
    assert file.path.exists()


def test_d5_what_was_there_before_stays_as_another_file(tmp_path):
    file, previous = StateFile(tmp_path / "state.json"), StateFile(tmp_path / "state.json.old")
    file.write_after(previous, {"a": 1})
    assert previous.load() is None
    for number in (2, 3):
        file.write_after(previous, {"a": number})
        assert (file.load(), previous.load()) == ({"a": number}, {"a": number - 1})
    file.path.write_bytes(b"")
    assert previous.load() == {"a": 2}  # another file, not another name of the same


def test_a_write_that_fails_leaves_the_old_object(tmp_path, monkeypatch):
    file = StateFile(tmp_path / "state.json")
    file.write({"a": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.write({"a": 2})
    assert file.read() == {"a": 1}
    with capture_logs() as logs:
        file.keep({"a": 3}, "state.not_kept")
    assert file.read() == {"a": 1}
    assert [(line["event"], line["error"]) for line in logs] == [
        ("state.not_kept", "No space left on device")
    ]


def test_where_there_are_no_hard_links_nothing_old_is_taken_for_the_last_one(tmp_path, monkeypatch):
    file, previous = StateFile(tmp_path / "state.json"), StateFile(tmp_path / "state.json.old")
    for number in (1, 2):
        file.write_after(previous, {"a": number})

    def none(_self: Path, _target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", none)
    file.write_after(previous, {"a": 3})
    assert (file.load(), previous.load()) == ({"a": 3}, None)
