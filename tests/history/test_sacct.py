"""What sacct says: recorded on a real 22.05 with slurmdbd, and what other sites' users could make of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.history import sacct
from advisor.history.ingest_report import IngestReport
from advisor.model.errors import BadInput
from advisor.model.job import PLACEHOLDER_COMMENT, JobOutcome, JobState

DATA = Path(__file__).parent / "data"
HELP_22_05 = (DATA / "sacct-helpformat-22.05.txt").read_text()
FIELDS = sacct.choose_fields(HELP_22_05)
RECORDED = [name for name in FIELDS if name not in {"AllocTRES", "Eligible", "ElapsedRaw"}]
"""Fields that were asked for when `sacct-22.05.txt` was recorded."""
DELIMITER = sacct.delimiter("5f1c2b9e8d7a6f30")

USUAL = {
    "JobIDRaw": "10",
    "JobID": "10",
    "State": "COMPLETED",
    "Submit": "1000",
    "Eligible": "1000",
    "Start": "1060",
    "End": "1100",
    "ElapsedRaw": "40",
    "TimelimitRaw": "5",
    "ReqCPUS": "4",
    "AllocCPUS": "8",
    "AllocTRES": "billing=8,cpu=8,mem=4G,node=2",
    "ReqNodes": "2",
    "ReqMem": "4G",
    "Partition": "onprem",
    "User": "ann",
    "UID": "1000",
    "Group": "physics",
    "Account": "acc",
    "QOS": "normal",
    "NodeList": "n[1-2]",
    "Reservation": "",
    "Constraints": "gpu&(a|b)",
    "AdminComment": "",
    "Comment": "c",
    "JobName": "job",
    "DBIndex": "77",
}


def text_of(*changes: dict[str, str]) -> list[str]:
    records = (DELIMITER.join({**USUAL, **change}[name] for name in FIELDS) for change in changes)
    return "\n".join(records).split("\n")


def parse(*changes: dict[str, str]) -> tuple[list[sacct.EndedRun], IngestReport]:
    report = IngestReport(source="slurm")
    return list(sacct.parse(text_of(*changes), FIELDS, DELIMITER, report)), report


def only(**change: str) -> JobOutcome:
    (run,), _ = parse(change)
    assert run.outcome is not None
    return run.outcome


def test_what_a_real_slurmdbd_said() -> None:
    """Arrays, a heterogeneous job, a requeue, a cancelled job, a name with line ends in it."""
    report = IngestReport(source="slurm")
    with (DATA / "sacct-22.05.txt").open(newline="\n") as lines:
        runs = list(sacct.parse(lines, RECORDED, "\x1efieldend", report))
    assert (len(runs), report.malformed, report.never_started) == (11, 0, 0)
    outcomes = {run.job_id: run.outcome for run in runs if run.outcome}
    assert sorted(outcomes) == [1, 2, 3, 4, 7, 8, 10, 11, 12, 13]
    assert outcomes[1].job.processors == 2
    assert outcomes[1].job.requested_time == 300
    assert outcomes[1].job.memory_mb == 200
    assert outcomes[1].job.comment == "a comment"
    assert outcomes[2].state is JobState.FAILED
    assert outcomes[4].state is JobState.CANCELLED
    assert outcomes[7].job.requested_time is None  # UNLIMITED
    assert outcomes[7].job.comment == "c|omm\nent"
    assert outcomes[7].job.name is not None
    assert outcomes[7].job.name.startswith("we|ird\nna\x1fme`xxx")
    assert [outcomes[job_id].job.heterogeneous for job_id in (8, 10, 11)] == [False, True, True]
    assert {job_id for job_id in outcomes if outcomes[job_id].job.array_job_id == 3} == {3, 12, 13}
    assert all(outcomes[job_id].job.array_job_id is None for job_id in (1, 2, 4, 7, 8, 10, 11))
    first, second = (run for run in runs if run.job_id == 8)
    assert first.outcome is None
    assert first.may_continue
    assert not second.may_continue
    assert first.end_time == second.submit_time  # what the runs of a job are joined by


def test_every_column() -> None:
    outcome = only()
    assert outcome.job.job_id == 10
    assert (outcome.job.submit_time, outcome.start_time, outcome.end_time) == (1000.0, 1060.0, 1100.0)
    assert (outcome.job.processors, outcome.processors_used, outcome.job.nodes) == (4, 8, 2)
    assert (outcome.job.user, outcome.job.group, outcome.job.account) == ("ann", "physics", "acc")
    assert (outcome.job.queue, outcome.partition, outcome.nodes) == ("onprem", "onprem", "n[1-2]")
    assert (outcome.job.requested_time, outcome.job.memory_mb) == (300.0, 4096)
    assert (outcome.job.qos, outcome.job.comment, outcome.job.name) == ("normal", "c", "job")
    assert outcome.job.features == ("gpu", "a", "b")
    assert outcome.job.reservation is None
    assert outcome.advice_id is None


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("COMPLETED", JobState.COMPLETED),
        ("FAILED", JobState.FAILED),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED+", JobState.CANCELLED),
        ("TIMEOUT", JobState.TIMEOUT),
        ("DEADLINE", JobState.TIMEOUT),
        ("OUT_OF_MEMORY", JobState.OUT_OF_MEMORY),
        ("NODE_FAIL", JobState.NODE_FAIL),
        ("BOOT_FAIL", JobState.NODE_FAIL),
        ("PREEMPTED", JobState.PREEMPTED),
    ],
)
def test_states(state: str, expected: JobState) -> None:
    assert only(State=state).state is expected


@pytest.mark.parametrize("state", ["NODE_FAIL", "BOOT_FAIL", "PREEMPTED"])
def test_states_after_which_another_run_may_follow(state: str) -> None:
    (run,), _ = parse({"State": state})
    assert run.may_continue
    assert run.outcome is not None


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("Partition_Limit", None), ("UNLIMITED", None), ("", None), ("1", 60.0), ("-1", None)],
)
def test_time_limits(limit: str, seconds: float | None) -> None:
    assert only(TimelimitRaw=limit).job.requested_time == seconds


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ("100M", 100),
        ("4G", 4096),
        ("1.50T", 1572864),
        ("512", 512),
        ("1048576K", 1024),
        ("2Gc", 8192),  # before 21.08: per processor, 4 of them
        ("2Gn", 4096),  # per node, 2 of them
        ("0", None),
        ("0n", None),
        ("?", None),
        ("", None),
    ],
)
def test_memory(memory: str, expected: int | None) -> None:
    assert only(ReqMem=memory).job.memory_mb == expected


@pytest.mark.parametrize(
    ("text", "memory", "gpus"),
    [
        ("billing=8,cpu=8,mem=4G,node=2", 4096, 0),
        ("cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=1500M", 1500, 2),
        ("gres/gpu:a100=2,gres/gpu:v100=1,mem=0", 0, 3),  # a site that counts GPUs by type alone
        ("gres/gpumem=8000,mem=?,fs/mem=9G", 0, 0),
        ("mem=999999999999P", 2**53, 0),
        ("", 0, 0),
    ],
)
def test_what_a_job_held(text: str, memory: int, gpus: int) -> None:
    ended = only(AllocTRES=text)
    assert (ended.processors_used, ended.memory_held_mb, ended.gpus_held) == (8, memory, gpus)


@pytest.mark.parametrize(
    ("eligible", "seconds"),
    [("1000", 0.0), ("1059", 0.0), ("1200", 200.0), ("900", 0.0), ("1310", 300.0), ("Unknown", 0.0)],
)
def test_how_long_a_job_might_not_start(eligible: str, seconds: float) -> None:
    """For 22.05 the time until its dependency or its array's limit allowed it, or its begin or release."""
    assert only(Eligible=eligible, Start="1300", End="1400").ineligible_seconds == seconds


