"""The size model in service: first week, equality with the replay, storage, repeated events."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.model.job import Job, JobOutcome, JobState
from advisor.predict.size.size_features import FEATURE_NAMES, replay_features
from advisor.predict.size.size_history import WEEK_SECONDS, SizeHistory, WeeklyDividers
from advisor.predict.size.size_model import GONE_SECONDS, SizeModel
from advisor.predict.size.size_training import ADVISOR, constant, fit, train, training_set


def outcomes_of(count: int = 400, *, weeks: float = 2.0, seed: int = 3) -> list[JobOutcome]:
    """Two users: ann's jobs are short when they ask for little, bob's are as long as the one before."""
    generator = np.random.default_rng(seed)
    outcomes, run = [], 5000.0
    for i, submit in enumerate(np.sort(generator.random(count)) * weeks * WEEK_SECONDS):
        user = "ann" if i % 2 else "bob"
        request = float(generator.choice([600, 36000], p=[0.4, 0.6]))
        if user == "bob":
            run = run if generator.random() < 0.9 else 5010.0 - run
        length = run if user == "bob" else request / 10
        start = float(submit) + float(generator.choice([0, 900]))
        job = Job(job_id=i + 1, submit_time=float(submit), processors=4, user=user, requested_time=request)
        outcomes.append(JobOutcome(job=job, start_time=start, end_time=start + length))
    return outcomes


@pytest.fixture(scope="module")
def history() -> SizeHistory:
    return SizeHistory.from_outcomes(outcomes_of())


@pytest.fixture
def model(history: SizeHistory) -> SizeModel:
    return SizeModel.retrain(history, now=2 * WEEK_SECONDS)


def test_before_the_first_training_everything_is_large():
    model = SizeModel()
    for outcome in outcomes_of(20):
        model.learn(outcome)
    got = model.classify(outcomes_of(20)[0].job, probability_cut=0.0)
    assert not got.is_small
    assert got.probability_small == 0.0
    assert math.isnan(got.divider_seconds)


def test_too_short_a_history_stays_untrained(history):
    model = SizeModel.retrain(history, now=float(history.submit[50]))
    assert model.trees is None
    assert not model.classify(outcomes_of(1)[0].job, probability_cut=0.0).is_small


def test_it_learns_what_divides_small_from_large(model, history):
    now = 2 * WEEK_SECONDS
    finished = history.ran & (history.end < now)
    assert model.divider_seconds == np.median(history.run[finished])
    short = Job(job_id=0, submit_time=now, processors=4, user="ann", requested_time=600.0)
    long = Job(job_id=0, submit_time=now, processors=4, user="ann", requested_time=36000.0)
    assert model.classify(short, 0.5).probability_small > 0.8
    assert model.classify(long, 0.5).probability_small < 0.2
    assert model.classify(short, 0.5).is_small
    assert not model.classify(short, 1.0).is_small


def test_a_job_that_just_finished_changes_the_answer(model):
    """The lag features are online: bob's last job decides, a week's model or not."""
    now, answers = 2 * WEEK_SECONDS, []
    for run in (10.0, 5000.0):
        job = Job(job_id=9000, submit_time=now, processors=4, user="bob", requested_time=600.0)
        for repeat in range(3):
            begin = now + 10_000.0 * (1 + repeat)
            model.learn(JobOutcome(job=job, start_time=begin, end_time=begin + run))
        later = Job(job_id=0, submit_time=now + 60_000, processors=4, user="bob", requested_time=600.0)
        answers.append(model.classify(later, 0.5).probability_small)
    assert answers[0] > 0.7
    assert answers[1] < 0.3


def test_in_service_equals_the_replay_of_the_log(history):
    """Trained at week 1, fed live: the same probabilities as the same trees on replayed features."""
    now = WEEK_SECONDS + float(history.submit[0])
    model = SizeModel.retrain(history, now=now)
    assert model.trees is not None
    dividers = WeeklyDividers.of(history)
    replayed = replay_features(history, dividers)
    outcomes = sorted(outcomes_of(), key=lambda one: one.job.submit_time)
    in_flight = [
        (one.job, one.start_time if one.start_time < now else None)
        for one in outcomes
        if one.job.submit_time < now <= one.end_time
    ]
    expected, got = [], []
    model = _without_in_flight(history, now)
    model.observe(in_flight)
    model.observe(in_flight)  # a snapshot repeats what it said
    week_one = [i for i, one in enumerate(outcomes) if now <= one.job.submit_time < now + WEEK_SECONDS]
    events = [(outcomes[i].job.submit_time, 0, i) for i in week_one]
    events += [(one.start_time, 1, i) for i, one in enumerate(outcomes) if one.start_time >= now]
    events += [(one.end_time, 2, i) for i, one in enumerate(outcomes) if one.end_time >= now]
    for time, what, i in sorted(events):
        if time >= now + WEEK_SECONDS:
            break
        if what == 0:
            got.append(model.classify(outcomes[i].job, 0.5).probability_small)
            expected.append(model.trees.predict(replayed.rows[i : i + 1])[0])
            model.submitted(outcomes[i].job)
        elif what == 1:
            model.started(outcomes[i].job.job_id, time)
        else:
            model.learn(outcomes[i])
    assert len(got) > 100
    np.testing.assert_allclose(got, expected, atol=1e-6)


def _without_in_flight(history: SizeHistory, now: float) -> SizeModel:
    """As the retraining finds it in the history store: finished jobs only."""
    finished = [one for one in outcomes_of() if one.end_time < now]
    return SizeModel.retrain(SizeHistory.from_outcomes(finished), now=now)


def test_training_uses_nothing_after_now(history):
    now = 1.5 * WEEK_SECONDS
    whole = train(history, now=now)
    part = train(history.until(now), now=now)
    assert whole.divider_seconds == part.divider_seconds
    rows = replay_features(history, WeeklyDividers.of(history)).rows
    assert whole.trees is not None
    assert part.trees is not None
    np.testing.assert_array_equal(whole.trees.predict(rows), part.trees.predict(rows))


def test_a_running_job_past_the_divider_is_an_example_of_a_large_one(history):
    job = int(np.argmax(history.end - history.start))
    now = float(history.start[job] + 100.0)
    chosen = training_set(history, now, 60.0, ADVISOR)
    assert job in chosen.jobs
    assert not chosen.small[chosen.jobs == job].any()
    assert job not in training_set(history, now, 200.0, ADVISOR).jobs
    assert np.all(history.submit[chosen.jobs] < now)


def test_one_class_only_is_that_class():
    rows = np.zeros((200, 3), np.float32)
    for small in (True, False):
        trees = fit(rows, np.full(200, small), ADVISOR)
        assert trees is not None
        assert trees.predict(np.ones((2, 3))).tolist() == [float(small)] * 2
    assert fit(rows[:50], np.zeros(50, bool), ADVISOR) is None


def test_stored_and_loaded_it_answers_and_learns_the_same(model):
    live = Job(job_id=7000, submit_time=2 * WEEK_SECONDS, processors=4, user="bob", requested_time=600.0)
    model.observe([(live, 2 * WEEK_SECONDS + 5)])
    arrays, meta = model.to_arrays()
    twin = SizeModel.from_arrays({name: array.copy() for name, array in arrays.items()}, meta)
    done = JobOutcome(job=live, start_time=2 * WEEK_SECONDS + 5, end_time=2 * WEEK_SECONDS + 900)
    for one in (model, twin):
        one.learn(done)
    probes = [
        Job(job_id=0, submit_time=2 * WEEK_SECONDS + 1000, processors=4, user=user, requested_time=request)
        for user in ("ann", "bob", None, "new")
        for request in (600.0, 36000.0, None)
    ]
    assert [model.classify(job, 0.5) for job in probes] == [twin.classify(job, 0.5) for job in probes]
    assert not any(array.dtype.hasobject for array in arrays.values())


def test_an_untrained_model_is_stored_too():
    arrays, meta = SizeModel().to_arrays()
    twin = SizeModel.from_arrays(arrays, meta)
    assert twin.trees is None
    assert math.isnan(twin.divider_seconds)


@pytest.mark.parametrize(
    "damage",
    [
        lambda _, meta: meta.update(format=99),
        lambda _, meta: meta.update(schema=meta["schema"][:-1]),
        lambda _, meta: meta.pop("trained_at"),
        lambda arrays, _: arrays.pop("followed"),
        lambda arrays, _: arrays.update(
            {f"trees.{name}": array for name, array in constant(0.5, 3).to_arrays().items()}
        ),
    ],
)
def test_damaged_models_are_refused(model, damage):
    arrays, meta = model.to_arrays()
    damage(arrays, meta)
    with pytest.raises(BadInput, match="damaged"):
        SizeModel.from_arrays(arrays, meta)


def test_a_requeued_job_waits_again_and_jobs_without_id_are_left_out(model):
    job = Job(job_id=8000, submit_time=2 * WEEK_SECONDS, processors=4, user="eve", requested_time=600.0)
    probe = Job(job_id=0, submit_time=2 * WEEK_SECONDS + 99_999, processors=4, user="eve")
    index = model.to_arrays()[1]["schema"].index("user.newest")

    def newest() -> float:
        return float(model.features.row(probe, 1000.0)[index])

    model.submitted(probe)
    assert math.isnan(newest())
    model.observe([(job, None)])
    assert newest() == -100.0
    model.observe([(job, job.submit_time + 10)])
    assert newest() == pytest.approx(-math.log(99_989))
    model.observe([(job, None)])
    assert newest() == -100.0
    model.learn(JobOutcome(job=job, start_time=job.submit_time + 20, end_time=job.submit_time + 20))
    assert math.isnan(newest())
    model.started(12345, 1.0)  # nobody submitted it


@pytest.mark.parametrize("seen_waiting", [True, False])
def test_a_job_requeued_after_the_divider_is_known_to_be_large(model, seen_waiting):
    """The safeguard of small jobs: the user's next jobs are judged by it before the job has ended."""
    begin, divider = 2 * WEEK_SECONDS, model.divider_seconds
    job = Job(job_id=8000, submit_time=begin, processors=4, user="eve", requested_time=600.0)
    index = model.to_arrays()[1]["schema"].index("user.newest_small_share")

    def small_share(at: float) -> float:
        probe = Job(job_id=0, submit_time=at, processors=4, user="eve", requested_time=600.0)
        return float(model.features.row(probe, divider)[index])

    requeued = begin + divider + 15.0
    model.observe([(job, begin)], now=begin + 1.0)
    assert math.isnan(small_share(begin + divider / 2))
    for number in range(2 if seen_waiting else 0):  # each look says so again
        model.observe([(job, None)], now=requeued + number)
    model.observe([(job, requeued + 60.0)], now=requeued + 61.0)
    assert small_share(requeued + 62.0) == 0.0
    # as large it runs for long; what it really was is learned when it has ended
    model.learn(JobOutcome(job=job, start_time=requeued + 60.0, end_time=requeued + 60.0 + divider / 2))
    assert small_share(requeued + 90_000.0) == 1.0


