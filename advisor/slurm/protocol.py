"""The interface to Slurm that the control loops use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from advisor.model.scheduler import CloudScheduler
from advisor.model.snapshot import PENDING

_WAITING: Final = {"EXPEDITING": PENDING, "SPECIAL_EXIT": PENDING}
"""States of pending jobs: with ``--requeue=expedite`` after its node failed (Slurm 25.11 and later), and held
after an exit code of ``RequeueExitHold`` or by ``scontrol requeuehold State=SpecialExit``."""


def state_of(shown: str) -> str:
    """The state that a row of squeue shows, in the words of 22.05; an unknown one is kept."""
    return _WAITING.get(shown.strip(), shown.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingExport:
    """sacct's output, for ``advisor.history.ingest.ingest_sacct``."""

    fields: tuple[str, ...]
    delimited_by: str
    lines: Iterator[str]


class SlurmBackend(CloudScheduler, Protocol):
    """The interface to Slurm, in addition to that to any scheduler."""

    def accounting(
        self, since: float, until: float | None = None
    ) -> AbstractContextManager[AccountingExport]:
        """Ended jobs, for ``advisor.history.ingest.ingest_sacct``; times are epoch seconds."""
        ...

    def is_administrator(self, user: str) -> bool:
        """Whether the accounting makes a user Administrator: an Operator may not change nodes."""
        ...

    def version(self) -> tuple[int, ...]:
        """Slurm's release, e.g. ``(22, 5, 8)``."""
        ...
