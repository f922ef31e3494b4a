"""The run-time distributions in the submit server: the last ones that `advisor control` has saved."""

from __future__ import annotations

from typing import Final

import structlog

from advisor.history.models import ModelStore
from advisor.model.job import Job
from advisor.predict.run_times.run_times import RunTimesOfJobs

RUN_TIMES_KIND: Final = "run-times"
"""The kind of model under which `advisor control` saves ``RunTimesOfJobs.to_arrays()``, every ten minutes."""

log = structlog.get_logger(__name__)


class RunTimesFollower:
    """Keeps :attr:`current` up to date; :meth:`refresh` is the watcher thread's."""

    def __init__(self, models: ModelStore) -> None:
        self._store = models
        self._looked_at: str | None = None
        self.version: str | None = None
        self.current: RunTimesOfJobs | None = None

    def refresh(self) -> None:
        """Load the newest run times, if they have changed.

        Raises:
            AdvisorError: They are damaged; the former ones stay in use.
        """
        version = self._store.current(RUN_TIMES_KIND)
        if version is None or version == self._looked_at:
            return
        self._looked_at = version  # also if it fails, so that a damaged version is tried once
        arrays, _ = self._store.load(RUN_TIMES_KIND, version)
        known = RunTimesOfJobs.from_arrays(arrays)
        known.chances(Job(job_id=0, submit_time=0.0, processors=1, requested_time=3600.0))
        self.current, self.version = known, version
        log.info("run_times.in_use", version=version)
