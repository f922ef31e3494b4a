"""Table I as numbers."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from advisor.model.cluster import ClusterState
from advisor.model.errors import BadInput
from advisor.model.job import Job
from advisor.model.table import UNKNOWN_CODE, JobTable
from advisor.predict.knn import features as module
from advisor.predict.knn.features import CUNHA_TABLE_I, Encoder, FeatureSchema, code_of
from advisor.predict.knn.tracker import states_of

STATE = ClusterState(
    time=0.0,
    queue_size=3,
    queued_work_core_seconds=4e5,
    remaining_work_core_seconds=2e5,
    free_processors=17,
    total_processors=64,
    running_jobs=5,
)


def job(**changes):
    known = {"user": "ada", "group": "physics", "queue": "batch", "requested_time": 3600.0}
    return Job(**{"job_id": 7, "submit_time": 0.0, "processors": 4, **known, **changes})


def encoded(encoder, *args):
    return dict(zip(encoder.schema.features, encoder.encode(*args).tolist(), strict=True))


def test_published_schema_is_table_1():
    kinds = dict(zip(CUNHA_TABLE_I.features, CUNHA_TABLE_I.nominal.tolist(), strict=True))
    assert len(CUNHA_TABLE_I) == 11
    assert [name for name, nominal in kinds.items() if nominal] == ["user", "group", "queue"]
    assert "processors" not in kinds


def test_one_submission():
    moment = datetime(2026, 11, 21, 14, 30, tzinfo=timezone(timedelta(hours=2)))  # a Saturday
    encoder = Encoder(utc_offset_seconds=7200.0)
    values = encoded(encoder, job(submit_time=moment.timestamp()), STATE)
    assert values["user"] == code_of("ada")
    assert values["queue"] == code_of("batch")
    assert values["weekday"] == 5.0
    assert values["time_since_midnight"] == 14.5 * 3600
    assert values["requested_time"] == 3600.0
    assert values["queue_size"] == 3.0
    assert values["queued_work"] == 4e5
    assert values["remaining_work"] == 2e5
    assert values["free_processors"] == 17.0


@pytest.mark.parametrize("day", range(10))
def test_weekdays_equal_the_calendars(day):
    moment = datetime(2024, 2, 26 + day % 3, 23, 59, tzinfo=UTC) + timedelta(days=3 * day)
    values = encoded(Encoder(), job(submit_time=moment.timestamp()), None)
    assert values["weekday"] == moment.weekday()


def test_what_is_unknown_is_nan():
    values = encoded(Encoder(), job(user=None, group="", requested_time=None), None)
    unknown = {name for name, value in values.items() if math.isnan(value)}
    assert unknown == {
        "user",
        "group",
        "requested_time",
        "queue_size",
        "queued_work",
        "remaining_work",
        "free_processors",
    }


def test_replay_knows_its_start():
    in_replay = Encoder(start_of_log=1e9).encode(job(submit_time=500.0), STATE)
    live = Encoder().encode(job(submit_time=1e9 + 500.0), STATE)
    assert in_replay.tolist() == live.tolist()


def test_every_feature_has_a_value():
    encoder = Encoder(CUNHA_TABLE_I)
    assert not any(math.isnan(value) for value in encoded(encoder, job(), STATE).values())
    assert math.isnan(encoded(encoder, job(requested_time=None), STATE)["requested_time"])


@pytest.mark.parametrize("names", [("user", "moon"), ("user", "user"), ()])
def test_wrong_schema_is_refused(names):
    with pytest.raises(BadInput):
        FeatureSchema("wrong", names)


def test_codes_are_exact_stable_and_distinct():
    codes = [code_of(f"user{i}") for i in range(20_000)]
    assert len(set(codes)) == 20_000
    assert all(code == int(code) and 0 <= code < 2**52 for code in codes)
    assert code_of("ada") == 686444793576875.0  # models on disk depend on it
    code_of("\udcff")  # a name that is no valid text


def test_remembered_codes_are_bounded_and_nothing_is_lost(monkeypatch):
    monkeypatch.setattr(module, "CODES_REMEMBERED", 3)
    encoder = Encoder(FeatureSchema("one", ("user",)))
    for name in ("a", "b", "c", "d", "e", "a"):
        assert encoder.encode(job(user=name), None)[0] == code_of(name)
        assert len(encoder._codes) <= 3


def test_a_very_long_name_is_truncated():
    encoder = Encoder(FeatureSchema("one", ("user",)))
    assert encoder.encode(job(user="x" * 10_000_000), None)[0] == code_of("x" * 1024)


def test_table_is_encoded_as_its_jobs_are():
    table = JobTable(
        job_id=np.array([1, 2, 3]),
        submit=np.array([0.0, 90_000.0, 100_000.0]),
        wait=np.array([200_000.0, 5.0, 0.0]),
        run=np.array([60.0, 70.0, 80.0]),
        processors=np.array([4, 8, 1]),
        requested_time=np.array([3600.0, np.nan, 60.0]),
        user=np.array([95, UNKNOWN_CODE, 7]),
        group=np.array([1, 1, UNKNOWN_CODE]),
        queue=np.array([2, 3, 2]),
        status=np.array([1, 1, 1]),
        start_of_log=1e9,
        utc_offset_seconds=3600.0,
        total_processors=64,
    )
    names = (*CUNHA_TABLE_I.features, "processors")
    encoder = Encoder(FeatureSchema("more", names), start_of_log=1e9, utc_offset_seconds=3600.0)
    states = states_of(table)
    rows = encoder.encode_table(table, states)
    assert rows.shape == (3, 12)

    def text(code):
        return None if code == UNKNOWN_CODE else str(code)

    for row in range(3):
        requested = table.requested_time[row].item()
        one = Job(
            job_id=table.job_id[row].item(),
            submit_time=table.submit[row].item(),
            processors=table.processors[row].item(),
            requested_time=None if math.isnan(requested) else requested,
            user=text(table.user[row].item()),
            group=text(table.group[row].item()),
            queue=text(table.queue[row].item()),
        )
        assert np.array_equal(rows[row], encoder.encode(one, states.state(row)), equal_nan=True)


def test_a_tables_own_names_are_used_where_it_has_them():
    codes = np.array([1, 0, UNKNOWN_CODE])
    zeros = np.zeros(3)
    table = JobTable(
        job_id=codes,
        submit=zeros,
        wait=zeros,
        run=zeros + 1,
        processors=np.ones(3, np.int64),
        requested_time=zeros,
        user=codes,
        group=codes,
        queue=codes,
        status=codes,
        names={"user": ("ada", "bob"), "queue": ("short", "")},
    )
    rows = Encoder(FeatureSchema("names", ("user", "group", "queue"))).encode_table(table, states_of(table))
    expected = [
        [code_of("bob"), code_of("1"), math.nan],
        [code_of("ada"), code_of("0"), code_of("short")],
        [math.nan, math.nan, math.nan],
    ]
    assert np.array_equal(rows, expected, equal_nan=True)
