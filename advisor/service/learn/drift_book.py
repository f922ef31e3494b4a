"""The learn loop's record of whether forecasts hold, by partition and day, and of partitions fallen back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog

from advisor.decide.drift.drift import WEEK, fallen_back
from advisor.decide.explanation.reasons import Reason
from advisor.history.records import AdviceRecord
from advisor.model.advice import Mode, Placement
from advisor.model.drift import DayMeasured
from advisor.model.estimate import Estimate, holds
from advisor.model.job import JobOutcome
from advisor.model.settings import Settings
from advisor.service.learn.on_premise_equivalents import AskRatio
from advisor.service.running.clock import Clock
from advisor.service.state.state_files import DRIFT

log = structlog.get_logger(__name__)

DAY: Final = 86_400.0


class DriftBook:
    """Measures, decides once a round, and remembers both in a state file. One loop calls it."""

    def __init__(self, settings: Settings, clock: Clock, ratio: AskRatio) -> None:
        self._settings = settings
        self._clock = clock
        self._ratio = ratio
        self._file = DRIFT.at(settings.paths.state)
        self._drift = self._file.read()
        self._is_changed = False

    @property
    def current(self) -> dict[str, str]:
        """The partitions that have fallen back, and why, for what `advisor serve` decides with."""
        return {name: one.words for name, one in list(self._drift.fallen_back.items())}

    def judge(self, record: AdviceRecord, outcome: JobOutcome) -> None:
        """Compare what a whole job was advised with what came of it."""
        day = self._day_of(record)
        if outcome.partition != self._settings.cluster.burst_partition:
            if (waited := record.wait_of(outcome)) is not None:
                self._note(day, record.estimates.wait, waited)
            self._note(day, record.estimates.run, outcome.run_seconds)
        elif (promised := self._promised(record, outcome)) is not None:
            took = outcome.end_time - record.advice.time
            day.moved += 1
            day.promised_seconds += promised
            day.saved_seconds += promised - (took - self._turnaround_there(record))
        self._is_changed = True

    def decide(self) -> None:
        """Let partitions fall back or come back, and save what was measured."""
        today = int(self._clock.wall() // DAY)
        drift, settings = self._drift, self._settings.drift
        for name, days in list(drift.days.items()):
            kept = [one for one in days if today - 2 * WEEK < one.day <= today]
            drift.days[name] = kept
            before = drift.fallen_back.get(name)
            now = fallen_back(kept, today, before, settings)
            if now is None and before is not None:
                del drift.fallen_back[name]
                log.warning("drift.came_back", partition=name, measure=before.measure.value)
            elif now is not None and before is None:
                drift.fallen_back[name] = now
                log.error("drift.fell_back", partition=name, why=now.words)
            self._is_changed |= now is not before
        if self._is_changed:
            self._file.write(drift)
            self._is_changed = False

    def report(self) -> Mapping[str, Any]:
        """What `advisor status` shows."""
        fallen = list(self._drift.fallen_back.items())
        return {
            name: {"since": one.since_day * DAY, "measure": one.measure.value, "why": one.words}
            for name, one in fallen
        }

    def _day_of(self, record: AdviceRecord) -> DayMeasured:
        """The entry of today and the job's partition."""
        name = record.job.queue or self._settings.cluster.on_premise_partitions[0]
        today = int(self._clock.wall() // DAY)
        days = self._drift.days.setdefault(name, [])
        if not days or days[-1].day != today:
            days.append(DayMeasured(today))
        return days[-1]

    def _note(self, day: DayMeasured, given: Estimate, truth: float) -> None:
        if given.lower <= given.upper:  # NaN where there is no interval
            day.judged += 1
            day.inside += holds(given.lower, truth, given.upper)

    def _promised(self, record: AdviceRecord, outcome: JobOutcome) -> float | None:
        """Seconds that a job was forecast to be done sooner; None where the forecasts did not move it.

        None of an array: its later tasks may wait for the nodes of the first ones, there as here.
        """
        advice, estimates = record.advice, record.estimates
        is_moved = advice.placement is Placement.BURST and advice.mode is Mode.ACT and record.is_of_one_job
        if not is_moved or outcome.restarts or advice.decisive.reason == Reason.EXPLICIT_BURST:
            return None
        if not (estimates.wait.is_usable and estimates.run.is_usable):
            return None
        saved = estimates.wait.seconds + estimates.run.seconds - self._turnaround_there(record)
        return saved if saved > 0.0 else None

    def _turnaround_there(self, record: AdviceRecord) -> float:
        """Boot and run time in the cloud, as forecast."""
        boot = record.advice.values().get("boot", self._settings.placement.boot_seconds)
        return boot + self._ratio(record.job) * record.estimates.run.seconds
