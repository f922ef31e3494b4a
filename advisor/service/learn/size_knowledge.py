"""The size model in `advisor control`: follows the live queue, learns ended jobs, is saved each minute."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import structlog

from advisor.history.models import ModelStore
from advisor.model.errors import BadInput, UseFallback
from advisor.model.job import JobOutcome
from advisor.model.snapshot import QueuedJob
from advisor.predict.size.size_model import SizeModel
from advisor.service.running.clock import Clock
from advisor.service.submit.models import SIZE_KIND

log = structlog.get_logger(__name__)

_SAVE_SECONDS: Final = 60.0


class SizeKnowledge:
    """Keeps the size model in force up to date; `advisor retrain` replaces it weekly."""

    def __init__(self, models: ModelStore, clock: Clock) -> None:
        self._models = models
        self._clock = clock
        self._model: SizeModel | None = None
        self._meta: dict[str, Any] = {}
        self._version: str | None = None
        self._saved_at = clock.monotonic()
        self._is_changed = False

    def refresh(self) -> None:
        """Load the model in force if it was trained anew."""
        version = self._models.current(SIZE_KIND)
        if version is None or version == self._version:
            return
        self._version = version
        try:
            arrays, self._meta = self._models.load(SIZE_KIND, version)
            self._model = SizeModel.from_arrays(arrays, self._meta)
        except (UseFallback, BadInput) as error:
            log.warning("size.not_loaded", version=version, message=str(error))
            self._model = None
        self._is_changed = False

    def observe(self, jobs: Iterable[QueuedJob], now: float) -> None:
        """Take in the queue: a user's pending and running jobs say much about their next job.

        A job that the safeguard requeued is pending again, but is known to be large.
        """
        if self._model is None:
            return
        self._model.observe(
            (
                (queued.job, queued.start_time if queued.holds_processors else None)
                for queued in jobs
                if queued.holds_processors or queued.is_queued
            ),
            now=now,
        )

    def learn(self, outcomes: Iterable[JobOutcome]) -> None:
        """Learn finished jobs, each once."""
        if self._model is None:
            return
        for outcome in outcomes:
            self._model.learn(outcome)
            self._is_changed = True

    def save(self, *, at_once: bool = False) -> bool:
        """Save the model for the submit server; False when nothing is new or it is too early.

        Where `advisor retrain` has ended since the last `refresh`, the newer model stays.
        """
        now = self._clock.monotonic()
        is_due = at_once or now - self._saved_at >= _SAVE_SECONDS
        if self._model is None or not self._is_changed or not is_due:
            return False
        if self._models.current(SIZE_KIND) != self._version:
            return False
        arrays, meta = self._model.to_arrays()
        self._version = self._models.save(SIZE_KIND, arrays, self._meta | meta)
        self._saved_at = now
        self._is_changed = False
        return True
