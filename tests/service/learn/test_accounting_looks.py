"""How far back the learn loop asks sacct, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from advisor.history.models import ModelStore
from advisor.history.store import HistoryStore
from advisor.model.errors import RetryLater
from advisor.model.settings import Settings
from advisor.model.settings_service import LoopSettings
from advisor.service.learn.learning import LearnLoop
from advisor.service.observation.accounting import SOURCE
from advisor.service.running.clock import Clock
from advisor.slurm.protocol import AccountingExport
from tests.history.test_ledger import record

NOW, LAST_END = 2_000_000_000.0, 1_999_999_900.0


class Accounting:
    """A slurmdbd that has nothing new, and remembers from when on it was asked."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.is_away = False

    @contextmanager
    def accounting(self, since: float, until: float | None = None) -> Iterator[AccountingExport]:
        assert until is None
        self.asked.append(LAST_END - since)
        if self.is_away:
            raise RetryLater("no answer", code="slurm.timeout")
        yield AccountingExport(fields=("JobIDRaw",), delimited_by="|", lines=iter(()))


def test_advice_leaves_the_ledger_after_the_days_of_the_settings(tmp_path: Path) -> None:
    with HistoryStore(f"sqlite:///{tmp_path / 'history.db'}") as store:
        store.add_advice(record(f"a-{days}", time=NOW - days * 86_400.0) for days in (29, 31, 399, 401))
        others: dict[str, Any] = dict.fromkeys(("slurm", "view", "metrics"), Mock())
        others["models"] = ModelStore(folder=tmp_path)
        for settings, kept in ((Settings(), 3), (Settings(loops=LoopSettings(ledger_days=30.0)), 1)):
            loop = LearnLoop(settings, store=store, clock=Clock(wall=lambda: NOW), **others)  # type: ignore[arg-type]
            assert any(step.run == loop.forget_old_advice for step in loop.steps()[:3])
            loop.forget_old_advice()
            assert len(list(store.decisions())) == kept


def test_the_last_hour_is_asked_again_every_ten_minutes_only(tmp_path: Path) -> None:
    moment = 0.0
    slurm = Accounting()
    with HistoryStore(f"sqlite:///{tmp_path / 'history.db'}") as store:
        store.set_cursor(SOURCE, repr(LAST_END))
        others: dict[str, Any] = {"models": ModelStore(folder=tmp_path), "view": None, "metrics": None}
        clock = Clock(wall=lambda: NOW + moment, monotonic=lambda: moment)
        loop = LearnLoop(Settings(), slurm=slurm, store=store, clock=clock, **others)  # type: ignore[arg-type]
        for moment in (0.0, 15.0, 585.0, 600.0, 615.0):  # noqa: B007 -- the clock reads it
            loop.ingest_accounting()
        assert slurm.asked == [3600.0, 120.0, 120.0, 3600.0, 120.0]
        slurm.asked.clear()
        slurm.is_away = True
        moment = 1200.0
        with pytest.raises(RetryLater):
            loop.ingest_accounting()
        slurm.is_away = False
        loop.ingest_accounting()  # a far look that failed is made up for
        assert slurm.asked == [3600.0, 3600.0]
