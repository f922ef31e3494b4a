"""Forests in `advisor control`: grown from the history, handed over, judged, taken up after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.decide.explanation.admin_comment import admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.proven_rows import earned_by_candidates
from advisor.history.models import ModelStore
from advisor.history.store import HistoryStore
from advisor.model import (
    Advice,
    Answer,
    JobOutcome,
    JobTable,
    Mode,
    Placement,
    Quantity,
    Question,
    TimeLimit,
    TrackRecord,
    Verdict,
)
from advisor.model.advice import Hedge, HedgeKind
from advisor.model.settings import ClusterSettings, HedgeSettings, PathSettings, PlacementSettings, Settings
from advisor.predict.forecast.forecast_rows import forecast_rows
from advisor.predict.forecast.placement_replay import features_of
from advisor.predict.forecast.rolling import TARGETS, RollingForests
from advisor.predict.forecast.submission_features import FEATURES
from advisor.service.exchange import placement_store, queue_stream
from advisor.service.exchange.placement_store import PLACEMENT_KIND
from advisor.service.learn.placement_loop import PlacementLoop
from advisor.service.submit.live_placement import PlacementFollower
from advisor.slurm.protocol import QueuedJob
from advisor.testing.manual_clock import ManualClock
from tests.service.doubles import make_look, make_queued
from tests.service.placement_world import (
    OPTIONS,
    ORIGIN,
    QUEUES,
    job_of,
    look_at,
    make_log,
    outcome_of,
    outcomes_between,
)
from tests.service.site import make_cluster


class Desk:
    """A site whose history is a log up to a row, and which goes on with the rest."""

    def __init__(self, folder: Path, table: JobTable) -> None:
        import threading

        for name in ("models", "run"):
            (folder / name).mkdir(mode=0o700)
        self.settings = Settings(
            cluster=ClusterSettings(on_premise_partitions=QUEUES),
            paths=PathSettings(state=folder, run=folder / "run"),
            placement=PlacementSettings(boot_seconds=60.0, overhead_per_processor=0.01),
        )
        self.table = table
        self.store = HistoryStore(f"sqlite:///{folder / 'history.db'}")
        self.models = ModelStore(folder=folder / "models")
        self.clock = ManualClock(wall=ORIGIN)
        self.follower = PlacementFollower(folder / "run", folder / "models", threading.Lock())
        self.told = -1.0
        self.loop = self.new_loop()

    def new_loop(self) -> PlacementLoop:
        return PlacementLoop(
            self.settings,
            store=self.store,
            models=self.models,
            clock=self.clock.clock,
            options=OPTIONS,
            record_jobs=300,
        )

    def go_to(self, time: float) -> None:
        """Accounting, a round of the loop, a look at Slurm, and the submit server's look at that."""
        self.store.add(outcomes_between(self.table, self.told, time), source="slurm")
        self.told = time
        for step in self.loop.steps():
            step.run()
        self.look(time)

    def look(self, time: float, boot_seconds: float | None = None) -> None:
        self.loop.saw(look_at(self.table, time), make_cluster(total_processors=128), boot_seconds)
        self.follower.refresh()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path, make_log())
    yield desk
    desk.store.close()


def test_too_short_a_history_is_said(desk: Desk) -> None:
    desk.go_to(float(desk.table.submit[60]))
    desk.go_to(float(desk.table.submit[61]))
    report = desk.loop.report()
    assert report["rule"] == "published"
    assert report["finished_jobs"] < report["first_forest_after_jobs"] == OPTIONS.first
    assert desk.follower.current is None
    assert not (desk.settings.paths.run / queue_stream.FILE_NAME).exists()


def test_grown_handed_over_and_followed(desk: Desk) -> None:
    """The submit server then knows what a replay knows, and forests are grown on as jobs end."""
    table, expected = desk.table, features_of(desk.table)
    first = 260
    for row in range(first, len(table)):
        desk.go_to(float(table.submit[row]))
        desk.look(float(table.submit[row]))
        live = desk.follower.current
        if row < first + 2:  # the first look, then the first forests
            continue
        assert live is not None
        features = live.features(job_of(table, row))
        np.testing.assert_allclose(as_replayed(features), as_replayed(expected[row]))
        live.advised(job_of(table, row), 1)
    report = desk.loop.report()
    assert report["rule"] == "advisor"
    assert report["forests"] == OPTIONS.forests
    assert report["record_earned"]
    assert len(desk.models.versions(PLACEMENT_KIND)) > 2