def test_a_user_who_was_deleted_still_has_a_number() -> None:
    assert only(User="").job.user == "1000"


def test_jobs_that_gave_nothing_to_learn_are_counted() -> None:
    runs, report = parse(
        {"JobIDRaw": "1", "State": "PENDING", "Start": "Unknown", "End": "Unknown"},
        {"JobIDRaw": "2", "State": "RUNNING", "End": "Unknown"},
        {"JobIDRaw": "3", "State": "CANCELLED by 0", "Start": "None"},
        {"JobIDRaw": "4", "State": "CANCELLED by 0", "Start": "Unknown"},
        {"JobIDRaw": "5", "State": "COMPLETED", "Start": "5000"},  # after its end
        {"JobIDRaw": "7.batch", "JobID": "7.batch"},
        {"JobIDRaw": "8.0", "JobID": "8_3.0"},
        {"JobIDRaw": "9", "State": "REVOKED"},
        {"JobIDRaw": "10", "State": ""},
        {"JobIDRaw": "11", "Submit": "2026-01-01T00:00:00"},
        {"JobIDRaw": "x"},
        {"JobIDRaw": "13"},
    )
    assert [run.job_id for run in runs] == [13]
    assert (report.never_started, report.malformed) == (3, 4)
    assert all(problem.isprintable() for problem in report.problems)


