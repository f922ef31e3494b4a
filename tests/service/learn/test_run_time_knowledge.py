"""Run times in `advisor control`: learned once from each job, judged by what was advised, and saved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.advice import (
    Advice,
    Answer,
    Hedge,
    HedgeKind,
    Mode,
    Placement,
    Quantity,
    Question,
    Verdict,
)
from advisor.model.errors import RetryLater
from advisor.model.estimate import Estimate, Estimates
from advisor.model.job import Job, JobOutcome, JobState
from advisor.model.settings import Settings
from advisor.model.settings_promise import PromiseSettings
from advisor.predict.intervals import Intervals
from advisor.predict.promised.levels import Kind
from advisor.predict.promised.waits import Plans
from advisor.predict.run_times.run_times import RunTimesOfJobs
from advisor.service.learn.knowledge import Knowledge
from advisor.service.learn.learning import LearnLoop
from advisor.service.learn.run_time_knowledge import RunTimeKnowledge
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.running.metrics import ControlMetrics
from advisor.service.submit.run_times import RUN_TIMES_KIND
from tests.service.doubles import make_look, make_queued
from tests.service.site import make_cluster, make_settings

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
    settings = make_settings(tmp_path).model_copy(update={"promise": PromiseSettings(enabled=True)})
    yield Desk(RunTimeKnowledge(settings, store, models, clock), store, models, elapsed)
    store.close()


def learn_loop(
    desk: Desk, settings: Settings, double: Any, *, view: Any, metrics: ControlMetrics | None = None
) -> LearnLoop:
    """A learn loop whose other estimators, and the accounting, are a double."""
    loop = LearnLoop(
        settings,
        slurm=double,
        store=desk.store,
        models=desk.models,
        view=view,
        metrics=metrics or ControlMetrics(),
        clock=Clock(),
    )
    loop.knowledge = loop.sizes = loop.ratios = loop.drift = double
    return loop


def test_a_database_that_is_busy_while_the_history_is_read_teaches_no_job_twice(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = [structs.replace(outcome(number), partition="burst") for number in range(20)]
    desk.store.add(ended, source="slurm")
    desk.knowledge.learn()
    once = desk.knowledge.chances(outcome(99).job)
    (tmp_path / "none").mkdir(mode=0o700)
    hindered = RunTimeKnowledge(
        make_settings(tmp_path), desk.store, ModelStore(folder=tmp_path / "none"), Clock()
    )
    answers = iter([*[None] * 9, RetryLater("the database is locked")])

    def advice_of(*_: Any, **__: Any) -> None:
        if answer := next(answers):
            raise answer

    with monkeypatch.context() as busy:
        busy.setattr(desk.store, "advice_of", advice_of)
        with pytest.raises(RetryLater):
            hindered.learn()
    hindered.learn()
    assert np.array_equal(hindered.chances(outcome(99).job), once)


def test_jobs_of_the_history_are_learned_once_and_saved(desk: Desk) -> None:
    desk.store.add([outcome(number) for number in range(20)], source="slurm")
    desk.knowledge.learn()
    first = desk.saved().chances(outcome(99).job)
    desk.knowledge.learn()
    assert np.array_equal(desk.saved().chances(outcome(99).job), first)


def test_another_confidence_of_promises_is_saved_at_once(desk: Desk, tmp_path: Path) -> None:
    """`advisor serve` promises by what is saved; on a quiet site no job may end for days."""
    desk.store.add([outcome(number) for number in range(3)], source="slurm")
    desk.knowledge.learn()
    assert desk.saved().promises.levels.confidence == 0.95
    settings = make_settings(tmp_path).model_copy(update={"promise": PromiseSettings(confidence=0.8)})
    clock = Clock(monotonic=lambda: 0.0)
    reloaded = Desk(
        RunTimeKnowledge(settings, desk.store, desk.models, clock), desk.store, desk.models, [0.0]
    )
    reloaded.knowledge.learn()
    assert reloaded.saved().promises.levels.confidence == 0.8


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


def test_the_error_of_a_wait_is_learned_beside_the_expected_one(desk: Desk) -> None:
    """A plan by limits of nine hours for waits of two is no reason to doubt a forecast of two."""
    desk.knowledge.learn()
    before = desk.saved().errors.wait(2 * HOUR)
    for number in range(300):
        ended = outcome(number, wait=2 * HOUR)
        record = advised(ended)
        estimates = structs.replace(record.estimates, planned_wait=9 * HOUR)
        desk.knowledge.judge(structs.replace(record, estimates=estimates), ended)
    after = desk.saved()
    assert after.errors.wait(2 * HOUR).deviation < 0.5 * before.deviation


def test_run_times_of_a_release_that_learned_no_errors_are_read(desk: Desk) -> None:
    desk.knowledge.learn()
    arrays = desk.saved().to_arrays()
    del arrays["errors"]
    known = RunTimesOfJobs.from_arrays(arrays)
    assert np.array_equal(known.errors.to_array(), Intervals().to_array())


def test_the_waits_of_an_arrays_tasks_are_not_those_that_were_forecast(desk: Desk) -> None:
    """The forecast is that of the first task, and the others wait for it as well."""
    desk.knowledge.learn()
    before = desk.saved()
    for number in range(100):
        ended = outcome(number, wait=9 * HOUR, run=2000.0)
        record = advised(ended)
        job = structs.replace(record.job, array_tasks=100)
        desk.knowledge.judge(structs.replace(record, job=job), ended)
    after = desk.saved()
    assert before.intervals.wait(2 * HOUR) == after.intervals.wait(2 * HOUR)
    given = Estimate(seconds=600.0, variance=1.0, lower=500.0, upper=700.0)
    assert after.intervals.run(given, HOUR).upper > 2000.0


def test_the_wait_of_a_job_that_might_not_start_is_not_the_one_that_was_forecast(desk: Desk) -> None:
    desk.knowledge.learn()
    before = desk.saved()
    for number in range(100):
        ended = structs.replace(outcome(number, wait=9 * HOUR), ineligible_seconds=8 * HOUR)
        desk.knowledge.judge(advised(ended), ended)
    assert before.intervals.wait(2 * HOUR) == desk.saved().intervals.wait(2 * HOUR)


def test_the_metrics_judge_a_later_advice_by_the_wait_that_was_left(desk: Desk, tmp_path: Path) -> None:
    ended = structs.replace(outcome(1, wait=4 * HOUR), advice_id="1")
    record = advised(ended, later=3 * HOUR)
    known: Any = SimpleNamespace(judge=lambda *_: None)
    metrics = ControlMetrics()
    loop = learn_loop(desk, make_settings(tmp_path), known, view=known, metrics=metrics)
    loop.run_times = None
    desk.store.add_advice([record])
    loop.judge_ends()
    desk.store.add([ended], source="slurm")
    loop.judge_ends()
    error = abs(record.estimates.wait.seconds - HOUR)
    text = metrics.exposition(lambda: "").decode()
    assert f'advisor_prediction_error_seconds_sum{{what="wait"}} {error}' in text


def test_a_later_advice_is_judged_by_the_wait_that_was_left(desk: Desk) -> None:
    desk.knowledge.learn()
    for number in range(100):
        ended = outcome(number, wait=4 * HOUR)
        desk.knowledge.judge(advised(ended, later=3 * HOUR), ended)
    assert desk.saved().intervals.wait(2 * HOUR).upper < 2 * HOUR


def promised(ended: JobOutcome, hours: float, *, free: float | None = None) -> AdviceRecord:
    """The advice of a job that was promised to be done in so many hours; it is free from `free` hours on."""
    record = advised(ended)
    due, free_in = Quantity(hours * HOUR), Quantity(HOUR * (hours if free is None else free))
    numbers = (("deadline_in", due), ("is_promised", Quantity(1.0, "")), ("free_in", free_in))
    answer = Answer(
        question=Question.FASTER, verdict=Verdict.NO, reason=Reason.PROMISE_WAITS, numbers=numbers
    )
    return structs.replace(record, advice=structs.replace(record.advice, answers=(answer,)))


def test_a_promise_is_that_of_the_submission_however_soon_the_job_has_moved(desk: Desk) -> None:
    """A job that moves within a minute has a newer advice, by which its time can no longer be promised."""
    ended = outcome(1, wait=600.0, run=600.0)
    made = promised(ended, 2.0)
    late = (("deadline_in", Quantity(1.9 * HOUR)), ("is_promised", Quantity(0.0, "")))
    late += (("free_in", Quantity(3.0 * HOUR)),)
    answer = structs.replace(made.advice.answers[0], numbers=late, reason=Reason.PROMISE_GOES)
    advice = structs.replace(made.advice, advice_id="later", time=made.advice.time + 30.0, answers=(answer,))
    moved = structs.replace(made, advice=advice)
    desk.store.add_advice([made, moved])
    for one in (made, moved):
        desk.store.link(one.advice.advice_id, 1)
    desk.knowledge.judge_promise(moved, ended)
    assert desk.knowledge.report() == {"made": 1, "kept": 1, "open": {}}


def test_promises_are_counted_and_a_cancelled_job_is_none(desk: Desk) -> None:
    ended = outcome(1, wait=HOUR, run=600.0)
    desk.knowledge.judge_promise(promised(ended, 2.0), ended)
    assert desk.knowledge.report() == {"made": 1, "kept": 1, "open": {}}
    desk.knowledge.judge_promise(promised(ended, 1.0), ended)
    assert desk.knowledge.report() == {"made": 2, "kept": 1, "open": {}}
    desk.knowledge.judge_promise(advised(ended), ended)  # nothing was promised
    cancelled = structs.replace(ended, state=JobState.CANCELLED)
    desk.knowledge.judge_promise(promised(ended, 2.0), cancelled)
    assert desk.knowledge.report() == {"made": 2, "kept": 1, "open": {}}
    # one that its user has cancelled after its time was broken before
    desk.knowledge.judge_promise(promised(ended, 1.0), cancelled)
    assert desk.knowledge.report() == {"made": 3, "kept": 1, "open": {}}
    desk.knowledge.learn()
    assert desk.saved().promises.levels.kept == 1


def test_a_promise_that_was_judged_outlives_a_reload(desk: Desk, tmp_path: Path) -> None:
    """Each Apply of the pages is one; the history says that the end was judged."""
    others = SimpleNamespace(save=lambda **_: False)
    loop = learn_loop(desk, make_settings(tmp_path), others, view=SimpleNamespace())
    loop.run_times = desk.knowledge
    desk.knowledge.learn()
    assert desk.saved().promises.levels.made == 0
    desk.knowledge.judge_promise(promised(outcome(1), 2.0), outcome(1))
    desk.knowledge.save()
    loop.keep()
    kept = RunTimesOfJobs.from_arrays(desk.models.load(RUN_TIMES_KIND)[0])
    assert kept.promises.levels.made == 1


def test_an_end_teaches_sizes_once_whatever_reloads(desk: Desk, tmp_path: Path) -> None:
    """Under the price the k-NN, whose position both go by, is saved every ten minutes, sizes each minute."""
    learned: list[int] = []
    view: Any = SimpleNamespace(state_at=lambda _: None)
    for _ in range(2):
        loop = learn_loop(desk, make_settings(tmp_path), SimpleNamespace(ratio=lambda _: 1.0), view=view)
        loop.knowledge = Knowledge(make_settings(tmp_path), desk.store, desk.models)
        loop.knowledge.prepare()
        loop.sizes = SimpleNamespace(  # type: ignore[assignment]
            learn=lambda outcomes: learned.extend(one.job.job_id for one in outcomes),
            save=lambda **_: False,
        )
        desk.store.add([outcome(1)], source="slurm")
        loop.learn_ends()
        loop.keep()
    assert learned == [1]


def test_kept_promises_teach_the_less_the_more_are_open(desk: Desk) -> None:
    """The first of a burst of like jobs end early; the long ones are still in the queue."""
    record = promised(outcome(1), 6.0)
    comment = admin_comment(record.advice)
    burst = [make_queued(number, requested_time=HOUR, admin_comment=comment) for number in range(2, 402)]
    desk.knowledge.learn()

    def odds() -> float:
        level = desk.saved().promises.chances(Plans(HOUR, HOUR), 2 * HOUR, 600.0).levels[Kind.FREE]
        return math.log(level / (1.0 - level))

    odds_by_number = [odds()]
    for jobs in (burst, []):
        desk.knowledge.see_queue(jobs)
        for _ in range(20):
            desk.knowledge.judge_promise(record, outcome(1))
        odds_by_number.append(odds())
    start, after_burst, after_single = odds_by_number
    assert 0.0 < start - after_burst < 0.3 * (after_burst - after_single)


def test_a_promised_job_that_has_moved_is_open_as_one_between(desk: Desk) -> None:
    made = promised(outcome(1), 6.0)
    moved = structs.replace(made.advice, advice_id="later")
    for advice, kind in ((made.advice, "free"), (moved, "between")):
        queued = make_queued(1, requested_time=HOUR, admin_comment=admin_comment(advice))
        desk.knowledge.see_queue([queued])
        assert desk.knowledge.report()["open"] == {kind: 1}
    desk.knowledge.see_queue([])
    assert desk.knowledge.report()["open"] == {}


def test_each_round_of_learning_sees_the_queue(desk: Desk, tmp_path: Path) -> None:
    settings = make_settings(tmp_path).model_copy(update={"promise": PromiseSettings(enabled=True)})
    made = admin_comment(promised(outcome(1), 6.0).advice)
    elapsed = [0.0]
    view = SharedView(Clock(wall=lambda: NOW, monotonic=lambda: elapsed[0]), 60.0)
    queue = [make_queued(number, requested_time=HOUR, admin_comment=made) for number in range(3)]
    view.update(make_look(NOW, jobs=queue), make_cluster())
    nothing: Any = SimpleNamespace()
    called = list[int]()
    run_times: Any = SimpleNamespace(
        learn=lambda: called.append(-1), see_queue=lambda jobs: called.append(len(jobs))
    )
    loop = learn_loop(desk, settings, nothing, view=view)
    loop.run_times = run_times
    loop.learn_run_times()
    assert called == [-1, 3]
    elapsed[0] = 1e6  # the queue is too old now
    loop.learn_run_times()
    assert called == [-1, 3, -1]


def test_a_job_teaches_what_followed_the_runs_known_at_its_submission(desk: Desk) -> None:
    """It was submitted before the run of 20 s ended, and follows that of 1,000 s."""
    runs = 1000.0, 20.0, 300.0
    first, second, third = (outcome(number, run=run) for number, run in enumerate(runs))
    desk.knowledge.learn()
    expected = RunTimesOfJobs()
    desk.store.add([first], source="slurm")
    desk.knowledge.learn()
    expected.learn(first)
    desk.knowledge.see_queue([replace(make_queued(3), job=third.job)])
    place = expected.look_up(third.job)
    for ended in (second, third):
        desk.store.add([ended], source="slurm")
        desk.knowledge.learn()
    expected.learn(second)
    late = RunTimesOfJobs.from_arrays(expected.to_arrays())
    expected.learn(third, place=place)
    late.learn(third)
    found = desk.saved().chances(outcome(9).job)
    assert np.array_equal(found, expected.chances(outcome(9).job))
    assert not np.array_equal(found, late.chances(outcome(9).job))


def test_a_first_start_learns_the_history_as_it_happened(desk: Desk) -> None:
    """Two jobs wait while the runs of others end: what is known at their submission teaches them."""
    ended = [
        outcome(number, wait=(1 + number % 3) * HOUR, run=60.0 * (1 + number % 5)) for number in range(40)
    ]
    desk.store.add(ended, source="slurm")
    desk.knowledge.learn()
    expected, places = RunTimesOfJobs(), {}
    events = [(one.end_time, 0, one) for one in ended] + [(one.job.submit_time, 1, one) for one in ended]
    for _, begins, one in sorted(events, key=lambda event: event[:2]):
        if begins:
            places[one.job.job_id] = expected.look_up(one.job)
        else:
            expected.learn(one, place=places[one.job.job_id])
    assert np.array_equal(desk.saved().chances(outcome(99).job), expected.chances(outcome(99).job))


def test_a_promise_is_judged_though_its_advice_comes_after_the_end_of_its_job(
    desk: Desk, tmp_path: Path
) -> None:
    """The submit server closes a file of advice every two seconds; a job may run for a moment."""
    ended = structs.replace(outcome(1, wait=1.0, run=1.0), advice_id="1")
    rounds = [[ended], [structs.replace(outcome(2), advice_id="never comes")], []]
    nothing: Any = SimpleNamespace(judge=lambda *_: None)
    loop = learn_loop(desk, make_settings(tmp_path), nothing, view=nothing)
    loop.run_times = desk.knowledge
    made = []
    loop.judge_ends()
    while rounds:
        desk.store.add(rounds.pop(0), source="slurm")
        loop.judge_ends()
        made.append(desk.knowledge.report()["made"])
        desk.store.add_advice([promised(ended, 2.0)])
        desk.store.link("1", 1)
    assert made == [0, 1, 1]


def judging(desk: Desk, folder: Path, drift: Any) -> LearnLoop:
    nothing: Any = SimpleNamespace(judge=lambda *_: None)
    loop = learn_loop(desk, make_settings(folder), nothing, view=nothing)
    loop.drift, loop.run_times = drift, None
    return loop


def test_an_end_is_judged_once_whatever_restarts(desk: Desk, tmp_path: Path) -> None:
    """Under the price the k-NN is saved every ten minutes: a new process learns what ended since again."""
    judged: list[int] = []
    told: Any = SimpleNamespace(judge=lambda *said: judged.append(said[-1].job.job_id))
    loops = [judging(desk, tmp_path, told) for _ in range(2)]
    loops[0].judge_ends()
    for number, loop in enumerate(loops, start=1):
        ended = structs.replace(outcome(number), advice_id=f"{number}")
        desk.store.add_advice([advised(ended)])
        desk.store.add([ended], source="slurm")
        loop.judge_ends()
    assert judged == [1, 2]


def test_an_end_is_not_judged_by_the_advice_of_a_job_that_had_its_number(desk: Desk, tmp_path: Path) -> None:
    judged: list[str] = []
    told: Any = SimpleNamespace(judge=lambda record, _: judged.append(record.advice.advice_id))
    loop = judging(desk, tmp_path, told)
    loop.judge_ends()
    first = structs.replace(outcome(7), advice_id="7")
    desk.store.add_advice([advised(first)])
    later = structs.replace(first.job, submit_time=first.end_time + 90 * HOUR)
    again = structs.replace(
        first, job=later, start_time=later.submit_time, end_time=later.submit_time + 60.0, advice_id=None
    )
    desk.store.add([first, again], source="slurm")
    loop.judge_ends()
    assert judged == ["7"]


def test_a_job_that_has_come_back_was_paid_for(desk: Desk) -> None:
    desk.knowledge.learn()
    back = structs.replace(outcome(1, wait=HOUR), restarts=1)
    made = promised(back, 1.0, free=2.0)
    before = desk.saved().promises.chances(Plans(HOUR, HOUR), 2 * HOUR, 600.0)
    desk.knowledge.judge_promise(structs.replace(made, advice=moved_by(made.advice)), back)
    after = desk.saved().promises.chances(Plans(HOUR, HOUR), 2 * HOUR, 600.0)
    assert after.levels[Kind.SOONEST] > before.levels[Kind.SOONEST]


def moved_by(advice: Advice, **changes: Any) -> Advice:
    return structs.replace(advice, placement=Placement.BURST, partition="burst", **changes)


@pytest.mark.parametrize("keeps_place", [False, True])
def test_a_job_that_left_the_queue_has_waited_at_least_so_long(desk: Desk, *, keeps_place: bool) -> None:
    """It moves after half an hour and ends in the cloud after four: two hours were planned for it."""
    desk.knowledge.learn()
    before = desk.saved().promises.waits.spread(Plans(2 * HOUR, 2 * HOUR))
    for number in range(200):
        ended = structs.replace(outcome(number, wait=0.6 * HOUR, run=3.4 * HOUR), partition="burst")
        made, hedge = advised(ended), Hedge(kind=HedgeKind.PROMISE, stop_seconds=math.inf)
        advice = moved_by(made.advice, advice_id=f"moved-{number}", time=made.advice.time + 0.5 * HOUR)
        moved = structs.replace(made, advice=structs.replace(advice, hedge=hedge if keeps_place else None))
        desk.store.add_advice([made, moved])
        for one in (made, moved):
            desk.store.link(one.advice.advice_id, number)
        desk.knowledge.learn_left(moved, ended)
    waits, shares = desk.saved().promises.waits.spread(Plans(2 * HOUR, 2 * HOUR))
    assert shares[waits < 0.4 * HOUR].sum() < 0.3 * before[1][before[0] < 0.4 * HOUR].sum()
    assert (shares[waits < 1.8 * HOUR].sum() < 0.1) == keeps_place


def test_a_promise_broken_by_its_run_teaches_something_else_than_one_for_want_of_a_start(desk: Desk) -> None:
    desk.knowledge.learn()
    fresh = desk.saved().promises.chances(Plans(HOUR, HOUR), 2 * HOUR, 600.0)
    late = outcome(1, wait=HOUR)
    for _ in range(40):
        desk.knowledge.judge_promise(promised(late, 5.0, free=6.0), late)
    long = outcome(1, wait=HOUR, run=701.0)  # the upper bound of its forecast is 700 s
    there = structs.replace(late, partition=make_settings(Path()).cluster.burst_partition)
    for moved in (late, long, there):
        before = desk.saved().promises.chances(Plans(HOUR, HOUR), 2 * HOUR, 600.0)
        desk.knowledge.judge_promise(promised(moved, 1.0, free=2.0), moved)
        after = desk.saved().promises.chances(Plans(HOUR, HOUR), 2 * HOUR, 600.0)
        assert (after.levels[Kind.SOONEST] > before.levels[Kind.SOONEST]) == (moved is not late)
        assert after.strains[Kind.SOONEST] > before.strains[Kind.SOONEST]
    assert after.levels[Kind.FREE] == fresh.levels[Kind.FREE]
