"""Hand-overs: read with suspicion, written down before they are answered, lost by nothing."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from advisor.model.errors import BadInput, RetryLater, TellAdmin
from advisor.service.exchange.handover import HandoverFolder, decode

IDENTITY = "1795000000000000000-4711-00ff00ff"


def line(**changes: object) -> bytes:
    message = {
        "v": 1,
        "op": "resume",
        "id": IDENTITY,
        "time": 5.0,
        "nodes": "burst[1-2]",
        "resume_file": None,
    }
    return json.dumps(message | changes).encode() + b"\n"


def test_a_good_one() -> None:
    hand_over = decode(line())
    assert (hand_over.operation, hand_over.nodes, hand_over.time) == ("resume", ("burst1", "burst2"), 5.0)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"[]\n",
        b"nonsense\n",
        line(v=2),
        line(op="delete"),
        line(id="../../etc/passwd"),
        line(nodes=""),
        line(nodes="a;b"),
        line(nodes="a[1-99999999]"),
        line(time="soon"),
        line(nodes="--help"),
        line(nodes="burst1,-rf"),
        b'{"v":1}\n',
    ],
)
def test_bad_ones_are_refused(bad: bytes) -> None:
    with pytest.raises(BadInput):
        decode(bad)


@given(st.binary(max_size=200))
def test_f28_no_bytes_raise_anything_else(content: bytes) -> None:
    try:
        decode(content)
    except BadInput:
        return


@pytest.mark.parametrize(
    ("resume_file", "jobs"),
    [
        ('{"jobs":[{"job_id":7,"nodes":"burst[1-2]"}]}', {"burst1": 7, "burst2": 7}),
        (
            '{"jobs":[{"job_id":7,"nodes_alloc":"burst[1-3]","nodes_resume":"burst1"}]}',
            {"burst1": 7},
        ),
        ("half a {", {}),
        ('{"jobs":7}', {}),
        ('{"jobs":[[]]}', {}),
        (None, {}),
    ],
)
def test_resume_files_of_several_releases(resume_file: str | None, jobs: dict[str, int]) -> None:
    assert decode(line(resume_file=resume_file)).jobs == jobs


def test_the_nodes_of_a_job_are_those_to_resume_and_those_that_are_up() -> None:
    jobs = [
        {"job_id": 7, "nodes_alloc": "burst[1-3]", "nodes_resume": "burst2"},
        {"job_id": 8, "nodes": "burst4"},
        {"job_id": 9, "nodes_resume": "burst5"},
        {"job_id": 9, "nodes_resume": "burst6"},
    ]
    hand_over = decode(line(nodes="burst[2,4-6]", resume_file=json.dumps({"jobs": jobs})))
    assert hand_over.allocated == (("burst1", "burst2", "burst3"), ("burst4",), ("burst5", "burst6"))
    assert decode(line(nodes="burst1", resume_file="{}")).allocated == ()


def test_the_resume_file_of_26_05_has_priorities() -> None:
    jobs = [
        {"job_id": 7, "priority": 5, "nodes_resume": "burst[1-2]"},
        {"job_id": 8, "nodes_resume": "burst3"},
    ]
    hand_over = decode(line(nodes="burst[1-3]", resume_file=json.dumps({"jobs": jobs})))
    assert hand_over.jobs == {"burst1": 7, "burst2": 7, "burst3": 8}
    assert hand_over.priorities == {"burst1": 5, "burst2": 5}


def identity(number: int, process: int) -> str:
    return f"{number}-{process}-00ff00ff"


def test_a_resume_file_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[object] = []
    load = json.loads
    monkeypatch.setattr(json, "loads", lambda text: parsed.append(text) or load(text))
    resume_file = '{"jobs":[{"job_id":7,"priority":3,"nodes_alloc":"burst[1-2]"}]}'
    found = decode(line(resume_file=resume_file))
    assert (found.jobs, found.priorities) == ({"burst1": 7, "burst2": 7}, {"burst1": 3, "burst2": 3})
    assert found.allocated == (("burst1", "burst2"),)
    assert parsed.count(resume_file) == 1


@pytest.mark.parametrize("jump", [0, -1, -3_600_000_000_000, 10**15])
def test_f32_hand_overs_keep_the_order_in_which_they_came(tmp_path: Path, jump: int) -> None:
    """A suspend that waits is older than the resume after it, whatever the clock was set to between."""
    folder, now = HandoverFolder(tmp_path), 1_795_000_000_000_000_000
    for process, operation in enumerate(["suspend", "resume", "suspend"], 1):
        content = line(op=operation, id=identity(now + (process - 1) * jump, process))
        folder.put(decode(content), content)
    assert [found.operation for _, found in folder.waiting()] == ["suspend", "resume", "suspend"]
    assert len({path.name for path, _ in folder.waiting()}) == 3


def test_f32_files_of_the_former_release_keep_their_order(tmp_path: Path) -> None:
    for number, nodes in (
        (9, "old1"),
        (1_795_000_000_000_000_000, "old2"),
    ):  # the number counts, not its text
        (tmp_path / f"{identity(number, 1)}.json").write_bytes(line(id=identity(number, 1), nodes=nodes))
    folder = HandoverFolder(tmp_path)
    content = line(id=identity(10, 2), nodes="new")
    folder.put(decode(content), content)
    assert [found.nodes[0] for _, found in folder.waiting()] == ["old1", "old2", "new"]


def test_a_hand_over_that_comes_twice_is_one_file(tmp_path: Path) -> None:
    folder = HandoverFolder(tmp_path)
    for _ in range(2):
        folder.put(decode(line()), line())
    assert [path.name for path, _ in folder.waiting()] == [f"{IDENTITY}.json"]


def test_what_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    folder = HandoverFolder(tmp_path)
    folder.put(decode(line()), line())
    (tmp_path / "0-bad.json").write_text("nonsense")
    (tmp_path / ".half-written").write_text("{")
    assert [hand_over.identity for _, hand_over in folder.waiting()] == [IDENTITY]
    assert (tmp_path / "0-bad.json.bad").exists()


def directory(path: Path) -> None:
    path.mkdir()
    (path / "something").touch()


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def hand_over_behind_a_link(path: Path) -> None:
    other = path.parent / "elsewhere"
    other.write_bytes(line(id="1-1-00000000"))
    path.symlink_to(other)


def socket_file(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


ILL_ENTRIES = {
    "a directory": directory,
    "a dangling link": lambda path: path.symlink_to("/nonexistent"),
    "a link to a device": device,
    "a link to a hand-over": hand_over_behind_a_link,
    "a FIFO": os.mkfifo,
    "a socket": socket_file,
    "a terabyte": endless,
    "not readable": lambda path: path.write_bytes(line()),
    "a disk error": lambda path: path.write_bytes(line()),
    "an option for a name": lambda path: path.write_bytes(line(nodes="--help")),
    "an endless time": lambda path: path.write_bytes(line().replace(b"5.0", b"1e400")),
    "a number of 400 digits": lambda path: path.write_bytes(line().replace(b"5.0", b"9" * 400)),
}


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> dict[Path, int]:
    """Files that cannot be opened, and why; root may open everything."""
    errors: dict[Path, int] = {}
    opened = os.open

    def refusing(path: Path, *arguments: int) -> int:
        if path in errors:
            raise OSError(errors[path], os.strerror(errors[path]))
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", refusing)
    return errors


def said(logs: list[Any], event: str) -> int:
    return sum(entry["event"] == event for entry in logs)


@pytest.mark.parametrize("kind", ILL_ENTRIES)
def test_d3_one_ill_entry_is_set_aside_and_said_once_and_the_others_go_on(
    short_folder: Path, kind: str, unreadable: dict[Path, int]
) -> None:
    folder, path = HandoverFolder(short_folder), short_folder / "0.json"
    ILL_ENTRIES[kind](path)
    unreadable |= {path: {"not readable": errno.EACCES, "a disk error": errno.EIO}.get(kind, 0)}
    if not unreadable[path]:
        unreadable.clear()
    folder.put(decode(line()), line())
    with capture_logs() as logs:
        for _ in range(3):
            assert [hand_over.identity for _, hand_over in folder.waiting()] == [IDENTITY]
    assert said(logs, "handover.set_aside") == 1
    assert folder.set_aside_since_start == 1
    assert os.path.lexists(short_folder / "0.json.bad")  # for people to look at
    assert not os.path.lexists(path)


def test_d3_ill_entries_of_one_name_are_all_kept(tmp_path: Path) -> None:
    folder = HandoverFolder(tmp_path)
    for number in range(3):
        directory(tmp_path / "0.json")
        assert list(folder.waiting()) == []
        assert folder.set_aside_since_start == number + 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0.json.1.bad",
        "0.json.2.bad",
        "0.json.bad",
    ]


def test_d3_what_is_set_aside_does_not_pile_up(tmp_path: Path) -> None:
    folder = HandoverFolder(tmp_path)
    for number in range(250):
        (tmp_path / f"{number:04d}.json").touch()
    assert list(folder.waiting()) == []
    left = sorted(path.name for path in tmp_path.iterdir())
    assert (len(left), left[0]) == (200, "0050.json.bad")


@pytest.mark.parametrize("kind", ["a directory", "a FIFO", "an option for a name"])
def test_d3_an_entry_that_can_neither_be_used_nor_renamed_is_skipped_and_said_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = HandoverFolder(tmp_path)
    ILL_ENTRIES[kind](tmp_path / "0.json")
    folder.put(decode(line()), line())

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(Path, "rename", refused)
        for _ in range(3):
            assert [hand_over.identity for _, hand_over in folder.waiting()] == [IDENTITY]
        assert (said(logs, "handover.stuck"), folder.stuck) == (1, ("0.json",))
    assert len(list(folder.waiting())) == 1  # may be renamed again
    assert folder.stuck == ()


def test_d3_a_hand_over_that_cannot_be_removed_is_acted_upon_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = HandoverFolder(tmp_path)
    folder.put(decode(line()), line())

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(Path, "unlink", refused)
        acted = 0
        for _ in range(3):
            for path, _ in folder.waiting():
                acted += 1
                folder.done(path)
        assert (acted, said(logs, "handover.stuck"), len(folder.stuck)) == (1, 1, 1)
    assert list(folder.waiting()) == []
    assert (list(tmp_path.iterdir()), folder.stuck) == ([], ())


def test_d3_what_cannot_be_opened_for_the_moment_stays(tmp_path: Path, unreadable: dict[Path, int]) -> None:
    """Too many open files say nothing about a hand-over."""
    folder, path = HandoverFolder(tmp_path), tmp_path / "0.json"
    path.write_bytes(line(id="1-1-00000000"))
    folder.put(decode(line()), line())
    unreadable[path] = errno.EMFILE
    waiting = folder.waiting()
    assert next(waiting)[1].identity == IDENTITY  # the others first
    with pytest.raises(RetryLater):
        next(waiting)
    unreadable.clear()
    assert len(list(folder.waiting())) == 2


def test_d3_a_folder_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(TellAdmin, match="cannot be read"):
        list(HandoverFolder(tmp_path / "gone").waiting())


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="hand-over folder"):
        HandoverFolder(tmp_path / "file" / "handover").prepare()
