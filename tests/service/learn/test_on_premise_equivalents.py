"""Estimators meet a cloud job as they are asked about its user's next one: his partition, his limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.decide.submission.cloud_terms import configured_slowdown
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.advice import Advice, Answer, Mode, Placement, Question, TimeLimit, Verdict
from advisor.model.job import Job, JobOutcome
from advisor.model.settings import ClusterSettings, Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.learn.learning import LearnLoop
from advisor.service.learn.on_premise_equivalents import on_premise_job, on_premise_outcome
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.metrics import ControlMetrics
from tests.service.doubles import Hands, make_look, make_queued
from tests.service.site import make_cluster

SETTINGS = Settings(cluster=ClusterSettings(on_premise_partitions=("onprem", "long")))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HistoryStore]:
    with HistoryStore(f"sqlite:///{tmp_path / 'history.db'}") as store:
        yield store


def advice(origin: str | None, reason: Reason = Reason.CLOUD_FASTER) -> Advice:
    return Advice(
        advice_id="a-1",
        time=1000.0,
        placement=Placement.BURST,
        partition="burst",
        capacity=None,
        mode=Mode.ACT,
        answers=(Answer(question=Question.FASTER, verdict=Verdict.YES, reason=reason),),
        time_limit=TimeLimit(asked_seconds=600.0, given_seconds=900.0),
        origin=origin,
    )


@pytest.mark.parametrize("partition", ["burst", "onprem"])
@pytest.mark.parametrize(
    ("comment", "restarts", "is_whole"),
    [("checkpoint=10min", 1, False), ("checkpoint=10min", 0, True), ("standby", 1, True)],
)
def test_the_last_run_of_a_job_that_went_on_from_a_checkpoint_is_not_the_whole_one(
    store: HistoryStore, partition: str, comment: str, restarts: int, *, is_whole: bool
) -> None:
    asked = Job(job_id=0, submit_time=1000.0, processors=10, comment=comment)
    store.add_advice([AdviceRecord(advice=advice("onprem"), job=asked)])
    store.link("a-1", 7)
    job = Job(job_id=7, submit_time=1000.0, processors=10)
    outcome = JobOutcome(job=job, start_time=1100.0, end_time=1320.0, partition=partition, restarts=restarts)
    assert outcome.is_whole
    assert on_premise_outcome(outcome, SETTINGS, store).is_whole is is_whole


@pytest.mark.parametrize("submitted", ["long", "burst"])
def test_an_ended_job_has_the_partition_it_was_submitted_to(store: HistoryStore, submitted: str) -> None:
    asked = Job(job_id=0, submit_time=1000.0, processors=10, queue=submitted)
    store.add_advice([AdviceRecord(advice=advice("long"), job=asked)])
    store.link("a-1", 7)
    job = Job(job_id=7, submit_time=1000.0, processors=10, queue="burst")
    outcome = JobOutcome(job=job, start_time=1100.0, end_time=1100.0 + 220.0, partition="burst")
    here = on_premise_outcome(outcome, SETTINGS, store)
    assert here.job.queue == submitted
    assert here.run_seconds == pytest.approx(220.0 / configured_slowdown(10, SETTINGS.placement))
    on_premise = JobOutcome(job=job, start_time=1.0, end_time=2.0, partition="onprem")
    assert on_premise_outcome(on_premise, SETTINGS, store) is on_premise


def test_what_nobody_advised_keeps_its_partition(store: HistoryStore) -> None:
    job = Job(job_id=8, submit_time=1000.0, processors=1, queue="burst")
    outcome = JobOutcome(job=job, start_time=1100.0, end_time=1200.0, partition="burst")
    assert on_premise_outcome(outcome, SETTINGS, store).job == job


@pytest.mark.parametrize(("origin", "home"), [("long", "long"), (None, "onprem")])
def test_a_moved_job_is_seen_as_submitted(origin: str | None, home: str) -> None:
    moved = make_queued(7, queue="burst", requested_time=900.0, admin_comment=admin_comment(advice(origin)))
    here = on_premise_job(moved, SETTINGS)
    assert (here.job.queue, here.job.requested_time) == (home, 600.0)
    by_hand = make_queued(8, queue="burst", admin_comment=admin_comment(advice(None, Reason.EXPLICIT_BURST)))
    for untouched in (by_hand, make_queued(9, queue="burst"), make_queued(10)):
        assert on_premise_job(untouched, SETTINGS) is untouched


class Told:
    """Stands for both estimators."""

    def __init__(self, ended: list[JobOutcome]) -> None:
        self.ended = ended
        self.total_processors = 0
        self.observed: list[Job] = []
        self.learned: list[JobOutcome] = []

    def learn_ends(self, _state_at: object) -> list[JobOutcome]:
        return self.ended

    def learn_starts(self, *_: object) -> int:
        return 0

    def observe(self, jobs: Iterable[QueuedJob], _now: float) -> None:
        self.observed += [queued.job for queued in jobs]

    def learn(self, outcomes: Iterable[JobOutcome]) -> None:
        self.learned += outcomes


def test_the_size_model_is_told_so(store: HistoryStore, tmp_path: Path) -> None:
    store.add_advice(
        [AdviceRecord(advice=advice("long"), job=Job(job_id=0, submit_time=1e3, processors=1, queue="long"))]
    )
    store.link("a-1", 7)
    moved = make_queued(
        7, "RUNNING", queue="burst", start_time=1.8e9, admin_comment=admin_comment(advice("long"))
    )
    told: Any = Told([JobOutcome(job=moved.job, start_time=1.8e9, end_time=1.8e9 + 1e3, partition="burst")])
    hands = Hands()
    view = SharedView(hands.clock, 60.0)
    view.update(make_look(hands.wall, jobs=(moved,)), make_cluster())
    slurm: Any = None
    models = ModelStore(folder=tmp_path)
    loop = LearnLoop(
        SETTINGS,
        slurm=slurm,
        store=store,
        models=models,
        view=view,
        metrics=ControlMetrics(),
        clock=hands.clock,
    )
    loop.knowledge = loop.sizes = told
    loop.learn_starts()
    loop.learn_ends()
    assert [job.queue for job in told.observed] == ["long"]
    (learned,) = told.learned
    assert learned.job.queue == "long"
    assert learned.run_seconds < 1e3, "what it would have taken here"
