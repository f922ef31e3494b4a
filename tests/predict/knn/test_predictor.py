"""Wait, run time and size of one submission, learned job by job or from a log."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.model.estimate import NO_SIZE, SizeEstimate
from advisor.model.job import Job, JobOutcome
from advisor.model.table import JobTable
from advisor.predict.knn.features import CUNHA_TABLE_I, Encoder, FeatureSchema
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.predictor import Predictor
from advisor.predict.knn.tracker import states_of

WITH_PROCESSORS = FeatureSchema("more", (*CUNHA_TABLE_I.features, "processors"))
PARAMETERS = KnnParameters(3, 0.5, 50, (1.0,) * 11)


def predictor_of(**changes):
    return Predictor(PARAMETERS, PARAMETERS, **changes)


def log(jobs=60):
    generator = np.random.default_rng(2)
    return JobTable(
        job_id=np.arange(1, jobs + 1),
        submit=np.sort(generator.integers(0, 5000, jobs)).astype(float),
        wait=generator.integers(-1, 900, jobs).astype(float),
        run=generator.integers(-1, 2000, jobs).astype(float),
        processors=generator.integers(1, 8, jobs),
        requested_time=np.where(generator.random(jobs) < 0.1, np.nan, 3600.0),
        user=generator.integers(0, 5, jobs),
        group=generator.integers(0, 2, jobs),
        queue=generator.integers(0, 2, jobs),
        status=np.ones(jobs, np.int64),
        start_of_log=1e9,
        utc_offset_seconds=3600.0,
        total_processors=32,
    )


def job_of(table, row):
    requested = table.requested_time[row].item()
    return Job(
        job_id=table.job_id[row].item(),
        submit_time=table.submit[row].item(),
        processors=table.processors[row].item(),
        requested_time=None if math.isnan(requested) else requested,
        user=str(table.user[row]),
        group=str(table.group[row]),
        queue=str(table.queue[row]),
    )


def outcome(*, wait=100.0, run=500.0, **changes):
    job = Job(job_id=1, submit_time=1000.0, processors=2, user="ada")
    values = {"job": job, "start_time": 1000.0 + wait, "end_time": 1000.0 + wait + run}
    return JobOutcome(**(values | changes))


def test_learns_wait_and_run_time_of_a_finished_job():
    predictor = predictor_of()
    predictor.learn(outcome(), None)
    estimates = predictor.estimate(Job(job_id=2, submit_time=2000.0, processors=2, user="ada"), None)
    assert estimates.wait.seconds == pytest.approx(100.0)
    assert estimates.run.seconds == pytest.approx(500.0)
    assert math.isinf(estimates.wait.variance)  # one neighbour
    assert estimates.size == NO_SIZE


@pytest.mark.parametrize(
    ("finished", "options", "known"),
    [
        (outcome(), {}, (1, 1)),
        (outcome(), {"wait": False}, (0, 1)),
        (outcome(restarts=1), {}, (0, 1)),  # requeued: from submission to last start is not all waiting
        (outcome(run=0.0), {}, (0, 0)),  # never ran
        (outcome(wait=-5.0), {}, (0, 1)),  # clocks disagree
    ],
)
def test_learns_only_what_it_may(finished, options, known):
    predictor = predictor_of()
    predictor.learn(finished, None, **options)
    assert (len(predictor.wait), len(predictor.run)) == known


def test_wait_can_be_learned_as_soon_as_the_job_starts():
    predictor = predictor_of()
    assert predictor.learn_wait(outcome().job, 1040.0, None)
    predictor.learn(outcome(wait=40.0), None, wait=False)
    assert (len(predictor.wait), len(predictor.run)) == (1, 1)
    assert not predictor.learn_wait(outcome().job, 999.0, None)


def test_log_at_once_equals_job_by_job():
    table = log()
    states = states_of(table)
    until = 4000.0
    encoder = Encoder(start_of_log=table.start_of_log, utc_offset_seconds=table.utc_offset_seconds)
    at_once = predictor_of(encoder=encoder)
    at_once.learn_table(table, states, until=until)
    one_by_one = predictor_of(encoder=encoder)
    for row in np.argsort(table.start, kind="stable"):
        if table.run[row] > 0 and table.start[row] < until:
            one_by_one.learn_wait(job_of(table, row), table.start[row], states.state(row))
    for row in np.argsort(table.end, kind="stable"):
        if table.end[row] < until:
            finished = JobOutcome(
                job=job_of(table, row),
                start_time=table.start[row].item(),
                end_time=table.end[row].item(),
            )
            one_by_one.learn(finished, states.state(row), wait=False)
    assert 0 < len(at_once.run) < len(at_once.wait)
    arrays, expected = at_once.to_arrays()[0], one_by_one.to_arrays()[0]
    for name in arrays:
        assert np.array_equal(arrays[name], expected[name], equal_nan=True), name


def test_a_log_may_start_at_another_epoch_time():
    table = log()
    live = predictor_of(encoder=Encoder(utc_offset_seconds=3600.0))
    live.learn_table(table, states_of(table))
    replayed = predictor_of(encoder=Encoder(start_of_log=1e9, utc_offset_seconds=3600.0))
    replayed.learn_table(table, states_of(table))
    arrays, expected = live.to_arrays()[0], replayed.to_arrays()[0]
    assert np.array_equal(arrays["run.features"], expected["run.features"], equal_nan=True)
    assert np.array_equal(arrays["run.times"], expected["run.times"] + 1e9)


class ByUser:
    """A size model: small is what ada submits."""

    def classify(self, job, probability_cut):
        vote = 0.7 if job.user == "ada" else 0.2
        return SizeEstimate(is_small=vote >= probability_cut, probability_small=vote, divider_seconds=600.0)


@pytest.mark.parametrize(("cut", "small"), [(0.5, True), (0.8, False)])
def test_size_is_asked_at_the_cut(cut, small):
    predictor = predictor_of(size=ByUser(), probability_cut=cut)
    assert predictor.estimate(outcome().job, None).size.is_small is small


@pytest.mark.parametrize("schema", [Encoder().schema, WITH_PROCESSORS])
def test_arrays_carry_everything(schema):
    table = log()
    encoder = Encoder(schema, start_of_log=1e9, utc_offset_seconds=3600.0)
    parameters = KnnParameters(3, 0.5, 20, (1.0,) * len(schema))
    predictor = Predictor(parameters, parameters, encoder=encoder, coverage=0.8)
    predictor.learn_table(table, states_of(table))
    arrays, meta = predictor.to_arrays()
    again = Predictor.from_arrays(arrays, meta, size=ByUser(), probability_cut=0.3)
    again.warm()
    state = states_of(table).state(30)
    expected = predictor.estimate(job_of(table, 30), state)
    found = again.estimate(job_of(table, 30), state)
    assert (found.wait, found.run) == (expected.wait, expected.run)
    assert found.wait.coverage == 0.8
    assert meta["cases"] == {"wait": 20, "run": 20}
    assert again.to_arrays()[1] == meta


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 99},
        {"format": None},
        {"schema": {}},
        {"schema": {"name": "x", "features": ["moon"]}},
        {"start_of_log": "yesterday"},
    ],
)
def test_damaged_descriptions_are_refused(damage):
    arrays, meta = predictor_of().to_arrays()
    with pytest.raises(BadInput):
        Predictor.from_arrays(arrays, meta | damage)


def test_missing_arrays_are_refused():
    arrays, meta = predictor_of().to_arrays()
    del arrays["wait.labels"]
    with pytest.raises(BadInput):
        Predictor.from_arrays(arrays, meta)


def test_damage_is_mended_by_the_process_that_builds_the_predictor():
    arrays, meta = predictor_of().to_arrays()
    with pytest.raises(BadInput, match="Restart `advisor control`"):
        Predictor.from_arrays(arrays, meta | {"format": 99})
    del arrays["run.labels"]
    with pytest.raises(BadInput, match="Restart `advisor control`"):
        Predictor.from_arrays(arrays, meta)
