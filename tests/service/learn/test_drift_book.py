"""Forecasts are measured by partition and day; one that drifts sends its partition back on-premise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from msgspec import structs

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.advise import advise
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.advice import Advice, Answer, Mode, Placement, Question, Verdict
from advisor.model.drift import Measure
from advisor.model.estimate import Estimate, Estimates
from advisor.model.job import Job, JobOutcome
from advisor.model.site import PerformanceRatios, SiteState
from advisor.service.admin.doctor import Level, _drift
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.learn.drift_book import DAY, DriftBook
from advisor.service.learn.learning import LearnLoop
from advisor.service.running.clock import Clock
from advisor.service.state.state_files import DRIFT
from tests.decide.cases import make_job
from tests.service.site import make_settings

HOUR = 3600.0
NOW = 20_000 * DAY
NOT_ASKED = ("slurm", "view", "metrics", "meter")


class Desk:
    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.settings = make_settings(folder)
        self.folder = self.settings.paths.state
        self.begin_anew()

    def begin_anew(self) -> None:
        self.book = DriftBook(self.settings, Clock(wall=lambda: self.now), lambda _job: 1.1)

    def day(self, *, waits: float, moved_turnaround: float | None = None, jobs: int = 20) -> None:
        """A day on which each job waits so long, seconds, where 1,000 to 2,000 were forecast."""
        for number in range(jobs):
            record, outcome = advised(self.now, number), ended(self.now, number, wait=waits)
            if moved_turnaround is not None:
                record = advised(self.now, number, is_moved=True)
                outcome = ended(self.now, number, wait=0.0, run=moved_turnaround, partition="burst")
            self.book.judge(record, outcome)
        self.book.decide()
        self.now += DAY


def advised(now: float, number: int, *, is_moved: bool = False) -> AdviceRecord:
    answer = Answer(question=Question.CAPACITY, verdict=Verdict.YES, reason=Reason.ON_DEMAND, numbers=())
    advice = Advice(
        advice_id=f"{number}",
        time=now,
        placement=Placement.BURST if is_moved else Placement.ON_PREMISE,
        partition=None,
        capacity=None,
        mode=Mode.ACT,
        answers=(answer,),
    )
    estimates = Estimates(
        wait=Estimate(seconds=5 * HOUR, variance=1.0, lower=1_000.0, upper=2_000.0),
        run=Estimate(seconds=600.0, variance=1.0, lower=500.0, upper=700.0),
    )
    return AdviceRecord(advice=advice, job=job_of(now, number), estimates=estimates)


def job_of(now: float, number: int) -> Job:
    return Job(job_id=number, submit_time=now, processors=2, user="mia", queue="onprem", requested_time=HOUR)


def ended(
    now: float, number: int, *, wait: float, run: float = 600.0, partition: str = "onprem"
) -> JobOutcome:
    start = now + wait
    return JobOutcome(job=job_of(now, number), start_time=start, end_time=start + run, partition=partition)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_waits_out_of_their_intervals_for_a_week_send_the_partition_back_and_it_returns(desk: Desk) -> None:
    for _ in range(6):
        desk.day(waits=9_000.0)
        assert desk.book.current == {}
    with structlog.testing.capture_logs() as logs:
        desk.day(waits=9_000.0)
    assert [one["event"] for one in logs] == ["drift.fell_back"]
    assert desk.book.current.keys() == {"onprem"}
    assert "only 50 %" in desk.book.current["onprem"]
    desk.begin_anew()
    assert desk.book.current.keys() == {"onprem"}, "it outlives the process"
    with structlog.testing.capture_logs() as logs:
        for _ in range(4):
            desk.day(waits=1_500.0)
    assert [one["event"] for one in logs] == ["drift.came_back"]
    assert desk.book.current == {}
    desk.day(waits=1_500.0)
    assert desk.book.current == {}


@pytest.mark.parametrize("is_moved", [False, True])
def test_the_waits_of_an_arrays_later_tasks_do_not_send_it_back(desk: Desk, *, is_moved: bool) -> None:
    record = advised(NOW, 1, is_moved=is_moved)
    outcome = ended(NOW, 1, wait=9 * HOUR, partition="burst" if is_moved else "onprem")
    array = structs.replace(record, job=structs.replace(record.job, array_tasks=1000))
    for _ in range(100):
        desk.book.judge(array, outcome)
    desk.book.decide()
    (day,) = DRIFT.at(desk.folder).read().days["onprem"]
    count = 0 if is_moved else 100  # the run times alone
    assert (day.judged, day.inside, day.moved, day.saved_seconds) == (count, count, 0, 0.0)


def test_waits_for_another_job_do_not_send_it_back(desk: Desk) -> None:
    """A workflow's jobs wait hours for each other, which no forecast of the queue knows."""
    for number in range(100):
        waits = structs.replace(ended(NOW, number, wait=9_000.0), ineligible_seconds=8_000.0)
        desk.book.judge(advised(NOW, number), waits)
    desk.book.decide()
    (day,) = DRIFT.at(desk.folder).read().days["onprem"]
    assert (day.judged, day.inside) == (100, 100)  # the run times alone


