"""What live forecasts teach: calibration, gains of candidates that stayed, losses of jobs that were moved."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from advisor.decide.submission.record import RecordKeeper, likely_earned, record_of
from advisor.history.records import AdviceRecord
from advisor.model import (
    Advice,
    Answer,
    Earned,
    Estimate,
    Estimates,
    Job,
    JobOutcome,
    Mode,
    Placement,
    Quantity,
    Question,
    TrackRecord,
    Verdict,
)
from advisor.model.settings import PlacementSettings
from advisor.predict.forecast.calibration import IntervalCalibration
from advisor.predict.forecast.placement_features import EventKind, PlacementFeatures
from advisor.predict.forecast.queue_events import event
from advisor.predict.forecast.submission_features import Submission
from advisor.service.learn.placement_record import PlacementRecord
from advisor.service.state.hedge_entries import HedgeOutcome
from advisor.service.state.records import EarnedRecord
from advisor.service.state.state_files import EARNED_RECORD

SETTINGS = PlacementSettings(overhead_per_processor=0.1, boot_seconds=100.0)
NOTHING = RecordKeeper(SETTINGS.win_probability).record
CALIBRATIONS = {"wait": IntervalCalibration(), "run": IntervalCalibration()}
SUBMISSION = Submission(0.0, 5, 1000.0, 0, 0, 0, 0)


def saved(record: PlacementRecord) -> float:
    return likely_earned(record.record, SETTINGS).saved_seconds


def won(saved_seconds: float) -> TrackRecord:
    return record_of(Earned(saved_seconds=saved_seconds), SETTINGS)


class Says:
    """A forecaster of whom one knows what he says."""

    def __init__(self, wait: float, run: float) -> None:
        self.said = {
            "wait": self._estimate(wait),
            "run": self._estimate(run),
        }

    @staticmethod
    def _estimate(seconds: float) -> Estimate:
        return Estimate(
            seconds=seconds,
            variance=1.0,
            lower=0.9 * seconds,
            upper=1.1 * seconds,
            quantiles=(0.95 * seconds, 1.05 * seconds),
        )

    def forecast(self, *_: object) -> dict[str, Estimate]:
        return self.said


def live(record: PlacementRecord, forecaster: Says, *, wait: float, run: float, key: int = 1) -> None:
    observer = PlacementFeatures(64)
    for row in (
        event(EventKind.SUBMIT, key, 0.0, SUBMISSION),
        event(EventKind.START, key, wait),
        event(EventKind.END, key, wait + run),
    ):
        record.take(row, observer, forecaster)


def test_a_candidate_that_stayed_adds_what_the_cloud_would_have_saved() -> None:
    record = PlacementRecord(SETTINGS)
    live(record, Says(2000.0, 500.0), wait=1500.0, run=600.0)
    # s(5) = 1.5: boot 100 and half of 600 more
    assert saved(record) == pytest.approx(1500.0 - 400.0)
    live(record, Says(10.0, 500.0), wait=9000.0, run=600.0)
    assert saved(record) == pytest.approx(1100.0), "it would not have been moved"


def test_intervals_are_judged() -> None:
    record = PlacementRecord(SETTINGS)
    before = {target: each.level for target, each in record.calibrations.items()}
    live(record, Says(2000.0, 500.0), wait=1500.0, run=510.0)
    assert record.calibrations["wait"].level < before["wait"], "missed: wider"
    assert record.calibrations["run"].level > before["run"]


def test_g17_19_an_interval_is_missed_as_soon_as_it_is_exceeded() -> None:
    """Jobs that have ended are the short ones: until a long one has, its miss would not be known."""
    record, observer, says = PlacementRecord(SETTINGS), PlacementFeatures(64), Says(2000.0, 500.0)
    start = IntervalCalibration().state

    def take(kind: EventKind, key: int, time: float) -> dict[str, float]:
        submission = SUBMISSION._replace(time=time) if kind is EventKind.SUBMIT else None
        record.take(event(kind, key, time, submission), observer, says)
        return {target: each.state[0] - start[0] for target, each in record.calibrations.items()}

    take(EventKind.SUBMIT, 1, 0.0)
    assert take(EventKind.SUBMIT, 2, 2200.0) == {"wait": 0.0, "run": 0.0}
    assert take(EventKind.SUBMIT, 3, 2201.0)["wait"] < 0.0, "1 has waited for more than 2,200 s"
    before = record.calibrations["wait"].state
    take(EventKind.START, 1, 3000.0)
    assert record.calibrations["wait"].state == before, "it counts once"
    assert take(EventKind.SUBMIT, 4, 3549.0)["run"] == 0.0
    assert take(EventKind.SUBMIT, 5, 3551.0)["run"] < 0.0, "1 has run for more than 550 s"
    before = record.calibrations["run"].state
    take(EventKind.END, 1, 4000.0)
    assert record.calibrations["run"].state[:2] == before[:2]


def test_how_far_runs_go_beyond_their_requests_is_learned() -> None:
    record = PlacementRecord(SETTINGS)
    live(record, Says(2000.0, 500.0), wait=1500.0, run=1030.0)
    assert record.calibrations["run"].state[2] == 0.0, "1,000 s and the grace"
    live(record, Says(2000.0, 500.0), wait=1500.0, run=1600.0, key=2)
    assert record.calibrations["run"].state[2] > 0.0
    assert record.calibrations["wait"].state[2] == 0.0


def test_a_requeued_job_teaches_nothing() -> None:
    record, observer, says = PlacementRecord(SETTINGS), PlacementFeatures(64), Says(2000.0, 500.0)
    for row in (
        event(EventKind.SUBMIT, 1, 0.0, SUBMISSION),
        event(EventKind.START, 1, 10.0),
        event(EventKind.REQUEUE, 1, 20.0),
        event(EventKind.START_AGAIN, 1, 1500.0),
        event(EventKind.END, 1, 1600.0),
    ):
        record.take(row, observer, says)
    assert record.record == NOTHING


def test_a_run_cut_short_is_not_judged() -> None:
    record, observer, says = PlacementRecord(SETTINGS), PlacementFeatures(64), Says(2000.0, 500.0)
    rows = [
        event(EventKind.SUBMIT, 1, 0.0, SUBMISSION),
        event(EventKind.START, 1, 1500.0),
        event(EventKind.CUT_SHORT, 1, 1510.0),
    ]
    for row in rows:
        record.take(row, observer, says)
    assert record.record == NOTHING
    assert record.calibrations["run"].state == IntervalCalibration().state
    assert 1 not in observer


def moved(end: float, *, mode: Mode = Mode.ACT, run: float = 600.0) -> tuple[JobOutcome, AdviceRecord]:
    job = Job(job_id=3, submit_time=0.0, processors=5)
    outcome = JobOutcome(job=job, start_time=end - run, end_time=end, partition="burst")
    advice = Advice(
        advice_id="x",
        time=0.0,
        placement=Placement.BURST,
        partition="burst",
        capacity=None,
        mode=mode,
        answers=(),
    )
    estimates = Estimates(wait=Says(1000.0, 400.0).said["wait"], run=Says(1000.0, 400.0).said["run"])
    return outcome, AdviceRecord(advice=advice, job=job, estimates=estimates)


def test_of_moved_jobs_only_losses_count() -> None:
    record = PlacementRecord(SETTINGS)
    record.moved(*moved(700.0))
    assert record.record == NOTHING, "nobody has seen the wait it is said to have been spared"
    record.moved(*moved(7000.0, run=6000.0))  # here: 1000 s of waiting and 6000 / 1.5 s
    assert saved(record) == pytest.approx(5000.0 - 7000.0)
    record.moved(*moved(9000.0, mode=Mode.SHADOW, run=6000.0))
    record.moved(moved(9000.0, run=6000.0)[0], None)
    assert saved(record) == pytest.approx(-2000.0), "others went there by themselves"


def test_g18_losses_of_moved_jobs_are_taken_off_what_may_be_lost() -> None:
    record = PlacementRecord(SETTINGS)
    assert record.may_lose_seconds == 0.0
    band = Earned(saved_seconds=6e5, absolute_seconds=1e6, squared_seconds=1.0)
    record.earn(record_of(band, SETTINGS), CALIBRATIONS)
    assert record.may_lose_seconds == pytest.approx(0.01 * 8e5), "gains without losses are the optimum"
    record.moved(*moved(7000.0, run=6000.0))
    assert record.may_lose_seconds == pytest.approx(0.01 * 8e5 - 2000.0)
    again = PlacementRecord(SETTINGS, record.earned())
    assert again.may_lose_seconds == pytest.approx(record.may_lose_seconds)


def test_a_job_that_ended_before_its_turn_came_has_lost_nothing() -> None:
    """Its place was kept all the time: waiting here would have been longer than all of its stay."""
    record = PlacementRecord(SETTINGS)
    lost_by_forecast = moved(7000.0, run=6000.0)
    record.moved(*lost_by_forecast, HedgeOutcome(was_kept=True, slot_time=None))
    assert record.record == NOTHING
    record.moved(*lost_by_forecast, HedgeOutcome(was_kept=False, slot_time=None))
    assert saved(record) == pytest.approx(-2000.0), "its place was lost: the forecast is all there is"


def test_a_job_whose_turn_came_has_won_or_lost_what_it_has() -> None:
    outcome, advised = moved(7000.0, run=6000.0)
    said = Answer(
        question=Question.FASTER,
        verdict=Verdict.YES,
        reason="hedge",
        numbers=(("win_probability", Quantity(0.99, "")),),
    )
    knows = replace(advised, advice=replace(advised.advice, answers=(said,)))
    for turn, expected in ((2500.0, -500.0), (3500.0, 500.0)):  # here: 4000 s of running
        record = PlacementRecord(SETTINGS)
        record.moved(outcome, knows, HedgeOutcome(was_kept=False, slot_time=turn))
        assert saved(record) == pytest.approx(expected)
    record = PlacementRecord(SETTINGS)
    record.moved(outcome, advised, HedgeOutcome(was_kept=False, slot_time=3500.0))
    assert record.record == NOTHING, "how likely it was to win nobody knows any more"


def test_a_loss_counts_among_jobs_as_likely_to_be_faster() -> None:
    record = PlacementRecord(SETTINGS)
    outcome, advised = moved(7000.0, run=6000.0)
    said = Answer(
        question=Question.FASTER,
        verdict=Verdict.YES,
        reason="turnaround.cloud_faster",
        numbers=(("win_probability", Quantity(0.2, "")),),
    )
    record.moved(outcome, replace(advised, advice=replace(advised.advice, answers=(said,))))
    lost = RecordKeeper(SETTINGS.win_probability)
    lost.ended(3, -2000.0, 0.2)
    assert record.record == lost.record
    assert saved(record) == 0.0


def read_back(content: dict[str, Any]) -> EarnedRecord:
    """What a process finds where this was written."""
    with tempfile.TemporaryDirectory() as folder:
        file = EARNED_RECORD.at(Path(folder))
        file.path.write_text(json.dumps(content))
        return file.read()


def test_a_record_from_before_there_were_bands_is_taken_up_as_that_of_likely_jobs() -> None:
    record = PlacementRecord(SETTINGS)
    record.earn(won(9.0), CALIBRATIONS)
    old = msgspec.to_builtins(record.earned())
    del old["bands"]
    old |= {"saved_seconds": 7.0, "absolute_seconds": 8.0, "squared_seconds": 50.0}
    again = PlacementRecord(SETTINGS, read_back(old))
    assert again.is_earned
    assert again.record == record_of(
        Earned(saved_seconds=7.0, absolute_seconds=8.0, squared_seconds=50.0), SETTINGS
    )
    assert not PlacementRecord(SETTINGS, read_back(old | {"saved_seconds": "x"})).is_earned
    assert not PlacementRecord(SETTINGS, read_back(old | {"squared_seconds": math.nan})).is_earned


def test_a_restart_takes_it_up_unless_the_cloud_is_another() -> None:
    record = PlacementRecord(SETTINGS)
    record.earn(
        record_of(Earned(saved_seconds=9.0, absolute_seconds=10.0, squared_seconds=50.0), SETTINGS),
        {"wait": IntervalCalibration((-1.5, 0.1, 0.0)), "run": IntervalCalibration((-2.0, 0.1, 0.3))},
    )
    again = PlacementRecord(SETTINGS, record.earned())
    assert again.record == record.record
    assert again.is_earned
    assert again.bounds == record.bounds
    assert again.bounds["run"] == pytest.approx((-2.0, 0.3))
    slower = replace_settings(overhead_per_processor=0.2)
    assert not PlacementRecord(slower, record.earned()).is_earned


def test_the_calibration_of_an_earlier_release_is_begun_anew() -> None:
    record = PlacementRecord(SETTINGS)
    record.earn(won(9.0), CALIBRATIONS)
    kept = msgspec.to_builtins(record.earned())
    del kept["calibration"]
    again = PlacementRecord(SETTINGS, read_back(kept | {"levels": {"wait": 0.2, "run": 0.1}}))
    assert again.is_earned
    assert again.record == record.record
    assert again.bounds == PlacementRecord(SETTINGS).bounds


@pytest.mark.parametrize(
    "damage",
    [
        {"calibration": {}},
        {"calibration": {"wait": [math.nan, 0.1, 0.0], "run": [0.0, 0.1, 0.0]}},
        {"calibration": {"wait": [0.0], "run": [0.0, 0.1, 0.0]}},
        {"bands": [["x", 0.0, 0.0]]},
        {"bands": [[1.0, 1.0, 1.0]]},
        {"bands": 7},
        {"moved": 7},
        {"boot_seconds": "soon"},
        {"boot_seconds": math.inf},
        {"bands": [[math.nan, 0.0, 0.0]] * 20},
        {"bands": [[0.0, 0.0]] * 20},
    ],
)
def test_a_damaged_record_is_none(damage: dict) -> None:
    record = PlacementRecord(SETTINGS)
    record.earn(won(9.0), CALIBRATIONS)
    kept = msgspec.to_builtins(record.earned())
    assert PlacementRecord(SETTINGS, read_back(kept)).is_earned
    assert not PlacementRecord(SETTINGS, read_back(kept | damage)).is_earned


def test_what_was_seen_while_the_history_was_counted_is_kept() -> None:
    record = PlacementRecord(SETTINGS)
    live(record, Says(2000.0, 500.0), wait=1500.0, run=600.0)
    record.begin_anew()
    live(record, Says(2000.0, 500.0), wait=1400.0, run=600.0, key=2)
    record.earn(won(50.0), CALIBRATIONS)
    assert saved(record) == pytest.approx(1000.0 + 50.0)


@pytest.mark.parametrize(
    ("boot", "is_outdated"), [(110.0, False), (124.0, False), (130.0, True), (70.0, True)]
)
def test_a_record_is_outdated_when_nodes_boot_otherwise(boot: float, *, is_outdated: bool) -> None:
    record = PlacementRecord(SETTINGS)
    record.boot_seconds = 10.0 * boot
    assert not record.is_outdated, "none has been earned yet"
    record.boot_seconds = 100.0
    record.earn(won(9.0), CALIBRATIONS)
    record = PlacementRecord(SETTINGS, record.earned())
    record.boot_seconds = boot
    assert record.is_outdated == is_outdated
    record.begin_anew()
    record.earn(won(7.0), CALIBRATIONS)
    assert not record.is_outdated
    assert saved(record) == 7.0


def test_what_jobs_in_the_cloud_have_lost_outlives_a_record_earned_anew() -> None:
    """It is not in the history of the queue here, and no boot time undoes it."""
    record = PlacementRecord(SETTINGS)
    record.earn(won(9000.0), CALIBRATIONS)
    record.moved(*moved(7000.0, run=6000.0))
    record = PlacementRecord(SETTINGS, record.earned())
    assert saved(record) == pytest.approx(9000.0 - 2000.0)
    record.begin_anew()
    record.earn(won(8000.0), CALIBRATIONS)
    assert saved(record) == pytest.approx(8000.0 - 2000.0)


def replace_settings(**changed: float) -> PlacementSettings:
    return SETTINGS.model_copy(update=changed)
