"""Making the submit socket: who may use it, and whose old file it may replace."""

from __future__ import annotations

import fcntl
import grp
import os
import re
import socket
import stat
import struct
from pathlib import Path
from pwd import getpwnam
from typing import Final

from advisor.model.errors import BadInput
from advisor.model.settings import Settings

MAX_PATH_BYTES: Final = 107
"""Longest path of a Unix socket on Linux (108 bytes with the NUL)."""

_BACKLOG: Final = 128
_MODE: Final = 0o660
_CREDENTIALS: Final = struct.Struct("3i")
_SLURM_USER: Final = re.compile(r"^\s*SlurmUser\s*=\s*([^\s#(]+)", re.IGNORECASE)


class SocketFile:
    """A listening Unix socket with its file and its lock.

    Parameters
    ----------
    path : Path
        Where; at most 107 bytes.
    group : str
        Group that owns it; empty keeps the process's own.
    """

    def __init__(self, path: Path, *, group: str = "") -> None:
        self.path = path
        self._group = group
        self._lock_file: int | None = None
        self._inode: int | None = None
        self._group_id = -1

    def claim(self) -> None:
        """Make sure the path can be had, and keep it from others; :meth:`listen` follows when all is warm.

        Raises
        ------
        BadInput
            Path too long, folder missing, no permission, unknown group, somebody listens already, or the
            path is no socket. An old socket file is removed only when nobody listens on it.
        """
        self._check_path()
        self._group_id = self._find_group()
        try:
            self._take_lock()
            self._remove_stale()
        except BadInput:
            self._release_lock()
            raise
        except OSError as error:
            self._release_lock()
            raise self._cannot_bind(error) from None

    def listen(self) -> socket.socket:
        """Bind and listen, mode 0660.

        Raises
        ------
        BadInput
            No permission.
        """
        try:
            return self._bind(self._group_id)
        except OSError as error:
            self._release_lock()
            raise self._cannot_bind(error) from None

    def _cannot_bind(self, error: OSError) -> BadInput:
        return BadInput(
            f"the socket cannot be made ({error.strerror})",
            where=str(self.path),
            mend="Set paths.run to a folder the advisor's user may write to, and submit.socket_group to one "
            "of his groups",
            code="socket.cannot_bind",
        )

    def remove(self) -> None:
        """Remove the file if it is still the one we made, and give up the lock."""
        try:
            if self._inode is not None and self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except OSError:  # already gone: that is what we wanted
            pass
        self._release_lock()

    def _release_lock(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _check_path(self) -> None:
        length = len(os.fsencode(self.path))
        if length > MAX_PATH_BYTES:
            raise BadInput(
                f"the socket's path is {length} bytes long; Unix sockets allow {MAX_PATH_BYTES}",
                where=str(self.path),
                mend="Set paths.run to a shorter folder",
                code="socket.path_too_long",
            )
        if not self.path.parent.is_dir():
            raise BadInput(
                "the socket's folder does not exist",
                where=str(self.path.parent),
                mend="Create it, owned by the advisor's user (systemd: RuntimeDirectory=advisor)",
                code="socket.no_folder",
            )

    def _find_group(self) -> int:
        if not self._group:
            return -1
        try:
            return grp.getgrnam(self._group).gr_gid
        except KeyError:
            raise BadInput(
                f"there is no group {self._group!r}",
                where="submit.socket_group",
                mend="Name the group of slurmctld's user, usually slurm",
                code="socket.no_group",
            ) from None

    def _take_lock(self) -> None:
        """Two servers that start at once must not both find the old socket stale."""
        lock = os.open(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise self._in_use() from None
        self._lock_file = lock

    def _in_use(self) -> BadInput:
        return BadInput(
            "another advisor serve is using this socket",
            where=str(self.path),
            mend="Stop it first (systemctl stop advisor-serve), or set another paths.run",
            code="socket.in_use",
        )

    def _remove_stale(self) -> None:
        try:
            mode = self.path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise BadInput(
                "there is something else at the socket's path",
                where=str(self.path),
                mend="Move it away, or set another paths.run",
                code="socket.not_a_socket",
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(self.path))
            except ConnectionRefusedError:
                self.path.unlink()
                return
            except OSError:  # its backlog is full or we may not connect: somebody is there
                pass
        raise self._in_use()

    def _bind(self, group: int) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            before = os.umask(0o177)
            try:
                listener.bind(str(self.path))
            finally:
                os.umask(before)
            # nobody can connect before listen(): the mode is right from the first connection on
            if group >= 0:
                os.chown(self.path, -1, group)
            self.path.chmod(_MODE)
            self._inode = self.path.stat().st_ino
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener


def peer_uid(connection: socket.socket) -> int:
    """User id of the process at the other end, as the kernel knows it (SO_PEERCRED)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(credentials)
    return int(uid)


def permitted_uids(settings: Settings) -> frozenset[int]:
    """Who may ask: root, this process's user, slurm.conf's SlurmUser and ``submit.allowed_uids``."""
    uids = {0, os.geteuid(), *settings.submit.allowed_uids}
    slurm_user = read_slurm_user(settings.paths.slurm_conf)
    if slurm_user is not None:
        uids.add(slurm_user)
    return frozenset(uids)


def read_slurm_user(slurm_conf: Path) -> int | None:
    """User id of slurm.conf's ``SlurmUser``; None when the file or the user is not there."""
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
