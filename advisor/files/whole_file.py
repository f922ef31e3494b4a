"""Files written whole, so that a reader sees the old one or the new one; files of others read with care."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, TypeVar

from advisor.model.errors import BadInput, RetryLater

Result = TypeVar("Result")

_FOR_NOW: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})

_NO_FILE: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.ENOTDIR})
"""A link, a socket, or something else than a folder on the way to it."""


@contextmanager
def replacing(
    path: Path, *, durable: bool = False, mode: int = 0o666, check: Callable[[], None] = lambda: None
) -> Iterator[IO[bytes]]:
    """Open a file beside ``path`` that takes its place when the block ends without an error.

    Args:
        path: The file; its folder must exist.
        durable: Flush the file and its folder to the disk: after this the new content survives a power cut.
            Without it a power cut may leave the old file, or none.
        mode: Permissions of the new file, less the umask.
        check: Called last, before the new file takes its place; where it raises, the old one stays.

    Raises:
        OSError: The folder is missing, full or not writable; the old file stays. Or ``path`` is a device,
            such as /dev/null, which root could replace for the whole host.
    """
    if not path.is_symlink() and (path.is_char_device() or path.is_block_device()):
        raise OSError(errno.EINVAL, "Is a device", str(path))
    # the host too: another one may share the folder, and its process may have the same number
    partial = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.partial")
    try:
        with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        check()
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    if durable:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def resemble(file: IO[bytes], former: os.stat_result) -> None:
    """Give a new file the mode and, as far as this user may, the owner of the one that it replaces."""
    with suppress(PermissionError):  # only root may give a file away
        os.fchown(file.fileno(), former.st_uid, former.st_gid)
    os.fchmod(file.fileno(), former.st_mode & 0o7777)


@contextmanager
def keeping_former(path: Path, former: Path) -> Iterator[None]:
    """Replace ``path`` in this block; the old one stays as ``former``, should the new one be damaged later.

    ``former`` is replaced last: at no moment do both names lead to one file, which one fault could damage.

    Raises:
        OSError: The folder cannot be written; ``former`` stays.
    """
    link = former.with_name(former.name + ".new")
    is_first = has_link = False
    try:
        link.unlink(missing_ok=True)
        link.hardlink_to(path)
        has_link = True
    except FileNotFoundError:
        is_first = True
    except OSError:
        pass  # some file systems have no hard links
    try:
        yield
    except Exception:
        if has_link:
            link.unlink(missing_ok=True)
        raise
    if has_link:
        link.replace(former)
    elif not is_first:  # no copy is better than one that grows old
        former.unlink(missing_ok=True)


def replace_file(
    path: Path, content: bytes, *, durable: bool = False, check: Callable[[], None] = lambda: None
) -> None:
    """Put a new file in place of an old one; see `replacing`."""
    with replacing(path, durable=durable, check=check) as file:
        file.write(content)


def read_plain_file(path: Path, most_bytes: int) -> bytes:
    """Content of a plain file that other users may have put there.

    It follows no link, does not wait for the writer of a FIFO, and reads at most ``most_bytes``.

    Args:
        most_bytes: A larger file is refused.

    Raises:
        FileNotFoundError: There is none.
        RetryLater: This process or the host lacks something for the moment (``file.later``), whatever the
            file is.
        BadInput: It is not a plain file, too large, or cannot be read (``file.unusable``).
    """
    try:
        content = unless_stale(lambda: _read(path, most_bytes + 1))
    except FileNotFoundError:
        raise
    except OSError as error:
        text = error.strerror or type(error).__name__
        if error.errno in _FOR_NOW:
            raise RetryLater(
                f"{path} cannot be read for the moment ({text}): check this host's free memory and its limit "
                "of open files",
                code="file.later",
            ) from error
        if isinstance(error, PermissionError):
            mend = "Run the command as the service's user; if that user may not read it either, chown it"
            raise _unusable(path, text, mend) from error
        if error.errno in _NO_FILE:
            raise _unusable(path, "it is a link" if error.errno == errno.ELOOP else text) from error
        raise _unusable(path, text, "Check the disk or file server that it is on") from error
    if len(content) > most_bytes:
        raise _unusable(path, f"it is larger than {most_bytes} bytes")
    return content


def unless_stale(read: Callable[[], Result]) -> Result:
    """What ``read`` returns; it is called once more if another host has replaced the file meanwhile.

    NFS tells a reader so that has found the old file by its name (ESTALE).
    """
    try:
        return read()
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return read()


def read_replaced(path: Path, most_bytes: int) -> bytes:
    """The first bytes of a file that another process replaces again and again.

    Raises:
        OSError: It cannot be read.
    """

    def read() -> bytes:
        with path.open("rb") as file:
            return file.read(most_bytes)

    return unless_stale(read)


def _read(path: Path, most_bytes: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _unusable(path, "it is not a plain file")
        return file.read(most_bytes)


def set_aside(path: Path) -> Path:
    """Rename an entry to a free name that ends in ``.bad``, for an admin to look at; returns the new name.

    Raises:
        OSError: It cannot be renamed.
    """
    names = (
        path.with_name(f"{path.name}{middle}.bad") for middle in ("", *(f".{n}" for n in range(1, 1000)))
    )
    target = next((name for name in names if not os.path.lexists(name)), None)
    if target is None:
        raise OSError(errno.EEXIST, "a thousand with .bad at the end lie beside it: remove those", str(path))
    path.rename(target)
    return target


def _unusable(path: Path, why: str, mend: str = "Find out what has put it there, and remove it") -> BadInput:
    return BadInput(why, where=str(path), mend=mend, code="file.unusable")
