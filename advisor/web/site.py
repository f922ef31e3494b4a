"""The objects that all pages share: settings, history, cache and runs of what-if."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from advisor.config.loading import LoadedSettings
from advisor.history.store import HistoryStore
from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.web.cache import Cache
from advisor.web.gate import Gate
from advisor.web.whatif_runs import WhatIfRuns

log = structlog.get_logger(__name__)

_SETTINGS_SECONDS: Final = 5.0
_BUSY_SECONDS: Final = 5.0


@dataclass(slots=True)
class Site:
    """The objects that the pages of one site share.

    Attributes:
        first: Settings at the start; the address and port stay theirs.
        load: Reads the settings again, which the pages show, with their origins.
        gate: Who asks.
        settings_error: Why the settings file cannot be used; empty: it can.
    """

    first: Settings
    load: Callable[[], LoadedSettings]
    runs: WhatIfRuns
    cache: Cache = field(default_factory=lambda: Cache(time.monotonic))
    settings_error: str = ""
    _last: Settings | None = None
    gate: Gate = field(init=False)

    def __post_init__(self) -> None:
        self.gate = Gate(lambda: self.settings().web, time.time)

    def settings(self) -> Settings:
        """The settings in the file now; the last valid ones if the file is wrong."""
        return self.cache.get("settings", _SETTINGS_SECONDS, self._load)

    def _load(self) -> Settings:
        self.settings_error = ""
        try:
            self._last = self.load().settings
        except AdvisorError as error:
            self.settings_error = str(error)
            log.warning("web.settings_not_read", code=error.code, message=str(error))
        return self._last or self.first

    def history(self) -> HistoryStore:
        """The history, opened for reading; the caller closes it."""
        return HistoryStore(self.settings().history_url, busy_seconds=_BUSY_SECONDS, read_only=True)

    @staticmethod
    def now() -> float:
        """Epoch seconds."""
        return time.time()
