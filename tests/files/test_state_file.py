"""One small JSON file: what is read of a broken one, and what is left of a write that fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from structlog.testing import capture_logs

from advisor.files.field_types import Amount, JobId
from advisor.files.state_file import StateFile, good_entries
from advisor.model.errors import BadInput


def state_file(folder: Path) -> StateFile[dict[str, Any]]:
    return StateFile(folder / "state.json", dict[str, Any])


def test_what_was_written_is_read(tmp_path):
    file = state_file(tmp_path)
    for content in ({"a": [1, 2]}, {"b": "é"}):
        file.write(content)
        assert state_file(tmp_path).read() == content
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("content", [None, b"", b'{"a": 1', b"[1, 2]", b"7", b"\xff\xfe"])
def test_a_file_that_is_missing_or_no_object_is_an_empty_one(tmp_path, content):
    path = tmp_path / "state.json"
    if content is not None:
        path.write_bytes(content)
    assert state_file(tmp_path).read() == {}


@pytest.mark.parametrize("content", [b'{"a": 1', b"[1, 2]", b"\xff\xfe", b"[" * 100_000])
def test_d5_a_damaged_file_is_said_once_and_kept_aside(tmp_path, content):
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with capture_logs() as logs:
        assert state_file(tmp_path).read() == {}
        assert state_file(tmp_path).read() == {}
    assert [(line["event"], line["log_level"]) for line in logs] == [("state.damaged", "error")]
    assert (tmp_path / "state.json.bad").read_bytes() == content


class Purchase(msgspec.Struct):
    """A record with constraints."""

    usd: Amount = 0.0
    by_job: dict[JobId, float] = {}


@pytest.mark.parametrize("content", ['{"usd": -1}', '{"usd": "x"}', '{"by_job": {"-7": 1}}', '{"usd": NaN}'])
def test_a_record_whose_values_break_a_constraint_is_a_damaged_one(tmp_path: Path, content: str) -> None:
    file = StateFile(tmp_path / "state.json", Purchase)
    file.path.write_text(content)
    with pytest.raises(BadInput) as caught:
        file.load()
    assert caught.value.code == "state.damaged"
    assert file.read() == Purchase()
    assert (tmp_path / "state.json.bad").read_text() == content


def test_numbers_of_numpy_are_written_and_unknown_fields_are_ignored(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json", Purchase)
    file.write(Purchase(np.float64(2.5), {7: np.float64(1.0)}))
    assert file.load() == Purchase(2.5, {7: 1.0})
    file.path.write_text('{"usd": 3, "of_a_later_release": 1}')
    assert file.load() == Purchase(3.0)


def test_entries_that_cannot_be_decoded_are_left_out_and_told() -> None:
    raws = [msgspec.Raw(text) for text in (b"1", b'"x"', b"{", b"2")]
    with capture_logs() as logs:
        assert good_entries(raws, int, "entry.unreadable") == [1, 2]
    assert [line["event"] for line in logs] == ["entry.unreadable"] * 2


def test_d5_whoever_has_to_know_is_told(tmp_path):
    file = state_file(tmp_path)
    assert file.load() is None
    file.path.write_bytes(b"half a {")
    with pytest.raises(BadInput) as caught:
        file.load()
    assert caught.value.code == "state.damaged"
    assert file.path.exists()


def test_d5_what_was_there_before_stays_as_another_file(tmp_path):
    file, previous = state_file(tmp_path), state_file(tmp_path).former
    file.write_keeping_former({"a": 1})
    assert previous.load() is None
    for number in (2, 3):
        file.write_keeping_former({"a": number})
        assert (file.load(), previous.load()) == ({"a": number}, {"a": number - 1})
    file.path.write_bytes(b"")
    assert previous.load() == {"a": 2}  # another file, not another name of the same


def test_d5_at_no_moment_of_a_write_do_both_names_lead_to_one_file(tmp_path, monkeypatch):
    """The process may be killed at any of these moments, and the file damaged where it lies."""
    file, previous = state_file(tmp_path), state_file(tmp_path).former
    for number in (1, 2):
        file.write_keeping_former({"a": number})
    seen = []

    def after(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            result = call(*arguments, **named)
            assert not previous.path.samefile(file.path)
            seen.append((file.read()["a"], previous.read()["a"]))
            return result

        return called

    for owner, name in ((os, "fsync"), (Path, "hardlink_to"), (Path, "replace"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, after(getattr(owner, name)))
    file.write_keeping_former({"a": 3})
    assert list(dict.fromkeys(seen)) == [(2, 1), (3, 1), (3, 2)]


def test_d5_a_write_that_fails_leaves_the_former_record_too(tmp_path, monkeypatch):
    file, previous = state_file(tmp_path), state_file(tmp_path).former
    for number in (1, 2):
        file.write_keeping_former({"a": number})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.write_keeping_former({"a": 3})
    assert (file.load(), previous.load()) == ({"a": 2}, {"a": 1})


def test_a_write_that_fails_leaves_the_old_object(tmp_path, monkeypatch):
    file = state_file(tmp_path)
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
    file, previous = state_file(tmp_path), state_file(tmp_path).former
    for number in (1, 2):
        file.write_keeping_former({"a": number})

    def none(_self: Path, _target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", none)
    file.write_keeping_former({"a": 3})
    assert (file.load(), previous.load()) == ({"a": 3}, None)
