"""Forecasts of the advisor's own rule and their results: calibration and record of a live site.

As in a replay, every job is forecast at its submission, its wait is judged when it has started and its run
time when it has ended. A candidate that stayed on-premise adds what the cloud would have saved it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from advisor.decide.submission.placement import PlacementCase, as_case
from advisor.decide.submission.proven import candidate_chance, trusted_seconds
from advisor.decide.submission.record import RecordKeeper, could_have_saved, record_of
from advisor.history.records import AdviceRecord
from advisor.model.advice import Advice, Mode, Placement
from advisor.model.estimate import Estimate, Estimates, holds
from advisor.model.job import JobOutcome
from advisor.model.settings import PlacementSettings
from advisor.model.site import Earned, TrackRecord
from advisor.predict.forecast.calibration import IntervalCalibration
from advisor.predict.forecast.forecaster import Forecaster
from advisor.predict.forecast.placement_features import EventKind, PlacementFeatures
from advisor.predict.forecast.queue_events import KEY, KIND, TIME, Floats, apply_event, submission_in
from advisor.predict.forecast.rolling import TARGETS
from advisor.predict.forecast.submission_features import Submission
from advisor.predict.knn.fitness import Target
from advisor.service.learn.hedge_price import HedgePrice
from advisor.service.state.hedge_entries import HedgeOutcome
from advisor.service.state.records import EarnedBand, EarnedRecord

_MAX_OPEN: Final = 200_000
_FEW_ENDS: Final = 1_000
_DRIFT_SHARE: Final = 0.25
_MIN_DRIFT_SECONDS: Final = 15.0
_RATIO_DRIFT: Final = 0.05
_DRIFT_PROCESSORS: Final = (1, 16, 128)
"""The boot time in force is a quantile of the last 50 boots, and moves by less from day to day."""


@dataclass(slots=True)
class _Open:
    """A job that was forecast and has not ended."""

    submitted: float
    requested_time: float | None
    wait: Estimate
    run: Estimate
    case: PlacementCase
    chance: float | None
    """Probability of being faster in the cloud; None for a job that does not count for the record."""
    started: float | None = None
    judged: set[Target] = field(default_factory=set)
    """Targets whose intervals have been judged."""
    is_over: bool = False
    """The job has ended or is no longer followed."""


class PlacementRecord:
    """Follows a stream of events and makes forecasts of its own.

    Args:
        kept: :meth:`earned` of an earlier process; ignored if its settings differ.
        hedges: Notified of every job that is forecast, has ended or is gone.
    """

    def __init__(
        self,
        settings: PlacementSettings,
        kept: EarnedRecord | None = None,
        *,
        hedges: HedgePrice | None = None,
    ) -> None:
        self._settings = settings
        self._hedges = hedges
        self._open: dict[int, _Open] = {}
        self._keeper = RecordKeeper(settings.win_probability)
        self._moved = RecordKeeper(settings.win_probability)  # what is in it of jobs in the cloud
        self.calibrations: Mapping[Target, IntervalCalibration] = {
            target: IntervalCalibration() for target in TARGETS
        }
        self._ends: list[tuple[float, int, Target, _Open]] = []  # a heap: when intervals will be exceeded
        self._numbers = itertools.count()
        self.boot_seconds = settings.boot_seconds
        """The boot time in force: learned, else the setting."""
        self.line = self.earned_line = (settings.overhead_per_processor, settings.baseline)
        """(o, i) of s(c) in force, and those with which the record was earned."""
        self.earned_boot_seconds = settings.boot_seconds
        """The boot time with which the record was earned."""
        self.is_earned = False
        """Whether the record contains the history or an earlier record, not only jobs since the start."""
        if kept is not None:
            self._take_up(kept)

    @property
    def record(self) -> TrackRecord:
        """The record; what is at risk is not in it."""
        return self._keeper.record

    @property
    def trusted_seconds(self) -> float:
        """How much of the record counts."""
        return trusted_seconds(self.record, self._settings)

    @property
    def may_lose_seconds(self) -> float:
        """What jobs in the cloud may lose: known savings of moves, and a share of the optimum.

        The optimum is the sum of the record's gains without its losses.
        """
        known = math.fsum(band.saved_seconds for band in self._moved.record.bands)
        return self._settings.loss_share * could_have_saved(self.record) + known

    @property
    def bounds(self) -> dict[Target, tuple[float, float]]:
        """Where intervals are cut now."""
        return {target: calibration.cut for target, calibration in self.calibrations.items()}

    @property
    def is_outdated(self) -> bool:
        """Whether boot time or s(c) has changed so much that the record's gains would be others.

        Every gain contains one boot: with slower boots the record would allow stakes on gains no job had.
        """
        drift = abs(self.boot_seconds - self.earned_boot_seconds)
        boots = drift > max(_MIN_DRIFT_SECONDS, _DRIFT_SHARE * self.earned_boot_seconds)
        (o, i), (earned_o, earned_i) = self.line, self.earned_line
        runs = any(
            abs((o - earned_o) * processors + i - earned_i)
            > _RATIO_DRIFT * (earned_o * processors + earned_i)
            for processors in _DRIFT_PROCESSORS
        )
        return self.is_earned and (boots or runs)

    @property
    def reckoned(self) -> PlacementSettings:
        """The settings with the boot time, o and i that are in force."""
        overhead, baseline = self.line
        return self._settings.model_copy(
            update={
                "boot_seconds": self.boot_seconds,
                "overhead_per_processor": overhead,
                "baseline": baseline,
            }
        )

    def begin_anew(self) -> None:
        """Reset the record, before the history, which contains the same jobs, is counted.

        What jobs lost in the cloud is not in the history of the on-premise queue, and stays.
        """
        self._keeper = RecordKeeper(self._settings.win_probability, self._moved.record)

    def earn(
        self,
        earned: TrackRecord,
        calibrations: Mapping[Target, IntervalCalibration],
        boot_seconds: float | None = None,
        line: tuple[float, float] | None = None,
    ) -> None:
        """Add what the history earned with a boot time, o and i (``line``), and take its calibration."""
        self.earned_boot_seconds = self.boot_seconds if boot_seconds is None else boot_seconds
        self.earned_line = self.line if line is None else line
        self._keeper.add(earned)
        self.calibrations = dict(calibrations)
        self.is_earned = True

    def take(self, row: Floats, observer: PlacementFeatures, forecaster: Forecaster | None) -> None:
        """Apply one event to the observer, and learn from it."""
        kind, key, time = EventKind(int(row[KIND])), int(row[KEY]), float(row[TIME])
        self._judge_exceeded(time)
        if kind is EventKind.SUBMIT and forecaster is not None and key not in observer:
            submission = submission_in(row)
            self._forecast(key, submission, observer.features(submission), forecaster)
        apply_event(observer, row)
        opened = self._open.get(key)
        if opened is None:
            return
        if kind in (EventKind.START, EventKind.START_AT_ONCE):
            opened.started = time
            self._judge(opened, "wait", time - opened.submitted)
            self._will_end(opened, "run", time + opened.run.upper)
        elif kind is EventKind.END:
            self._close(key)
            self._end(key, opened, time)
        elif kind in (EventKind.REQUEUE, EventKind.WITHDRAW, EventKind.CUT_SHORT):
            self._close(key)  # its run time on-premise is unknown, or it never started
            if self._hedges is not None:
                self._hedges.withdrawn(key)

    def moved(
        self,
        outcome: JobOutcome,
        advice: AdviceRecord | None,
        hedge_outcome: HedgeOutcome | None = None,
        ratio: float | None = None,
    ) -> None:
        """Count what a job that ended in the cloud lost there; what it seems to have won is not counted.

        How long it would have waited on-premise is only a forecast. Counted as a gain, a forecast would
        allow larger stakes by itself. A hedged job shows more. If it ended before its slot came, it lost
        nothing, and its gain is unknown. If its slot came, its wait is known. ``ratio`` is its learned s(c);
        default: the settings'.
        """
        if advice is None or advice.advice.placement is not Placement.BURST:
            return
        if advice.advice.mode is not Mode.ACT or not advice.estimates.wait.is_usable:
            return  # its user chose the cloud
        slot = hedge_outcome.slot_time if hedge_outcome is not None else None
        if hedge_outcome is not None and hedge_outcome.was_kept and slot is None:
            return
        submitted = outcome.job.submit_time
        # a job that was asked again had waited by then: what was forecast was still to come
        waited = max(0.0, advice.advice.time - advice.job.submit_time)
        wait = waited + advice.estimates.wait.seconds if slot is None else max(0.0, slot - submitted)
        slower = self._settings.performance_ratio(outcome.job.processors) if ratio is None else ratio
        here = wait + outcome.run_seconds / slower
        saved, chance = here - (outcome.end_time - submitted), _said(advice.advice)
        if saved < 0.0 or (slot is not None and chance is not None):
            for keeper in (self._keeper, self._moved):
                keeper.ended(outcome.job.job_id, saved, chance)

    def earned(self) -> EarnedRecord:
        """The record as it is saved."""
        return EarnedRecord(
            settings=self._signature(),
            bands=_plain(self.record),
            moved=_plain(self._moved.record),
            boot_seconds=self.earned_boot_seconds,
            line=self.earned_line,
            calibration={target: each.state for target, each in self.calibrations.items()},
        )

    def _take_up(self, kept: EarnedRecord) -> None:
        if kept.settings != self._signature():
            return  # with another s(c) or boot time the gains would have been others
        earned, calibrations = self._kept_record(kept), _calibrations(kept)
        if earned is None or calibrations is None or len(earned.bands) != len(self.record.bands):
            return
        # earlier releases did not save the boot time, o and i
        boot_seconds = self._settings.boot_seconds if kept.boot_seconds is None else kept.boot_seconds
        self.earn(earned, calibrations, boot_seconds, kept.line or self.earned_line)
        self._moved.add(_bands(kept.moved))

    def _kept_record(self, kept: EarnedRecord) -> TrackRecord | None:
        if kept.bands is not None:
            return _bands(kept.bands)
        # earlier releases saved one sum over all likely jobs instead of bands
        sums = (kept.saved_seconds, kept.absolute_seconds, kept.squared_seconds)
        known = [each for each in sums if each is not None]
        return record_of(_earned(*known), self._settings) if len(known) == len(sums) else None

    def _signature(self) -> list[float]:
        own = self._settings
        return [
            own.overhead_per_processor,
            own.baseline,
            own.boot_seconds,
            own.margin,
            own.win_probability,
        ]

    def _forecast(self, key: int, submission: Submission, features: Floats, forecaster: Forecaster) -> None:
        request = None if np.isnan(submission.request) else submission.request
        found = forecaster.forecast(features, request, self.bounds)
        estimates = Estimates(wait=found["wait"], run=found["run"])
        case = as_case(
            processors=submission.processors,
            requested_time=request,
            estimates=estimates,
            boot=self.boot_seconds,
            settings=self.reckoned,
        )
        opened = _Open(submission.time, request, found["wait"], found["run"], case, candidate_chance(case))
        self._open[key] = opened
        self._will_end(opened, "wait", submission.time + opened.wait.upper)
        if self._hedges is not None:
            self._hedges.submitted(key, estimates, submission.processors, request, submission.time)
        if len(self._open) > _MAX_OPEN:
            self._close(next(iter(self._open)))

    def _end(self, key: int, opened: _Open, time: float) -> None:
        if opened.started is None:
            if self._hedges is not None:
                self._hedges.withdrawn(key)
            return
        run = time - opened.started
        self._judge(opened, "run", run)
        if opened.requested_time is not None:
            self.calibrations["run"].learn_overrun(run, opened.requested_time)
        if self._hedges is not None:
            self._hedges.ended(key, opened.started - opened.submitted, run)
        if opened.chance is not None:
            wait = opened.started - opened.submitted
            self._keeper.ended(key, wait - opened.case.penalty_seconds(run), opened.chance)

    def _close(self, key: int) -> None:
        self._open.pop(key).is_over = True

    def _will_end(self, opened: _Open, target: Target, time: float) -> None:
        """Schedule the time at which a job's wait or run exceeds its interval."""
        heapq.heappush(self._ends, (time, next(self._numbers), target, opened))
        if len(self._ends) > 4 * len(self._open) + _FEW_ENDS:
            self._ends = [end for end in self._ends if not end[-1].is_over]
            heapq.heapify(self._ends)

    def _judge_exceeded(self, now: float) -> None:
        """Count intervals that jobs have exceeded by now as missed, without waiting for the jobs' end."""
        while self._ends and self._ends[0][0] < now:
            _, _, target, opened = heapq.heappop(self._ends)
            if target not in opened.judged and not opened.is_over:
                self._judge(opened, target, np.inf)

    def _judge(self, opened: _Open, target: Target, truth: float) -> None:
        if truth >= 0.0 and target not in opened.judged:
            estimate = opened.wait if target == "wait" else opened.run
            opened.judged.add(target)
            self.calibrations[target].learn(inside=holds(estimate.lower, truth, estimate.upper))


def _calibrations(kept: EarnedRecord) -> dict[Target, IntervalCalibration] | None:
    """The saved calibration; None if it is from a release that cut intervals in another way."""
    if kept.calibration is None:
        return {target: IntervalCalibration() for target in TARGETS}
    if not set(TARGETS) <= kept.calibration.keys():
        return None
    try:
        return {target: IntervalCalibration(kept.calibration[target]) for target in TARGETS}
    except ValueError:
        return None


def _plain(record: TrackRecord) -> list[EarnedBand]:
    return [(band.saved_seconds, band.absolute_seconds, band.squared_seconds) for band in record.bands]


def _bands(kept: Sequence[EarnedBand]) -> TrackRecord:
    return TrackRecord(bands=tuple(_earned(*band) for band in kept))


def _earned(saved: float, absolute: float, squared: float) -> Earned:
    return Earned(saved_seconds=saved, absolute_seconds=absolute, squared_seconds=squared)


def _said(advice: Advice) -> float | None:
    """The probability of being faster that an advice rested on; None where it has none."""
    chance = advice.number("win_probability")
    return chance if chance is not None and 0.0 <= chance <= 1.0 else None
