"""Who may use the submit socket, and whose old file it may replace."""

from __future__ import annotations

import grp
import os
import socket
import stat
from pathlib import Path

import pytest

from advisor.model import BadInput
from advisor.service.exchange.socket_file import SocketFile, peer_uid, permitted_uids, read_slurm_user
from tests.service.site import make_settings


def refused(path: Path, group: str = "") -> str:
    with pytest.raises(BadInput) as caught:
        SocketFile(path, group=group).claim()
    assert str(path.parent) in str(caught.value) or caught.value.code == "socket.no_group"
    return caught.value.code


def test_made_for_owner_and_group_only_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "submit.sock"
    file = SocketFile(path, group=grp.getgrgid(os.getegid()).gr_name)
    file.claim()
    with file.listen():
        status = path.stat()
        assert stat.S_IMODE(status.st_mode) == 0o660
        assert status.st_gid == os.getegid()
    file.remove()
    assert not path.exists()
    file.remove()


def test_a_path_too_long_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 120)
    with pytest.raises(BadInput, match=r"Unix sockets allow 107") as caught:
        SocketFile(path).claim()
    assert caught.value.code == "socket.path_too_long"


def test_the_longest_path_works(tmp_path: Path) -> None:
    folder = tmp_path
    while len(os.fsencode(folder)) < 100:
        folder /= "d" * min(50, 100 - len(os.fsencode(folder)))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("s" * (107 - len(os.fsencode(folder)) - 1))
    assert len(os.fsencode(path)) == 107
    file = SocketFile(path)
    file.claim()
    file.listen().close()
    file.remove()


def test_folder_missing(tmp_path: Path) -> None:
    assert refused(tmp_path / "none" / "s") == "socket.no_folder"


def test_no_such_group(tmp_path: Path) -> None:
    assert refused(tmp_path / "s", group="no-such-group") == "socket.no_group"


def test_something_else_at_the_path_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    assert refused(path) == "socket.not_a_socket"
    assert path.read_text() == "precious"
    link = tmp_path / "link"
    link.symlink_to(path)
    assert refused(link) == "socket.not_a_socket"


def test_a_stale_file_is_replaced_a_live_one_never(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    first = SocketFile(path)
    first.claim()
    with first.listen():
        assert refused(path) == "socket.in_use"
        path.with_suffix(".lock").unlink()  # somebody cleaned up too eagerly: the listener still counts
        assert refused(path) == "socket.in_use"
        assert path.exists()
    first.remove()


def test_two_that_start_at_once(tmp_path: Path) -> None:
    first = SocketFile(tmp_path / "s")
    first.claim()
    assert refused(tmp_path / "s") == "socket.in_use"
    first.remove()
    second = SocketFile(tmp_path / "s")
    second.claim()
    second.remove()


def test_another_servers_file_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    file = SocketFile(path)
    file.claim()
    with file.listen(), socket.socket(socket.AF_UNIX) as other:
        path.rename(tmp_path / "moved")
        other.bind(str(path))
        file.remove()
        assert path.exists()


def test_the_kernel_says_who_asks() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_uid(ours) == os.geteuid()


def test_root_we_ourselves_slurm_user_and_those_allowed(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, submit={"allowed_uids": (4242,)})
    assert permitted_uids(settings) == {0, os.geteuid(), 4242}
    settings.paths.slurm_conf.write_text("# SlurmUser=bin\n slurmuser = 977 # as in the image\n")
    assert permitted_uids(settings) == {0, os.geteuid(), 4242, 977}


@pytest.mark.parametrize(
    ("text", "uid"),
    [("SlurmUser=root\n", 0), ("SlurmUser=root(0)\n", 0), ("SlurmUser=nobody-here\n", None), ("", None)],
)
def test_slurm_user_by_name(tmp_path: Path, text: str, uid: int | None) -> None:
    (tmp_path / "slurm.conf").write_text(text)
    assert read_slurm_user(tmp_path / "slurm.conf") == uid