def test_half_a_record_is_no_job_yet() -> None:
    runs, report = parse({"Partition": "", "TimelimitRaw": "", "User": ""}, {"JobIDRaw": "11"})
    assert [run.job_id for run in runs] == [11]
    assert report.malformed == 0


def test_a_requeued_run_that_never_started_is_still_a_run() -> None:
    (run,), _ = parse({"State": "REQUEUED", "Start": "Unknown"})
    assert (run.outcome, run.start_time, run.end_time) == (None, None, 1100.0)


@pytest.mark.parametrize(
    ("admin_comment", "expected"),
    [
        ('{"burst_advisor":1,"id":"a-17","to":"burst"}', "a-17"),
        ('{"burst_advisor":1,"id":17}', None),
        ('{"id":"a-17"}', None),
        ('{"burst_advisor":1,"id":""}', None),
        (json.dumps({"burst_advisor": 1, "id": "x" * 500}), None),
        ("[" * 5000, None),
        ("hello", None),
        ("", None),
    ],
)
def test_the_advice_is_found_in_the_admin_comment(admin_comment: str, expected: str | None) -> None:
    assert only(AdminComment=admin_comment).advice_id == expected


@pytest.mark.parametrize(("now", "asked"), [("66", 3600.0), ("62", 3600.0), ("30", 1800.0), ("90", 5400.0)])
def test_the_limit_a_user_asked_for_is_kept_and_not_the_raised_one(now: str, asked: float) -> None:
    comment = '{"burst_advisor":1,"id":"a-1","limit":[3600,3960]}'
    assert only(AdminComment=comment, TimelimitRaw=now).job.requested_time == asked


typed = st.text(max_size=60) | st.sampled_from(
    ["\n", "a\nb\n", "\x1e", "\x1f", "\x1e\x1f", "|", "\n11|COMPLETED", "\r\n", "\x1efieldend", "\u2028"]
)


@given(names=st.lists(st.tuples(typed, typed), min_size=1, max_size=5))
def test_nothing_a_user_types_tears_a_record(names: list[tuple[str, str]]) -> None:
    """They do not know the random word; everything else is fair."""
    changes = [
        {"JobIDRaw": str(number), "JobName": name, "Comment": comment}
        for number, (name, comment) in enumerate(names, 1)
    ]
    runs, report = parse(*changes)
    assert report.malformed == 0
    assert [run.job_id for run in runs] == list(range(1, len(names) + 1))
    for run, (name, _) in zip(runs, names, strict=True):
        assert run.outcome is not None
        if name and name not in ("Unknown", "None assigned", "(null)"):
            assert run.outcome.job.name == name[:1000]


