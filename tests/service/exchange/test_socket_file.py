"""Who may use the submit socket, and whose old file it may replace."""

from __future__ import annotations

import grp
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.model.errors import BadInput
from advisor.service.exchange import socket_file
from advisor.service.exchange.socket_file import (
    SocketFile,
    passed_by_systemd,
    peer_uid,
    permitted_uids,
    read_slurm_user,
)
from tests.service.site import make_settings


def refused(path: Path, group: str = "") -> str:
    with pytest.raises(BadInput) as caught:
        SocketFile(path, group=group).claim()
    assert str(path.parent) in str(caught.value)
    return caught.value.code


def test_made_for_every_user(tmp_path: Path) -> None:
    file = SocketFile(tmp_path / "submit.sock", every_user=True)
    file.claim()
    with file.listen():
        assert stat.S_IMODE((tmp_path / "submit.sock").stat().st_mode) == 0o666
    file.remove()


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
    with pytest.raises(BadInput, match="too long") as caught:
        SocketFile(tmp_path / ("x" * 120)).claim()
    assert caught.value.code == "socket.cannot_bind"


def test_the_longest_path_works(tmp_path: Path) -> None:
    folder = tmp_path
    while len(os.fsencode(folder)) < 95:
        folder /= "d" * min(50, 95 - len(os.fsencode(folder)))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("s" * (107 - len(os.fsencode(folder)) - 6) + ".sock")
    assert len(os.fsencode(path)) == 107
    file = SocketFile(path)
    file.claim()
    file.listen().close()
    file.remove()


def test_folder_missing(tmp_path: Path) -> None:
    assert refused(tmp_path / "none" / "s") == "socket.cannot_bind"


def test_no_such_group(tmp_path: Path) -> None:
    assert refused(tmp_path / "s", group="no-such-group") == "socket.cannot_bind"
    assert list(tmp_path.iterdir()) == []


def test_something_else_at_the_path_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    assert refused(path) == "socket.cannot_bind"
    assert path.read_text() == "precious"
    link = tmp_path / "link"
    link.symlink_to(path)
    assert refused(link) == "socket.cannot_bind"


def test_a_stale_file_is_replaced_a_live_one_never(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    first = SocketFile(path)
    first.claim()
    with first.listen():
        with pytest.raises(BadInput, match="advisor-serve advisor-control") as second:  # either may be there
            SocketFile(path).claim()
        assert second.value.code == "socket.in_use"
        assert path.exists()
    first.remove()


def test_a_client_finds_no_file_until_somebody_listens(tmp_path: Path) -> None:
    file = SocketFile(tmp_path / "s")
    file.claim()
    with socket.socket(socket.AF_UNIX) as early, pytest.raises(FileNotFoundError):
        early.connect(str(file.path))
    with file.listen(), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(file.path))
    file.remove()


_ACTIVATED = """
import os, socket, sys
from pathlib import Path
from advisor.service.exchange.socket_file import SocketFile
os.environ["LISTEN_PID"] = str(os.getpid())
file = SocketFile(Path(sys.argv[1]))
file.claim()
with file.listen() as listener:
    connection, _ = listener.accept()
    connection.sendall(b"here")
file.remove()
"""


def activated(path: Path, listener: socket.socket) -> subprocess.Popen[str]:
    """A process that gets the listener as its third file descriptor, as systemd does it."""
    return subprocess.Popen(
        [sys.executable, "-c", _ACTIVATED, str(path)],
        env={**os.environ, "LISTEN_FDS": "1"},
        preexec_fn=lambda: os.dup2(listener.fileno(), 3),  # noqa: PLW1509 (one thread)
        close_fds=False,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_socket_of_systemds_is_taken_and_left_in_place(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))  # waits in the queue until the process is up
            with activated(path, door) as process:
                assert client.recv(10) == b"here"
            assert process.returncode == 0
        assert path.exists()
        with activated(tmp_path / "other", door) as process:
            _, said = process.communicate()
        assert process.returncode != 0
        assert "ListenStream=" in said


def test_a_socket_of_another_process_is_none_of_ours() -> None:
    assert passed_by_systemd({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) is None
    assert passed_by_systemd({}) is None


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


def test_the_pages_are_nobody_although_they_run_as_the_service_s_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its drop-in for PostgreSQL lost sight of sockets made anew: seen under a real systemd."""
    monkeypatch.setattr(socket_file, "_PROC", tmp_path)
    own = tmp_path / str(os.getpid()) / "cgroup"
    own.parent.mkdir()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_uid(ours) == -1, "a process that hides itself"
        own.write_text("0::/system.slice/advisor-web.service\n")
        assert peer_uid(ours) == -1
        own.write_text("0::/system.slice/advisor-control.service\n")
        assert peer_uid(ours) == os.geteuid()
        own.write_bytes(b"0::/user.slice/gr\xfc\xdfe.scope\n")
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