def test_a_job_requeued_before_the_divider_is_not_known_to_be_large(model):
    begin, divider = 2 * WEEK_SECONDS, model.divider_seconds
    job = Job(job_id=8000, submit_time=begin, processors=4, user="eve", requested_time=600.0)
    index = model.to_arrays()[1]["schema"].index("user.newest_small_share")
    model.observe([(job, begin)], now=begin + 1.0)
    model.observe([(job, None)], now=begin + divider / 2)
    probe = Job(job_id=0, submit_time=begin + 2 * divider, processors=4, user="eve", requested_time=600.0)
    assert math.isnan(float(model.features.row(probe, divider)[index]))


def test_a_job_cancelled_while_it_waited_is_dropped(model):
    """Accounting does not report it: the user's live jobs would grow until the next training."""
    now = 2 * WEEK_SECONDS
    asked = Job(job_id=0, submit_time=now, processors=4, user="bob", requested_time=600.0)
    live = FEATURE_NAMES.index("user.live")
    before = model.features.row(asked, model.divider_seconds)[live]
    waits, runs = (
        Job(job_id=number, submit_time=now, processors=4, user="bob", requested_time=600.0)
        for number in (7001, 7002)
    )
    model.observe([(waits, None), (runs, now + 5)], now + 10)
    assert model.features.row(asked, model.divider_seconds)[live] == before + 2
    model.observe([], now + 20)
    model.observe([(waits, None)], now + 30)  # half a look had hidden it
    model.observe([], now + 40)
    model.observe([], now + 30 + GONE_SECONDS)
    assert model.features.row(asked, model.divider_seconds)[live] == before + 1, "one has been gone for long"
    model.learn(JobOutcome(job=waits, start_time=now + 35, end_time=now + 39))  # slurmdbd was late
    model.observe([], now + 50 + GONE_SECONDS)
    assert model.features.row(asked, model.divider_seconds)[live] == before