@given(st.text(max_size=500))
def test_any_text_is_survived(text: str) -> None:
    assert isinstance(
        list(sacct.parse(text.split("\n"), FIELDS, DELIMITER, IngestReport(source="slurm"))), list
    )


def test_endless_output_is_not_held_in_memory() -> None:
    report = IngestReport(source="slurm")
    lines = ["x" * 100_000] * 30
    assert list(sacct.parse(lines, FIELDS, DELIMITER, report)) == []
    assert report.malformed >= 2


@pytest.mark.parametrize(
    ("change", "is_hidden"),
    [
        ({"Comment": PLACEHOLDER_COMMENT}, True),
        ({"Comment": ""}, True),  # a site that keeps no comments
        ({"Comment": "mine"}, False),
        ({"JobName": "place-of-10"}, False),  # no older job
        ({"Comment": "", "End": "9000"}, False),  # none is held so long
    ],
)
def test_nobody_hides_his_work_by_a_placeholders_name(change: dict[str, str], *, is_hidden: bool) -> None:
    runs, report = parse({"JobName": "place-of-7", "Comment": PLACEHOLDER_COMMENT} | change)
    assert (len(runs), report.malformed) == (0 if is_hidden else 1, 0)


@pytest.mark.parametrize(
    ("times", "run_seconds"),
    [
        ({"ElapsedRaw": "19"}, 19.0),  # 21 s of suspension between: as slurmdbd 22.05 said
        ({"ElapsedRaw": "40"}, 40.0),
        ({"ElapsedRaw": "41"}, 40.0),
        ({"ElapsedRaw": ""}, 40.0),
        ({"ElapsedRaw": "19", "Start": "900"}, 200.0),  # it was resized: its start is that of the whole run
    ],
)
def test_time_in_which_a_job_was_suspended_is_no_run_time(times: dict[str, str], run_seconds: float) -> None:
    (found,), _ = parse(times)
    assert found.outcome is not None
    assert found.outcome.run_seconds == run_seconds
    assert found.end_time == 1100.0


def test_long_names_are_cut() -> None:
    assert only(JobName="y" * 10_240).job.name == "y" * 1000


def test_columns_of_22_05_and_of_newer_releases() -> None:
    assert FIELDS[0] == "JobIDRaw"
    assert FIELDS[-1] == "DBIndex"
    assert "Restarts" not in FIELDS
    newer = sacct.choose_fields(HELP_22_05 + " Restarts Licenses")
    assert {"Restarts", "Licenses"} < set(newer)
    older = HELP_22_05.replace("DBIndex", "").replace("Constraints", "")
    assert sacct.choose_fields(older)[-1] == "CPUTimeRAW"


@pytest.mark.parametrize("text", ["", "sacct: command not found"])
def test_other_programs_are_not_sacct(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        sacct.choose_fields(text)
    assert caught.value.code == "sacct.fields"


def test_restarts_of_releases_that_count_them() -> None:
    fields = sacct.choose_fields(HELP_22_05 + " Restarts Licenses")
    line = DELIMITER.join({**USUAL, "Restarts": "3", "Licenses": "matlab:2"}[name] for name in fields)
    (run,) = sacct.parse([line], fields, DELIMITER, IngestReport(source="slurm"))
    assert run.outcome is not None
    assert (run.outcome.restarts, run.outcome.job.licenses) == (3, "matlab:2")


def test_arguments_ask_in_utc_whatever_the_sites_zone() -> None:
    arguments = sacct.arguments(FIELDS, since=1795240579.0, until=1795244179.9, delimited_by=DELIMITER)
    assert "--starttime=2026-11-21T05:56:19" in arguments
    assert "--endtime=2026-11-21T06:56:19" in arguments
    assert sacct.ENVIRONMENT["TZ"] == "UTC"
    assert "--endtime=now" in sacct.arguments(FIELDS, since=-5.0, until=None, delimited_by="|")
