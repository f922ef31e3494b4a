"""What the advisor's own rule has forecast, and what came of it: calibration and record of a live site.

The same as in a replay: every job is forecast at its submission, its wait is judged when it has started, its
run time when it has ended, and a candidate that stayed adds what the cloud would have saved it.
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
    """Probability of being faster of a job that makes the record."""
    started: float | None = None
    judged: set[Target] = field(default_factory=set)
    """Whose interval has been found to hold or not."""
    is_over: bool = False
    """It has ended, or is not followed any more."""


class PlacementRecord:
    """Follows a stream of events with forecasts of its own.

    Parameters
    ----------
    settings : PlacementSettings
        Overheads, boot time, the rule's conditions.
    kept : EarnedRecord, optional
        :meth:`earned` of a former process; nothing is taken from one of other settings.
    hedges : HedgePrice, optional
        Told of every job that is forecast, has ended or is gone.
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
        """What decisions reckon with: learned, else the setting."""
        self.line = self.earned_line = (settings.overhead_per_processor, settings.baseline)
        """The same of o and i; and those that the record was earned with."""
        self.earned_boot_seconds = settings.boot_seconds
        """What the history's jobs were reckoned with when the record was earned."""
        self.is_earned = False
        """Whether it has more than what was seen since the start: the history, or an earlier record."""
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
        """What jobs in the cloud may lose: what moves are known to have saved, and a share of the optimum.

        The optimum are the gains of the record without its losses.
        """
        known = math.fsum(band.saved_seconds for band in self._moved.record.bands)
        return self._settings.loss_share * could_have_saved(self.record) + known

    @property
    def bounds(self) -> dict[Target, tuple[float, float]]:
        """Where intervals are cut now."""
        return {target: calibration.cut for target, calibration in self.calibrations.items()}

    @property
    def is_outdated(self) -> bool:
        """Whether nodes boot, or run, so much slower or faster now that what was earned is not what would be.

        Every gain in it contains one boot: with a slower one the record would vouch for stakes with winnings
        that nobody would have had.
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
        """The settings with boot time, o and i as decisions reckon with them now."""
        overhead, baseline = self.line
        return self._settings.model_copy(
            update={
                "boot_seconds": self.boot_seconds,
                "overhead_per_processor": overhead,
                "baseline": baseline,
            }
        )

    def begin_anew(self) -> None:
        """Forget what was seen so far: the history, which has it too, is about to be counted.

        What jobs in the cloud have lost is not in the history of the queue here, and stays.
        """
        self._keeper = RecordKeeper(self._settings.win_probability, self._moved.record)

    def earn(
        self,
        earned: TrackRecord,
        calibrations: Mapping[Target, IntervalCalibration],
        boot_seconds: float | None = None,
        line: tuple[float, float] | None = None,
    ) -> None:
        """Add what the history has earned with a boot time, o and i, and take its calibration."""
        self.earned_boot_seconds = self.boot_seconds if boot_seconds is None else boot_seconds
        self.earned_line = self.line if line is None else line
        self._keeper.add(earned)
        self.calibrations = dict(calibrations)
        self.is_earned = True

    def take(self, row: Floats, observer: PlacementFeatures, forecaster: Forecaster | None) -> None:
        """One event: told to the observer, and what it teaches taken in."""
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
            self._close(key)  # what it would have run here nobody knows yet, or it never started
            if self._hedges is not None:
                self._hedges.withdrawn(key)

    def moved(
        self,
        outcome: JobOutcome,
        advice: AdviceRecord | None,
        hedge_outcome: HedgeOutcome | None = None,
        ratio: float | None = None,
    ) -> None:
        """A job has ended in the cloud: what it lost there counts, what it seems to have won does not.

        Nobody has seen how long it would have waited here. A forecast of that must not be taken for a gain
        that allows larger stakes, or the rule would pay itself. Of a job that kept its place more is known:
        it ended before its turn came and has lost nothing, how much it won nobody knows; or its turn did
        come, and its wait is as well known as that of one that stayed. `ratio` is its s(c) as learned; as set
        without it.
        """
        if advice is None or advice.advice.placement is not Placement.BURST:
            return
        if advice.advice.mode is not Mode.ACT or not advice.estimates.wait.is_usable:
            return  # its user put it there
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
        """What outlives the process."""
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
            return  # another overhead, another boot time: the gains were other gains
        earned, calibrations = self._kept_record(kept), _calibrations(kept)
        if earned is None or calibrations is None or len(earned.bands) != len(self.record.bands):
            return
        # former releases did not say the boot time and the line
        boot_seconds = self._settings.boot_seconds if kept.boot_seconds is None else kept.boot_seconds
        self.earn(earned, calibrations, boot_seconds, kept.line or self.earned_line)
        self._moved.add(_bands(kept.moved))

    def _kept_record(self, kept: EarnedRecord) -> TrackRecord | None:
        if kept.bands is not None:
            return _bands(kept.bands)
        # before there were bands one sum was kept, of all likely enough jobs
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
        """Note when a job will have waited, or run, for longer than its interval says."""
        heapq.heappush(self._ends, (time, next(self._numbers), target, opened))
        if len(self._ends) > 4 * len(self._open) + _FEW_ENDS:
            self._ends = [end for end in self._ends if not end[-1].is_over]
            heapq.heapify(self._ends)

    def _judge_exceeded(self, now: float) -> None:
        """Count intervals as missed that jobs have exceeded before now, without waiting for their end."""
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
    """What was kept of the calibration; a former release's levels were of intervals cut in another way."""
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
    """The probability of being faster that an advice rested on; None where it does not say."""
    chance = advice.number("win_probability")
    return chance if chance is not None and 0.0 <= chance <= 1.0 else None
