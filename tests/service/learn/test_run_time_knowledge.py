"""Run times in `advisor control`: learned once from each job, judged by what was advised, and saved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from advisor.decide.explanation.reasons import Reason
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model import Job, JobOutcome
from advisor.model.advice import Advice, Answer, Mode, Placement, Quantity, Question, Verdict
from advisor.model.estimate import Estimate, Estimates
from advisor.model.job import JobState
from advisor.predict.run_times.of_jobs import RunTimesOfJobs
from advisor.service.learn.run_time_knowledge import RunTimeKnowledge
from advisor.service.running.clock import Clock
from advisor.service.submit.run_times import RUN_TIMES_KIND
from tests.service.site import make_settings

NOW = 1_800_000_000.0
HOUR = 3600.0


def outcome(number: int, *, wait: float = HOUR, run: float = 600.0) -> JobOutcome:
    submit = NOW + 1000.0 * number
    job = Job(
        job_id=number, submit_time=submit, processors=2, user="mia", queue="onprem", requested_time=HOUR
    )
    return JobOutcome(job=job, start_time=submit + wait, end_time=submit + wait + run, partition="onprem")


def advised(ended: JobOutcome, *, later: float = 0.0) -> AdviceRecord:
    """The advice of a job for which two hours were planned, given ``later`` than its submission, seconds."""
    return AdviceRecord(
        advice=Advice(
            advice_id=f"{ended.job.job_id}",
            time=ended.job.submit_time + later,
            placement=Placement.ON_PREMISE,
            partition=None,
            capacity=None,
            mode=Mode.ACT,
            answers=(),
        ),
        job=ended.job,
        estimates=Estimates(
            wait=Estimate(seconds=2 * HOUR, variance=1.0, lower=100.0, upper=2 * HOUR),
            run=Estimate(seconds=600.0, variance=1.0, lower=500.0, upper=700.0),
        ),
    )


@dataclass
class Desk:
    knowledge: RunTimeKnowledge
    store: HistoryStore
    models: ModelStore
    elapsed: list[float]

    def saved(self) -> RunTimesOfJobs:
        self.elapsed[0] += 601.0  # seconds; it is saved every ten minutes
        self.knowledge.save()
        return RunTimesOfJobs.from_arrays(self.models.load(RUN_TIMES_KIND)[0])


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "models").mkdir(mode=0o700)
    store = HistoryStore(f"sqlite:///{tmp_path / 'history.db'}")
    models, elapsed = ModelStore(folder=tmp_path / "models"), [0.0]
    clock = Clock(monotonic=lambda: elapsed[0])
    yield Desk(RunTimeKnowledge(make_settings(tmp_path), store, models, clock), store, models, elapsed)
    store.close()


def test_jobs_of_the_history_are_learned_once_and_saved(desk: Desk) -> None:
    desk.store.add([outcome(number) for number in range(20)], source="slurm")
    desk.knowledge.learn()
    first = desk.saved().chances(outcome(99).job)
    desk.knowledge.learn()
    assert np.array_equal(desk.saved().chances(outcome(99).job), first)


def test_the_intervals_of_advice_are_judged_by_the_waits_and_run_times(desk: Desk) -> None:
    desk.knowledge.learn()
    before = desk.saved()
    for number in range(100):
        ended = outcome(number, run=2000.0)
        desk.knowledge.judge(advised(ended), ended)
    after = desk.saved()
    assert before.intervals.wait(2 * HOUR).lower < after.intervals.wait(2 * HOUR).lower
    given = Estimate(seconds=600.0, variance=1.0, lower=500.0, upper=700.0)
    assert before.intervals.run(given, HOUR).upper == 700.0
    assert after.intervals.run(given, HOUR).upper > 2000.0


def test_a_later_advice_is_judged_by_the_wait_that_was_left(desk: Desk) -> None:
    desk.knowledge.learn()
    for number in range(100):
        ended = outcome(number, wait=4 * HOUR)
        desk.knowledge.judge(advised(ended, later=3 * HOUR), ended)
    assert desk.saved().intervals.wait(2 * HOUR).upper < 2 * HOUR


def promised(ended: JobOutcome, hours: float) -> AdviceRecord:
    """The advice of a job that was promised to be done within so many hours, for nothing."""
    record = advised(ended)
    due = Quantity(hours * HOUR)
    numbers = (("deadline_in", due), ("is_promised", Quantity(1.0, "")), ("free_in", due))
    answer = Answer(
        question=Question.FASTER, verdict=Verdict.NO, reason=Reason.PROMISE_WAITS, numbers=numbers
    )
    return structs.replace(record, advice=structs.replace(record.advice, answers=(answer,)))


def test_promises_are_counted_and_a_cancelled_job_is_none(desk: Desk) -> None:
    ended = outcome(1, wait=HOUR, run=600.0)
    desk.knowledge.judge_promise(promised(ended, 2.0), ended)
    assert desk.knowledge.report() == {"made": 1, "kept": 1}
    desk.knowledge.judge_promise(promised(ended, 1.0), ended)
    assert desk.knowledge.report() == {"made": 2, "kept": 1}
    desk.knowledge.judge_promise(advised(ended), ended)  # nothing was promised
    cancelled = structs.replace(ended, state=JobState.CANCELLED)
    desk.knowledge.judge_promise(promised(ended, 2.0), cancelled)
    assert desk.knowledge.report() == {"made": 2, "kept": 1}
    # one that its user has cancelled after its time was broken before
    desk.knowledge.judge_promise(promised(ended, 1.0), cancelled)
    assert desk.knowledge.report() == {"made": 3, "kept": 1}
    desk.knowledge.learn()
    assert desk.saved().promises.levels.kept == 1