def as_replayed(features: np.ndarray) -> np.ndarray:
    """Without the numbers given to names and the origin: they follow what the history showed."""
    names = ("queue", "user", "group", "executable", "submission_time")
    return features[[index for index, name in enumerate(FEATURES) if name not in names]]


@pytest.mark.parametrize("boot_seconds", [None, 900.0])
def test_the_record_is_the_replays(desk: Desk, boot_seconds: float | None) -> None:
    """With the boot time that has been learned, if any has."""
    desk.table = table = desk.table.select(slice(0, 300))
    desk.store.add([outcome_of(table, row) for row in range(300)], source="slurm")
    desk.loop.follow()
    desk.look(float(table.end.max()) + 1.0, boot_seconds)
    desk.loop.follow()
    desk.loop.grow()
    assert not any(band.squared_seconds for band in desk.loop.record.bands), (
        "nothing is staked before a record is earned"
    )
    desk.loop.earn()
    own = replace(table, total_processors=128, start_of_log=ORIGIN)
    forecasts = forecast_rows(own, np.arange(300), OPTIONS, rolling=RollingForests(OPTIONS))
    placement = desk.settings.placement
    if boot_seconds is not None:
        placement = placement.model_copy(update={"boot_seconds": boot_seconds})
    earned = earned_by_candidates(own, forecasts, placement).record
    assert sum(band.squared_seconds for band in earned.bands) > 0
    for live, replayed in zip(desk.loop.record.bands, earned.bands, strict=True):
        assert live.saved_seconds == pytest.approx(replayed.saved_seconds)
        assert live.squared_seconds == pytest.approx(replayed.squared_seconds)
    levels = desk.loop.report()["interval_levels"]
    assert levels == {target: pytest.approx(forecasts[target].calibration.level) for target in TARGETS}


def test_a_restart_takes_up_forests_record_and_numbers(desk: Desk) -> None:
    table = desk.table
    for row in (300, 301, 302):
        desk.go_to(float(table.submit[row]))
    before, live = desk.loop.report(), desk.follower.current
    assert live is not None
    desk.loop = desk.new_loop()
    for row in (303, 304):
        desk.go_to(float(table.submit[row]))
    after = desk.loop.report()
    assert after["forests"] == before["forests"]
    assert after["record_earned"]
    assert after["record_saved_seconds"] == pytest.approx(before["record_saved_seconds"], abs=5e4)
    now = desk.follower.current
    assert now is not None
    assert now is not live, "another base: what happened in between is in it"
    np.testing.assert_allclose(
        as_replayed(now.features(job_of(table, 304))), as_replayed(features_of(table)[304])
    )
    job = job_of(table, 304)
    assert now._codes.look_up("user", job.user) == live._codes.look_up("user", job.user)


