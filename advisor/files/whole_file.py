"""Whole files: written so that others see the old one or the new one, never half; read with suspicion."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from advisor.model.errors import BadInput, RetryLater

_FOR_NOW: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})


def replace_file(path: Path, content: bytes) -> None:
    """Put a new file in place of an old one.

    Not synced to the disk: after a power cut the old file, or none, is as good.

    Raises
    ------
    OSError
        The folder is missing, full or not writable; the old file stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_plain_file(path: Path, most_bytes: int) -> bytes:
    """Content of a plain file that others may have put there.

    A link is not followed, no writer of a FIFO is waited for, a file without an end is not read whole.

    Parameters
    ----------
    path : Path
        The file.
    most_bytes : int
        A larger one is refused.

    Raises
    ------
    FileNotFoundError
        There is none.
    RetryLater
        This process or the host lacks something for the moment (``file.later``), whatever the file is.
    BadInput
        It is not a plain file, too large, or cannot be read (``file.unusable``).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _unusable(path, "it is not a plain file")
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        text = error.strerror or type(error).__name__
        if error.errno in _FOR_NOW:
            raise RetryLater(f"{path}: {text}", code="file.later") from error
        raise _unusable(path, "it is a link" if error.errno == errno.ELOOP else text) from error
    if len(content) > most_bytes:
        raise _unusable(path, f"it is larger than {most_bytes} bytes")
    return content


def set_aside(path: Path) -> Path:
    """Rename an entry to a free name that ends in ``.bad``, so that people can look at it; the new name.

    Raises
    ------
    OSError
        It cannot be renamed.
    """
    names = (
        path.with_name(f"{path.name}{middle}.bad") for middle in ("", *(f".{n}" for n in range(1, 1000)))
    )
    target = next((name for name in names if not os.path.lexists(name)), None)
    if target is None:
        raise OSError(errno.EEXIST, "a thousand were set aside before: remove those", str(path))
    path.rename(target)
    return target


def _unusable(path: Path, why: str) -> BadInput:
    return BadInput(why, where=str(path), mend="Look who has put it there", code="file.unusable")