@pytest.mark.parametrize("end", [JobState.NODE_FAIL, JobState.PREEMPTED])
def test_a_run_cut_short_does_not_count_as_a_small_job(model, history, end):
    now, divider = 2 * WEEK_SECONDS, model.divider_seconds
    job = Job(job_id=8000, submit_time=now, processors=4, user="eve", requested_time=600.0)
    index = FEATURE_NAMES.index("user.newest_small_share")

    def small_share(at: float) -> float:
        probe = Job(job_id=0, submit_time=at, processors=4, user="eve", requested_time=600.0)
        return float(model.features.row(probe, divider)[index])

    failed = JobOutcome(job=job, start_time=now, end_time=now + divider / 9, state=end)
    done = JobOutcome(job=job, start_time=now + divider, end_time=now + 4 * divider, restarts=1)
    model.observe([(job, now)], now + 1.0)
    model.learn(failed)
    assert math.isnan(small_share(now + divider / 8))
    model.observe([(job, None)], now + divider / 2)
    model.learn(done)
    assert small_share(now + 5 * divider) == 0.0
    assert len(SizeHistory.from_outcomes([failed])) == 0, "nor is the next model trained on it"
    assert SizeHistory.from_outcomes([failed, done]).run.tolist() == [3 * divider]


def test_warming_compiles_without_changing_anything(model):
    before = {name: array.copy() for name, array in model.to_arrays()[0].items()}
    model.warm()
    after = model.to_arrays()[0]
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])