def test_a_job_that_starts_at_once_has_not_waited(desk: Desk) -> None:
    """The accounting's start is whole seconds, before the advice of the same second."""
    desk.book.judge(advised(NOW + 0.4, 1), ended(NOW, 1, wait=0.0))
    desk.book.decide()
    (day,) = DRIFT.at(desk.folder).read().days["onprem"]
    assert (day.judged, day.inside) == (2, 1)  # its run time was as forecast, its wait was not


def test_a_cloud_that_became_slower_than_forecast_sends_it_back(desk: Desk) -> None:
    for _ in range(7):
        desk.day(waits=0.0, moved_turnaround=900.0)
    assert desk.book.current == {}
    for _ in range(8):
        desk.day(waits=0.0, moved_turnaround=4.5 * HOUR)
    (found,) = desk.book.report().values()
    assert found["measure"] == Measure.SAVED_TIME


def test_what_says_nothing_about_forecasts_is_not_measured(desk: Desk) -> None:
    record, outcome = advised(NOW, 1, is_moved=True), ended(NOW, 1, wait=0.0, partition="burst")
    desk.book.judge(record, outcome)
    for shadow in ({"mode": Mode.SHADOW}, {"answers": (explicit(),)}):
        changed = AdviceRecord(
            advice=replaced(record.advice, **shadow), job=record.job, estimates=record.estimates
        )
        desk.book.judge(changed, outcome)
    desk.book.judge(AdviceRecord(advice=advised(NOW, 1).advice, job=record.job), ended(NOW, 2, wait=1.0))
    desk.book.decide()
    (day,) = DRIFT.at(desk.folder).read().days["onprem"]
    assert (day.moved, day.judged) == (1, 0)


def replaced(advice: Advice, **changes: Any) -> Advice:
    from msgspec.structs import replace

    return replace(advice, **changes)


def explicit() -> Answer:
    return Answer(question=Question.MAY_MOVE, verdict=Verdict.NO, reason=Reason.EXPLICIT_BURST, numbers=())


def test_a_damaged_file_begins_anew(desk: Desk) -> None:
    DRIFT.at(desk.folder).path.write_text('{"days": {"onprem": [[-1]]}}')
    desk.begin_anew()
    desk.day(waits=1_500.0)
    assert DRIFT.at(desk.folder).read().days["onprem"][0].inside == 40


def test_a_job_of_that_partition_stays_and_one_of_another_does_not(desk: Desk) -> None:
    for _ in range(7):
        desk.day(waits=9_000.0)
    state = SiteState(time=desk.now, cluster=None, fallen_back=desk.book.current)
    settings = desk.settings
    here = advise(make_job(queue="onprem"), state, Estimates(), settings, advice_id="a")
    assert (here.placement, here.decisive.reason) == (Placement.ON_PREMISE, Reason.FALLEN_BACK)
    assert "only 50 %" in here.decisive.detail
    unnamed = advise(make_job(queue=None), state, Estimates(), settings, advice_id="a")
    assert unnamed.decisive.reason == Reason.FALLEN_BACK
    other = SiteState(time=desk.now, cluster=None, fallen_back={"long": "why"})
    assert advise(make_job(queue="onprem"), other, Estimates(), settings, advice_id="a").decisive.reason != (
        Reason.FALLEN_BACK
    )
    # what the user asked for comes first
    own = advise(make_job(queue="burst"), state, Estimates(), settings, advice_id="a")
    assert own.decisive.reason == Reason.EXPLICIT_BURST


@pytest.fixture
def feature(desk: Desk) -> Iterator[LearnLoop]:
    for _ in range(7):
        desk.day(waits=9_000.0)
    with HistoryStore(f"sqlite:///{desk.folder / 'history.db'}") as store:
        others: dict[str, Any] = dict.fromkeys(NOT_ASKED)
        models = ModelStore(folder=desk.folder)
        yield LearnLoop(
            desk.settings, store=store, models=models, clock=Clock(wall=lambda: desk.now), **others
        )


def test_the_first_snapshot_after_a_restart_has_what_the_last_one_had(desk: Desk, feature: LearnLoop) -> None:
    """The history, from which s(c) is learned, is read after the first jobs were decided."""
    learned = PerformanceRatios(overhead=0.03, baseline=1.4, deviation=0.1, jobs=20)
    state = SiteState(time=0.0, cluster=None, ratios=learned)
    snapshots.write(desk.settings.paths.snapshot, Snapshot(state=state))
    others: dict[str, Any] = dict.fromkeys(("store", *NOT_ASKED))
    begun_anew = type(feature)(desk.settings, models=ModelStore(folder=desk.folder), clock=Clock(), **others)
    site = begun_anew.publish(SiteState(time=1.0, cluster=None))
    assert site.ratios == learned
    assert site.fallen_back == desk.book.current != {}


def test_control_publishes_and_shows_it_and_the_doctor_says_what_to_do(
    desk: Desk, feature: LearnLoop
) -> None:
    assert feature.publish(SiteState(time=0.0, cluster=None)).fallen_back == desk.book.current
    assert feature.status()["fallen_back"]["onprem"]["measure"] == "coverage"
    assert feature.gauges()["partitions_fallen_back"][0] == 1.0
    (found,) = _drift(desk.settings)
    assert found.level is Level.WARNING
    assert "drift.enabled = false" in found.mend
    DRIFT.at(desk.folder).path.unlink()
    (found,) = _drift(desk.settings)
    assert found.level is Level.OK
