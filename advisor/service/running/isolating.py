"""Act on nodes or jobs one by one: one that fails does not stop the others (docs/faults.md, F28)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from advisor.model.errors import AdvisorError, TellAdmin

_MAX_ITEM_CHARACTERS: Final = 200
_NOT_WRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})
"""What the admin has to mend, and no defect."""

Item = TypeVar("Item")


def not_writable(error: Exception) -> TellAdmin | None:
    """What the admin is told of a full disk or missing rights; None for any other failure."""
    if isinstance(error, OSError) and error.errno in _NOT_WRITABLE:
        return TellAdmin(
            f"{error}. Make room on the disk, or let this user write there", code="loop.not_writable"
        )
    return None


def for_each(items: Iterable[Item], act: Callable[[Item], object]) -> None:
    """Do something with each item, whatever happens to the others.

    Raises:
        AdvisorError: When all had their turn: the last failure. A defect of ours comes before the failures
            that are foreseen, as TellAdmin with the defect as its cause; the loop that meets it writes the
            traceback once.
    """
    failed: AdvisorError | None = None
    defect: AdvisorError | None = None
    for item in items:
        try:
            act(item)
        except AdvisorError as error:
            failed = error
        except Exception as error:  # noqa: BLE001 -- the other items go on; it is raised below
            if (told := not_writable(error)) is not None:
                failed = told
                continue
            text = f"{str(item)[:_MAX_ITEM_CHARACTERS]}: {type(error).__name__}: {error}. "
            text += "This is an error of the advisor: please report it with the traceback in the journal"
            defect = TellAdmin(text, code="loop.item_failed")
            defect.__cause__ = error
    if defect is not None:
        raise defect
    if failed is not None:
        raise failed


def do_all(*acts: Callable[[], object]) -> None:
    """Do one thing after the other, whatever becomes of those before.

    Raises:
        AdvisorError: As `for_each` does.
    """
    for_each(acts, lambda act: act())
