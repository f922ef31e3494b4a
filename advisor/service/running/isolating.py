"""One bad node never stops the others (docs/faults.md, F28)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog

from advisor.model.errors import AdvisorError, TellAdmin

log = structlog.get_logger(__name__)

Item = TypeVar("Item")


def for_each(items: Iterable[Item], act: Callable[[Item], object]) -> None:
    """Do something with each item, whatever happens to the others.

    Raises
    ------
    AdvisorError
        When all had their turn: the last failure; one that nobody foresaw as TellAdmin.
    """
    failed: AdvisorError | None = None
    for item in items:
        try:
            act(item)
        except AdvisorError as error:
            failed = error
        except Exception as error:  # the rare path
            log.exception("item.failed", item=str(item)[:200])
            failed = TellAdmin(f"{type(error).__name__}: {error}", code="loop.item_failed")
            failed.__cause__ = error
    if failed is not None:
        raise failed


def do_all(*acts: Callable[[], object]) -> None:
    """Do one thing after the other, whatever becomes of those before.

    Raises
    ------
    AdvisorError
        As `for_each` does.
    """

    def do(act: Callable[[], object]) -> None:
        act()

    for_each(acts, do)