def test_a_whole_log_added_at_once_makes_a_new_base(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.service.learn.placement_loop._BULK_JOBS", 50)
    for row in (250, 251):
        desk.go_to(float(desk.table.submit[row]))
    version = desk.models.current(PLACEMENT_KIND)
    desk.look(float(desk.table.submit[380]))
    desk.go_to(float(desk.table.submit[380]))
    assert desk.models.current(PLACEMENT_KIND) != version
    desk.look(float(desk.table.submit[380]))
    live = desk.follower.current
    assert live is not None
    np.testing.assert_allclose(
        as_replayed(live.features(job_of(desk.table, 380))), as_replayed(features_of(desk.table)[380])
    )


def test_a_base_knows_of_requeued_jobs_and_one_of_an_earlier_release_of_none(
    desk: Desk, tmp_path: Path
) -> None:
    for row in (300, 301):
        desk.go_to(float(desk.table.submit[row]))
    loaded = placement_store.load(desk.models, OPTIONS)
    table = loaded.base.table
    known = replace(
        table, requeued_seconds=np.full(len(table), np.nan), is_whole=np.zeros(len(table), np.bool_)
    )
    placement_store.save(desk.models, replace(loaded.base, table=known), loaded.forests, {"number": 1})
    found = placement_store.load(desk.models, OPTIONS).base.table
    assert np.isnan(found.first_wait).all()
    assert np.isnan(found.whole_run).all()
    arrays, meta = desk.models.load(PLACEMENT_KIND)
    for name in ("requeued_seconds", "is_whole"):
        del arrays[f"base.{name}"]
    desk.models.save(PLACEMENT_KIND, arrays, meta)
    found = placement_store.load(desk.models, OPTIONS).base.table
    np.testing.assert_array_equal(found.first_wait, table.wait)
    assert found.is_whole.all()


def test_damaged_forests_are_grown_anew(desk: Desk, tmp_path: Path) -> None:
    for row in (300, 301):
        desk.go_to(float(desk.table.submit[row]))
    version = desk.models.current(PLACEMENT_KIND)
    (tmp_path / "models" / PLACEMENT_KIND / str(version) / "arrays.npz").write_bytes(b"nonsense")
    desk.loop = desk.new_loop()
    for row in (302, 303, 304):
        desk.go_to(float(desk.table.submit[row]))
    assert desk.loop.report()["rule"] == "advisor"
    assert desk.follower.current is not None
    assert desk.follower.current.time == pytest.approx(ORIGIN + desk.table.submit[304])


def test_what_moved_jobs_may_lose_is_at_risk(desk: Desk) -> None:
    def in_the_cloud(
        job_id: int,
        reason: Reason,
        numbers: tuple[tuple[str, Quantity], ...] = (),
        limit: TimeLimit | None = None,
        hedge: Hedge | None = None,
        **more: object,
    ) -> QueuedJob:
        answer = Answer(question=Question.FASTER, verdict=Verdict.YES, reason=reason, numbers=numbers)
        advice = Advice(
            advice_id=f"a-{job_id}",
            time=ORIGIN,
            placement=Placement.BURST,
            partition="burst",
            capacity=None,
            mode=Mode.ACT,
            answers=(answer,),
            time_limit=limit,
            hedge=hedge,
        )
        return make_queued(job_id, "RUNNING", queue="burst", admin_comment=admin_comment(advice), **more)

    jobs = (
        in_the_cloud(1, Reason.CLOUD_FASTER, processors=10, requested_time=600.0),
        in_the_cloud(2, Reason.EXPLICIT_BURST, processors=10, requested_time=600.0),
        make_queued(3, "RUNNING", queue="burst"),
        make_queued(4, "RUNNING", processors=64),
    )
    desk.loop.saw(make_look(ORIGIN, jobs=jobs), make_cluster())
    # boot 60 s and a tenth of ten minutes more
    assert desk.loop.record.at_risk_seconds == pytest.approx(60.0 + 0.1 * 600.0)
    raised = TimeLimit(asked_seconds=600.0, given_seconds=1200.0)
    stretched = in_the_cloud(5, Reason.CLOUD_FASTER, limit=raised, processors=10, requested_time=1200.0)
    desk.loop.saw(make_look(ORIGIN, jobs=(stretched,)), make_cluster(), 90.0)
    assert desk.loop.record.at_risk_seconds == pytest.approx(90.0 + 0.1 * 600.0), "its user's own limit"
    said = in_the_cloud(6, Reason.CLOUD_FASTER, (("stake", Quantity(40.0)),), processors=10, array_tasks=3)
    desk.loop.saw(make_look(ORIGIN, jobs=(said,)), make_cluster())
    assert desk.loop.record.at_risk_seconds == pytest.approx(3 * 40.0), "as was said at its submission"
    hedge = Hedge(kind=HedgeKind.HEDGE, stop_seconds=600.0)
    kept = in_the_cloud(7, Reason.HEDGED, (("stake", Quantity(40.0)),), hedge=hedge, processors=10)
    desk.loop.saw(make_look(ORIGIN, jobs=(kept,)), make_cluster())
    assert desk.loop.record.at_risk_seconds == 0.0, "it keeps its place in the queue here"


def test_a_record_is_earned_anew_when_nodes_boot_otherwise_for_an_hour(desk: Desk) -> None:
    """Each of its gains contains a boot; spot that is away for some minutes is no reason."""
    desk.table = table = desk.table.select(slice(0, 300))
    desk.store.add([outcome_of(table, row) for row in range(300)], source="slurm")
    end = float(table.end.max()) + 1.0

    def go_on(boot_seconds: float, seconds: float) -> TrackRecord:
        desk.clock.pass_by(seconds)
        desk.look(end, boot_seconds)
        for step in desk.loop.steps():
            step.run()
        return desk.loop.record

    go_on(60.0, 0.0)
    fast = go_on(60.0, 0.0)
    assert any(band.squared_seconds for band in fast.bands)
    for boot_seconds, seconds in ((600.0, 0.0), (600.0, 3000.0), (62.0, 0.0), (600.0, 700.0)):
        assert go_on(boot_seconds, seconds) == fast
    slow = go_on(600.0, 3600.0)
    assert slow.bands != fast.bands
    assert desk.loop.report()["record_boot_seconds"] == 600.0
    assert go_on(600.0, 3600.0) == slow, "once"
    desk.loop = desk.new_loop()
    assert go_on(600.0, 7200.0).bands == slow.bands


def test_hedges_switched_on_later_have_a_price_from_the_history(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record was earned in shadow mode, long before."""
    monkeypatch.setattr("advisor.service.learn.hedge_price.MIN_KNOWN", 10)
    monkeypatch.setattr("advisor.decide.hedge.pacing.MIN_KNOWN", 10)
    desk.table = table = desk.table.select(slice(0, 300))
    desk.store.add([outcome_of(table, row) for row in range(300)], source="slurm")
    for switched_on in (False, True):
        desk.settings = desk.settings.model_copy(
            update={"hedge": HedgeSettings(enabled=switched_on, budget_core_hours=100.0)}
        )
        desk.loop = desk.new_loop()
        bands = desk.loop.record.bands
        for _ in range(2):
            desk.loop.follow()
            desk.look(float(table.end.max()) + 1.0)
            desk.loop.grow()
            desk.loop.earn()
            desk.loop.keep()
        report = desk.loop.report()
        assert report["record_earned"]
        assert (report["hedge_price_jobs"] > 0) == switched_on
        desk.loop.follow()
        assert ("hedge_price" in desk.loop.gauges()) == (desk.loop.hedge_price is not None) == switched_on
        if switched_on:
            assert desk.loop.record.bands == bands, "counted once"


@pytest.mark.parametrize("restarts", [0, 1])
def test_who_came_back_from_the_cloud_has_not_waited_for_its_slot(desk: Desk, restarts: int) -> None:
    """It would count as a job that the cloud had only slowed down, and as a forecast that was wrong."""
    table = desk.table
    for row in (260, 261, 262):
        desk.go_to(float(table.submit[row]))
    before = desk.loop.report()
    assert before["rule"] == "advisor"
    now = ORIGIN + float(table.submit[262]) + 10.0
    waits = make_queued(9001, submit_time=now - 5.0, restarts=restarts, user="user1", requested_time=3600.0)
    runs = replace(waits, state="RUNNING", start_time=now + 1.0)
    others = look_at(table, float(table.submit[262])).jobs
    for time, queued in ((now, waits), (now + 5.0, runs)):
        desk.loop.saw(make_look(time, jobs=(*others, queued)), make_cluster(total_processors=128))
        desk.loop.follow()
    ended = JobOutcome(
        job=runs.job, start_time=now + 1.0, end_time=now + 600.0, partition="onprem", restarts=restarts
    )
    desk.store.add([ended], source="slurm")
    for time in (now + 700.0, now + 705.0):
        desk.loop.follow()
        desk.loop.saw(make_look(time, jobs=others), make_cluster(total_processors=128))
    desk.loop.follow()
    is_judged = desk.loop.report()["interval_levels"] != before["interval_levels"]
    assert is_judged == (restarts == 0)
