"""Estimates of at most a second ago, kept for jobs that say the same.

Who submits in a loop submits much the same job again and again, and slurmctld waits each time while a
hundred trees are read with cold caches. Where nothing that was known has changed but the time, and that by a
second at most, a forecast of hours is the same: it is not worked out anew. A job that stays joins the queue,
which is another one for the next job: nothing is kept then. What is decided by them is judged for each job,
for each one that is moved takes of the money and of what may be staked
(:mod:`advisor.decide.submission.repeated`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from advisor.model.estimate import NO_SIZE, Estimates
from advisor.model.job import Job, family
from advisor.service.submit.live_placement import LivePlacement
from advisor.service.submit.state_holder import LoadedModel

KEPT_SECONDS: Final = 1.0
"""As old as an estimate may be: what it says of the day, and how long jobs have run, is off by so much."""


class KeptEstimates:
    """Estimates by what jobs say, as long as what they rest on stays. Its owner holds the lock."""

    def __init__(self) -> None:
        self._placement: LivePlacement | None = None
        self._changes = 0
        self._model: LoadedModel | None = None
        self._since = 0.0
        self._by_words: dict[Hashable, Estimates] = {}
        self._by_codes: dict[Hashable, Estimates] = {}

    def of(self, job: Job, placement: LivePlacement, model: LoadedModel | None) -> Estimates:
        """Wait, run time and size of a job that is submitted now (``job.submit_time``).

        Parameters
        ----------
        job : Job
            As submitted.
        placement : LivePlacement
            Forecasts wait and run time.
        model : LoadedModel or None
            Knows the size; None: it stays unknown.
        """
        if not (
            placement is self._placement
            and placement.changes == self._changes
            and model is self._model
            and 0.0 <= job.submit_time - self._since < KEPT_SECONDS
        ):
            self._begin(job.submit_time, placement, model)
        words = (job.user, job.name, job.processors, job.requested_time, job.queue, job.group)
        estimates = self._by_words.get(words)
        if estimates is None:
            estimates = self._by_words[words] = self._of_alike(job, placement, model)
        return estimates

    def _begin(self, now: float, placement: LivePlacement, model: LoadedModel | None) -> None:
        self._placement, self._changes, self._model, self._since = placement, placement.changes, model, now
        self._by_words, self._by_codes = {}, {}

    def _of_alike(self, job: Job, placement: LivePlacement, model: LoadedModel | None) -> Estimates:
        """The same for jobs that differ by a name nobody has met, as where a loop counts in it."""
        codes = (placement.codes_of(job), job.user, job.queue, family(job.name))
        estimates = self._by_codes.get(codes)
        if estimates is None:
            size = NO_SIZE if model is None else model.estimator.size_of(job)
            found = placement.forecast(job)
            estimates = Estimates(wait=found["wait"], run=found["run"], size=size)
            self._by_codes[codes] = estimates
        return estimates
