"""What all pages share: settings, the history to read, what is cached, the what-ifs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from advisor.history.store import HistoryStore
from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.web.cache import Cache
from advisor.web.whatif_runs import WhatIfRuns

log = structlog.get_logger(__name__)

_SETTINGS_SECONDS: Final = 5.0
_BUSY_SECONDS: Final = 5.0


@dataclass(slots=True)
class Site:
    """The parts of one site.

    Attributes
    ----------
    first : Settings
        In force at the start; where it listens is theirs for as long as it runs.
    load : callable
        Reads the settings again; pages show those that are in the file now.
    runs : WhatIfRuns
        The what-ifs.
    cache : Cache
        What is shown for a while.
    token : str
        In every form; nobody who cannot read our pages knows it.
    """

    first: Settings
    load: Callable[[], Settings]
    runs: WhatIfRuns
    cache: Cache = field(default_factory=lambda: Cache(time.monotonic))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _last: Settings | None = None

    def settings(self) -> Settings:
        """As they are in the file; the last good ones where that is wrong."""
        return self.cache.get("settings", _SETTINGS_SECONDS, self._load)

    def _load(self) -> Settings:
        try:
            self._last = self.load()
        except AdvisorError as error:
            log.warning("web.settings_not_read", code=error.code, message=str(error))
        return self._last or self.first

    def history(self) -> HistoryStore:
        """The history, to be read and closed."""
        return HistoryStore(self.settings().paths.history_url, busy_seconds=_BUSY_SECONDS, read_only=True)

    @staticmethod
    def now() -> float:
        """Epoch seconds."""
        return time.time()
