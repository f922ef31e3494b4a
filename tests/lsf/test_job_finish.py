"""One record, of any release."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.lsf.fields import Fields, MalformedRecord
from advisor.lsf.job_finish import JobFinish, read_job_finish, record_type

Write = Callable[..., str]


def read(line: str) -> JobFinish:
    found = Fields(line)
    assert record_type(found) == "JOB_FINISH"
    return read_job_finish(found)


def test_what_every_release_says(write_record: Write, release: str) -> None:
    record = read(write_record(release, asked_hosts=["bigmem", "node9"], array_index=3))
    assert record.version == release
    assert (record.job_id, record.array_index) == (4711, 3)
    assert (record.submit_time, record.start_time, record.event_time) == (
        1_700_000_000,
        1_700_000_600,
        1_700_003_600,
    )
    assert (record.user, record.user_id, record.queue, record.project) == ("ann", 1001, "normal", "physics")
    assert (record.processors, record.max_processors) == (4, 4)
    assert record.asked_hosts == ("bigmem", "node9")
    assert record.hosts == ("node1", "node1", "node2", "node2")
    assert (record.status, record.exit_status, record.host_factor) == (64, 0, 60.0)
    assert (record.name, record.user_seconds, record.system_seconds) == ("flow", 5793844.23, 679.06)
    assert record.max_resident_kb == 10_725_376


def test_what_later_releases_add(write_record: Write, release: str) -> None:
    record = read(
        write_record(
            release,
            run_limit=43200,
            options3=64,
            exit_info=5,
            share_account="/g/ann",
            service_class="gold",
            description="why",
            requeue_time=1_700_000_300,
        )
    )
    ends = ("5.1", "7.06", "9.11", "9.12", "10.1", "10.108").index(release)
    assert record.exit_info == (5 if ends > 0 else None)
    assert (record.share_account, record.description) == (("/g/ann", "why") if ends > 0 else (None, None))
    assert record.service_class == ("gold" if ends > 0 else None)
    assert record.run_limit_seconds == (43200.0 if ends > 1 else None)
    assert record.running_seconds == (3000 if ends > 1 else None)
    assert record.allocated_slots == (4 if ends > 3 else None)
    assert record.requeue_time == (1_700_000_300 if ends > 3 else None)


@pytest.mark.parametrize("as_ibms_page", [False, True])
@pytest.mark.parametrize("hosts", [[], ["node1"], ["node1", "node2", "node3"]])
@pytest.mark.parametrize("version", ["9.11", "9.12", "10.1", "10.108"])
def test_the_run_limit_is_found_in_either_order_and_behind_the_usage_by_host(
    write_record: Write, version: str, hosts: list[str], *, as_ibms_page: bool
) -> None:
    line = write_record(
        version, as_ibms_page=as_ibms_page, run_limit=7200, options3=1 << 22, usage_by_host=hosts
    )
    record = read(line)
    assert record.run_limit_seconds == 7200.0
    assert record.running_seconds == 3000  # and what follows


def test_short_host_lists(write_record: Write) -> None:
    record = read(write_record(hosts=["16*node1", "node2"], allocated_slots=["16*node1", "node2"]))
    assert record.hosts == ("16*node1", "node2")
    assert record.allocated_slots == 17


def test_fields_of_a_coming_release_are_left_alone(write_record: Write) -> None:
    line = write_record("10.108", run_limit=60)
    assert read(line + ' 17 "new" 1.5 bare') == read(line)


def test_a_record_that_ends_early_is_refused_or_says_less(write_record: Write) -> None:
    no_blanks = {"command": "solve", "effective_resource_request": "select[any]"}
    line = write_record("10.108", run_limit=3600, usage_by_host=["node1"], **no_blanks)
    whole = read(line)
    words = line.split(" ")
    read_ones = 0
    for count in range(len(words)):
        try:
            record = read(" ".join(words[:count]))
        except MalformedRecord:
            assert read_ones == 0  # once it says enough it does so with every word more
            continue
        read_ones += 1
        for name in JobFinish.__dataclass_fields__:
            assert getattr(record, name) in (getattr(whole, name), None)
    assert read_ones > 50


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("1700003600", '"soon"', r"field 3 \(event time\) is a string"),
        (" 4711 ", " x4711 ", r"field 4 \(job id\) is 'x4711'"),
        ('"normal"', "normal", r"field 13 \(queue\) is 'normal' instead of a string"),
        ("5793844.23", "5793844.23abc", r"user seconds\) is '5793844.23abc'"),
        (' 4 "node1"', ' 5 "node1"', "execution hosts"),
        ('0 4 "node1"', '04 "node1"', "asked hosts|execution hosts"),
        ('"JOB_FINISH" ', '"JOB_FINISH" ¡ ', r"field 2 \(version\)"),
        ("1001", "", "instead of"),
    ],
)
def test_what_is_malformed_is_named(write_record: Write, old: str, new: str, why: str) -> None:
    line = write_record()
    assert old in line
    with pytest.raises(MalformedRecord, match=why):
        read(line.replace(old, new, 1))


@pytest.mark.parametrize("line", ["", "7 8", '"job finish" 7', '"" 7', '"Job_Finish"', "JOB_FINISH"])
def test_what_begins_no_record(line: str) -> None:
    with pytest.raises(MalformedRecord):
        record_type(Fields(line))


texts = st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=["Cs"]), max_size=20)
whole = st.integers(0, 10**15)
anything = st.fixed_dictionaries(
    {
        **dict.fromkeys(("job_id", "user_id", "options", "processors", "event_time", "exit_info"), whole),
        **dict.fromkeys(("submit_time", "begin_time", "start_time", "max_resident_kb"), whole),
        **dict.fromkeys(("user", "queue", "resource_request", "dependency", "name", "command"), texts),
        **dict.fromkeys(("project", "reservation", "service_class", "share_account"), texts),
        **dict.fromkeys(("application", "requeue_exit_values", "description"), texts),
        **{name: st.lists(texts, max_size=4) for name in ("asked_hosts", "hosts")},
        "status": st.sampled_from([32, 64, 192]),
        "exit_status": st.integers(0, 65535),
        "array_index": st.integers(-1, 10**6),
        "requeue_time": whole,
        "effective_resource_request": texts,
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(values=anything)
def test_what_is_written_is_read(write_record: Write, values: dict[str, Any]) -> None:
    record = read(write_record("10.108", **values))
    for name, value in values.items():
        if name != "command":
            found = getattr(record, name)
            assert (list(found) if isinstance(found, tuple) else found) == value, name


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_record_with_any_field_replaced_is_refused_or_read(
    write_record: Write, data: st.DataObject
) -> None:
    words = write_record("10.108", run_limit=3600).split(" ")
    index = data.draw(st.integers(0, len(words) - 1))
    words[index] = data.draw(st.sampled_from(["", "-1", "999999999", '""', '"x"', "x", "1.5", "0"]))
    try:
        record = read(" ".join(words))
    except (MalformedRecord, AssertionError):
        return
    assert record.array_index >= -1


VOLCLAVA = (
    '"JOB_FINISH" "22" 1795366001 1 1001 33619971 1 1795365937 0 0 1795365941 "volclava" '
    '"normal" "" "" "" "vm"'
    ' "/tmp" "" "" "" "1795365937.1" 0 1 "vm" '
    '64 1.0 "test" "sleep 60" 0.020373 0.000000 5800 0 -1 0 0 814 1 0'
    ' 160 64 -1 0 0 0 21 8 -1 "" "default" 0 1 "" 0 6872 12192 "" ""'
)


def test_record_of_volclava_has_no_time_event() -> None:
    """As its mbatchd wrote it: the array index is where LSF has the time event."""
    found = Fields(VOLCLAVA)
    assert record_type(found) == "JOB_FINISH"
    job = read_job_finish(found)
    assert (job.job_id, job.user, job.queue, job.hosts) == (1, "volclava", "normal", ("vm",))
    assert (job.start_time, job.event_time, job.array_index) == (1795365941, 1795366001, 0)
    assert (job.project, job.max_processors, job.max_resident_kb) == ("default", 1, 6872)
    assert job.reservation is None


def test_fields_of_no_interest_may_be_of_another_kind() -> None:
    changed = VOLCLAVA.replace(" 0.020373 0.000000 5800 0 -1 ", ' 0.020373 0.000000 "" 0 -1 ')
    found = Fields(changed)
    record_type(found)
    assert read_job_finish(found).array_index == 0
