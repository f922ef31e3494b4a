"""Listening Unix sockets, opened by systemd or created here, and the users that may connect."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from pwd import getpwnam
from typing import Final

from advisor.model.errors import BadInput
from advisor.model.settings import Settings

_BACKLOG: Final = 128
_MODE: Final = 0o660
_MODE_FOR_EVERY_USER: Final = 0o666
_FIRST_PASSED: Final = 3
"""File descriptor of the first socket that systemd passes (sd_listen_fds(3))."""
_PROBE_SECONDS: Final = 1.0
_PROC: Final = Path("/proc")
_PAGES_UNIT: Final = "/advisor-web.service"
_CREDENTIALS: Final = struct.Struct("3i")
_SLURM_USER: Final = re.compile(r"^\s*SlurmUser\s*=\s*([^\s#(]+)", re.IGNORECASE)


class SocketFile:
    """A listening Unix socket and its file.

    Args:
        path: Path of the socket, at most 107 bytes.
        group: Group of a file that is created here; empty keeps the process's own.
        every_user: Whether all users may connect; who connects is known by `peer_uid`.
    """

    def __init__(self, path: Path, *, group: str = "", every_user: bool = False) -> None:
        self.path = path
        self._made = path.with_suffix(".new")
        self._group = group
        self._mode = _MODE_FOR_EVERY_USER if every_user else _MODE
        self._socket: socket.socket | None = None
        self._inode: int | None = None

    def claim(self) -> None:
        """Take the socket that systemd has opened; without one, bind one with mode 0660 (0666).

        The file of a process that has ended is replaced.

        Raises:
            BadInput: The path is too long or taken, the folder, the group or a permission is missing, another
                process listens there, or systemd's socket has another path.
        """
        self._socket = passed_by_systemd(os.environ)
        if self._socket is None:
            try:
                self._socket = self._bound()
            except (OSError, LookupError) as error:
                raise BadInput(
                    f"the socket cannot be made ({getattr(error, 'strerror', None) or error})",
                    where=str(self.path),
                    mend="Set paths.run to a folder with a short name that the service's user may write to, "
                    "and submit.socket_group to one of this user's groups",
                    code="socket.cannot_bind",
                ) from None
        elif self._socket.getsockname() != str(self.path):
            raise BadInput(
                f"systemd listens on {self._socket.getsockname()}",
                where=str(self.path),
                mend=f"Set paths.run, or write ListenStream={self.path} into advisor-serve.socket",
                code="socket.another_path",
            )

    def listen(self) -> socket.socket:
        """Listen on what was claimed; only then the file is in its place."""
        if self._socket is None:
            msg = "claim comes first"
            raise RuntimeError(msg)
        listener, self._socket = self._socket, None
        listener.listen(_BACKLOG)
        if self._inode is not None:
            self._made.replace(self.path)
        return listener

    def remove(self) -> None:
        """Close the socket and remove the file that was created here; systemd removes its own."""
        if self._socket is not None:
            self._socket.close()
        for path in (self._made, self.path):
            with suppress(OSError):  # it is gone already
                if path.stat().st_ino == self._inode:
                    path.unlink()

    def _bound(self) -> socket.socket:
        self._refuse_a_listener()
        self._made.unlink(missing_ok=True)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bound.bind(str(self._made))
            self._inode = self._made.stat().st_ino
            if self._group:
                shutil.chown(self._made, group=self._group)
            self._made.chmod(self._mode)
        except (OSError, LookupError):
            bound.close()
            self.remove()
            raise
        return bound

    def _refuse_a_listener(self) -> None:
        """Refuse a path on which a process listens; the file of a process that has ended may be replaced."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_PROBE_SECONDS)
            try:
                probe.connect(str(self.path))
            except FileNotFoundError:
                return
            except ConnectionRefusedError:
                if not stat.S_ISSOCK(self.path.lstat().st_mode):
                    raise FileExistsError(errno.EEXIST, "a file, no socket, is there: remove it") from None
                return
        raise BadInput(
            "another process listens on this socket",
            where=str(self.path),
            mend="`systemctl status advisor-serve advisor-control` shows which one runs; leave it, or stop "
            "it first",
            code="socket.in_use",
        )


def passed_by_systemd(environment: Mapping[str, str]) -> socket.socket | None:
    """The socket that systemd has opened for this process; None without a socket unit."""
    if environment.get("LISTEN_PID") != str(os.getpid()) or environment.get("LISTEN_FDS") != "1":
        return None
    passed = socket.socket(fileno=_FIRST_PASSED)
    passed.set_inheritable(False)
    return passed


def peer_uid(connection: socket.socket) -> int:
    """User id of the process at the other end, from the kernel (SO_PEERCRED); -1 for the pages.

    `advisor web` runs as our own user and must ask for nothing. A drop-in that lets its unit open Unix
    sockets hides ours from it, but not those that are made after its start.
    """
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(credentials)
    return -1 if uid == os.geteuid() and _may_be_the_pages(pid) else int(uid)


def _may_be_the_pages(pid: int) -> bool:
    """Whether a process is in the unit of the pages, or cannot be looked at: it ended, or hides itself."""
    if pid == 0:  # in another name space; the pages can make none
        return False
    try:
        return _PAGES_UNIT in (_PROC / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return True


def permitted_uids(settings: Settings) -> frozenset[int]:
    """Users that may ask: root, this process's user, slurm.conf's SlurmUser and ``submit.allowed_uids``."""
    uids = {0, os.geteuid(), *settings.submit.allowed_uids}
    slurm_user = read_slurm_user(settings.paths.slurm_conf)
    if slurm_user is not None:
        uids.add(slurm_user)
    return frozenset(uids)


def read_slurm_user(slurm_conf: Path) -> int | None:
    """User id of slurm.conf's ``SlurmUser``; None when the file or the user does not exist."""
    try:
        lines = slurm_conf.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        match = _SLURM_USER.match(line)
        if match is None:
            continue
        name = match[1]
        try:
            return int(name) if name.isdigit() else getpwnam(name).pw_uid
        except KeyError:
            return None
    return None
